"""What a logger is: told the records of a run while it goes, on the first process only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Record = Mapping[str, float]


class Logger:
    """Receives each record of a run: what `history` has, as plain numbers.

    A logger of your own inherits from this class and gives `record`. An error that it raises there is a warning, and
    the run continues.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, wior
    >>> class Printed(wior.loggers.Logger):
    ...     def record(self, record):
    ...         print(record["step"], record["outer_passes"])
    >>> problem = wior.Minimax(lambda x, y, batch: jnp.mean((x - batch) ** 2 - (y - x) ** 2), np.arange(8.0))
    >>> method = wior.WiORMinimax(0.1, 0.1)
    >>> result = wior.solve(problem, method, 0.0, 0.0, batch_size=4, steps=4, record_every=2, loggers=[Printed()])
    0 0.0
    2 1.0
    4 2.0
    """

    def begin(self, columns: Sequence[str], first: int, earlier: Sequence[Record]) -> None:
        """The run begins. An error that is raised here ends it.

        Parameters
        ----------
        columns
            The names in each record.
        first
            The step at which the run began: 0, or that of the `state` which it continues.
        earlier
            Of a run that resumes from a checkpoint, the records that it has made.
        """

    def record(self, record: Record) -> None:
        """A record is made.

        Parameters
        ----------
        record
            The numbers, by name.
        """
        raise NotImplementedError

    def end(self, stopped_by: str) -> None:
        """The run ends.

        Parameters
        ----------
        stopped_by
            As in `Result`; "error" where it ends by one.
        """
