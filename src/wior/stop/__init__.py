"""When a run ends early: conditions for the argument `stop` of `wior.solve`, one or a list of them.

The first that holds ends the run, and `result.stopped_by` names it. They are looked at when a record is made. `AtMost`,
`AtLeast`, `Patience` and `RelativeChange` read any column of the history; `HypergradientNorm` measures one of its own.
"""

from wior.running.stopping import AtLeast, AtMost, Condition, Patience, RelativeChange
from wior.stop.hypergradient_norm import HypergradientNorm

__all__ = ["AtLeast", "AtMost", "Condition", "HypergradientNorm", "Patience", "RelativeChange"]
