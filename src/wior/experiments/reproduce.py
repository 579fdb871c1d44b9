"""The paper's experiments by name."""

from __future__ import annotations

from wior.experiments import cleaning, irm, rates
from wior.experiments.experiment import Experiment
from wior.experiments.few_shot import MINI_IMAGENET, OMNIGLOT

EXPERIMENTS: dict[str, Experiment] = {
    "irm": irm,
    "cleaning": cleaning,
    "omniglot": OMNIGLOT,
    "miniimagenet": MINI_IMAGENET,
    "rates": rates,
}
