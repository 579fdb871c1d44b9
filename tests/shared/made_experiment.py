"""An experiment that is made up."""

import functools
import json
from typing import Any, NamedTuple

import numpy as np

from wior import figures
from wior.experiments.claims import Claim
from wior.experiments.experiment import Findings


class Made(NamedTuple):
    """An experiment of three pieces, without a program."""

    claims: tuple[Claim, ...] = (Claim("It holds.", "holds", "3 > 2."), Claim("It may.", "partly", "2 = 2."))
    number: int = 1
    fail_at: str = ""
    error: Any = KeyboardInterrupt
    begun: Any = None  # a list of the pieces that were computed
    fail_late: bool = False

    TITLE = "Made up"
    FIGURE = "Of nothing."

    def settings(self, options):
        return {"number": self.number}

    def count(self, options):
        return 3

    def run(self, options, piece):
        def make(name, report, checkpoint):
            if self.begun is not None:
                self.begun.append(name)
            if name == self.fail_at:
                raise self.error
            return {"values": np.arange(3.0) * len(name)}

        arrays = {name: piece(name, 1, functools.partial(make, name)) for name in ("a", "b b", "c/c")}

        def draw(folder):
            figure = figures.new_figure(1, 1)
            figure.subplots().plot(arrays["a"]["values"])
            figures.save(figure, folder, "picture")
            if self.fail_late:
                raise self.error

        lines = [json.dumps({"name": name, "values": list(each["values"])}) for name, each in arrays.items()]
        return Findings(
            self.claims, {"number": self.number}, "Text.", draw, lambda path: path.write_text("\n".join(lines))
        )
