"""How to learn is chosen by verified rows that were held out.

Every candidate learns from the training rows and all but a fold of the verified rows, for a quarter of the steps; the
best go on to the end. The candidate and the number of steps with the smallest loss on the rows held out, over all
folds, learn again from all verified rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior.algorithms import WiORBO
from wior.cleaning import plain
from wior.cleaning.designs import DESIGNS, Material, Setting
from wior.orders import Order, RandomReshuffling
from wior.running.loop import NonFiniteError
from wior.running.progress import Progress
from wior.running.solve import Result, solve
from wior.saving.checkpoint import Checkpoint
from wior.tasks.networks import label_losses

Tree = Any
# of two that are equally good the first is taken
SETTINGS = (
    Setting("noise", "counted", 1.0, 0.3, 1.0),
    Setting("noise", "counted", 1.0, 0.1, 1.0),
    Setting("noise", "counted", 2.0, 0.1, 0.0),
    Setting("noise", "trusting", 2.0, 0.1, 0.0),
    Setting("noise", "trusting", 0.01, 0.1, 0.1),
    Setting("function", "even", 1.0, 0.1),
    Setting("function", "even", 10.0, 0.1),
    Setting("row", "even", 10.0, 0.1),
    Setting("row", "even", 100.0, 0.1),
    Setting("row", "even", 1000.0, 0.1),
)
AUTOMATIC = "noise"  # see docs/cleaning.md
TEMPERATURES = np.geomspace(0.5, 4, 10)
RECORDS = 24  # of a whole run
HEAT = 4  # a first heat is this part of a run
FINALISTS = 2
TEACHING_STEPS, TEACHING_ROWS, TEACHING_LR, TEACHING_L2 = 300, 512, 0.01, 1e-2


class Length(NamedTuple):
    """How long a run is; runs that are recorded as often are one program."""

    steps: int
    batch: int
    record_every: int


class Trial(NamedTuple):
    """A candidate on one fold: its loss on the rows held out, at each record and temperature."""

    setting: Setting
    fold: int
    steps: np.ndarray
    losses: np.ndarray  # (records, temperatures)


class Choice(NamedTuple):
    setting: Setting
    steps: int
    loss: float  # on the rows held out
    temperature: float  # at which it is that
    trials: list[Trial]


class Watch(NamedTuple):
    """What a run tells and where it saves itself."""

    report: Progress
    checkpoint: Checkpoint | None


Run = Callable[[str, int], Watch]  # told the name and the steps of a run before it begins


@functools.partial(jax.tree_util.register_dataclass, data_fields=["model", "rows"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class HeldOutLoss:
    """The loss on rows held out, for the logits divided by each of some temperatures.

    A network grows too sure of itself before it is as good as it will be: what it knows is told by its loss at the best
    temperature.
    """

    model: Any
    rows: tuple[jax.Array, jax.Array]

    def __call__(self, x: Tree, y: Tree) -> dict[str, jax.Array]:
        logits = self.model.logits(y, self.rows[0]) / jnp.asarray(TEMPERATURES, jnp.float32)[:, None, None]
        losses = jnp.mean(label_losses(logits, jnp.broadcast_to(self.rows[1], logits.shape[:-1])), -1)
        return {_name(place): loss for place, loss in enumerate(losses)}


def _name(place: int) -> str:
    return f"loss at temperature {TEMPERATURES[place]:.2f}"


def choose(
    material: Material, settings: Sequence[Setting], length: Length, folds: int, order: Order, run: Run
) -> Choice:
    """The best of the settings, and its number of steps."""
    parts = fold_places(np.asarray(material.verified[1]), folds, material.seed)
    taught: dict[int, Tree] = {}

    def trial(setting: Setting, fold: int, steps: int) -> Trial:
        kept, held = parts[fold]
        features, labels = material.verified
        own = material._replace(verified=(features[kept], labels[kept]))
        if fold not in taught:
            taught[fold] = teach(own)
        metrics = HeldOutLoss(material.model, (features[held], labels[held]))
        name = f"{setting.describe()}, fold {fold + 1} of {folds}"
        result = learn(own, setting, length._replace(steps=steps), taught[fold], order, run(name, steps), metrics)
        if result is None:
            return Trial(setting, fold, np.full(1, steps), np.full((1, len(TEMPERATURES)), np.inf))
        losses = np.stack([result.history[_name(place)] for place in range(len(TEMPERATURES))], -1)
        return Trial(setting, fold, result.history["step"], losses)

    def heat(entrants: Sequence[Setting], steps: int) -> list[Trial]:
        return [trial(setting, fold, steps) for setting in entrants for fold in range(folds)]

    first = max(length.steps // HEAT, 1)
    trials: list[Trial] = []
    if len(settings) > 1:
        trials = heat(settings, first)
        settings = finalists(settings, trials)
    last = heat(settings, length.steps)
    ranked = sorted((best_record(setting, last), place) for place, setting in enumerate(settings))
    (loss, steps, temperature), place = ranked[0]
    if not np.isfinite(loss):
        raise ValueError(
            "the model diverged on the held-out verified rows under every setting; are there infinite or huge values "
            "among the features?"
        )
    return Choice(settings[place], steps, loss, temperature, [*trials, *last])


def finalists(settings: Sequence[Setting], trials: Sequence[Trial]) -> list[Setting]:
    """The best of a first heat; the second only where it is not clearly behind."""
    ranked = sorted(settings, key=lambda setting: best_record(setting, trials)[0])[:FINALISTS]
    ends = np.array([[one.losses.min() for one in trials if one.setting == setting] for setting in ranked])
    with np.errstate(invalid="ignore"):  # of runs that diverged
        gaps = ends[1:] - ends[0]
    behind = [not np.isfinite(gap).all() or gap.mean() > 2 * gap.std(ddof=1) / len(gap) ** 0.5 for gap in gaps]
    return [ranked[0], *(setting for setting, late in zip(ranked[1:], behind, strict=True) if not late)]


class Record(NamedTuple):
    loss: float
    steps: int
    temperature: float


def best_record(setting: Setting, trials: Sequence[Trial]) -> Record:
    """The smallest mean over folds of the loss on the rows held out, after how many steps, and at which temperature."""
    steps, losses = surface(setting, trials)
    best, warmth = np.unravel_index(np.argmin(losses), losses.shape)
    return Record(float(losses[best, warmth]), int(steps[best]), float(TEMPERATURES[warmth]))


def curve(setting: Setting, trials: Sequence[Trial]) -> tuple[np.ndarray, np.ndarray]:
    """The steps of the records, and the mean over folds of the held-out loss, each at its best temperature."""
    steps, losses = surface(setting, trials)
    return steps, losses.min(-1)


def surface(setting: Setting, trials: Sequence[Trial]) -> tuple[np.ndarray, np.ndarray]:
    """The steps of the records, and the mean over folds of the loss on the rows held out, (records, temperatures)."""
    own = [one for one in trials if one.setting == setting]
    if any(len(one.losses) != len(own[0].losses) for one in own):
        return np.zeros(1, int), np.full((1, len(TEMPERATURES)), np.inf)  # a fold diverged
    losses = np.mean([one.losses for one in own], axis=0)
    return own[0].steps, np.where(np.isfinite(losses), losses, np.inf)


def learn(
    material: Material,
    setting: Setting,
    length: Length,
    taught: Tree,
    order: Order,
    watch: Watch,
    metrics: Any = None,
) -> Result | None:
    """WiOR-BO with one setting; `None` where it diverges."""
    design = DESIGNS[setting.weighting]
    batch = (min(length.batch, len(material.verified[1])), min(length.batch, len(material.rows)))
    try:
        return solve(
            design.problem(material, setting),
            WiORBO(setting.outer_lr, setting.inner_lr, setting.inner_lr),
            design.start(material, setting, taught),
            taught,
            order=order,
            batch_size=batch,
            steps=length.steps,
            seed=material.seed,
            metrics=metrics,
            record_every=length.record_every,
            progress=watch.report,
            checkpoint=watch.checkpoint,
        )
    except NonFiniteError:
        return None


def teach(material: Material) -> Tree:
    """The model that the verified rows teach by themselves: where every run starts."""
    features, labels = material.verified
    rows = min(len(labels), TEACHING_ROWS)
    batches = plain.drawn(np.arange(len(labels)), TEACHING_STEPS, rows, material.seed)
    start, numbers = material.model.init(material.seed), (jnp.float32(TEACHING_L2), jnp.float32(TEACHING_LR))
    return plain.trained(material.model, start, (features,), labels, batches, *numbers)


def fold_places(labels: np.ndarray, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(kept, held out) for every fold, all of one size and with every class spread over them; what is left over is
    always kept.

    Some of those kept are there twice, so that they are as many as there are rows: runs with and without a fold are one
    program.
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    places = np.arange(len(labels))
    size = len(labels) // folds
    found = []
    for fold in range(folds):
        held = by_class[(places % folds == fold) & (places < size * folds)]
        found.append((np.resize(np.setdiff1d(shuffled, held, assume_unique=True), len(labels)), np.sort(held)))
    return found


def parts_of_rows(rows: int, parts: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(learned from, judged) for every part, all of one size; every row is judged, and some are learned from twice, as
    in `fold_places`.
    """
    shuffled = np.random.default_rng(seed).permutation(rows)
    size = -(-rows // parts)
    judged = [np.take(shuffled, np.arange(part * size, (part + 1) * size), mode="wrap") for part in range(parts)]
    return [(np.resize(np.setdiff1d(shuffled, some, assume_unique=True), rows), some) for some in judged]


def checkpoints(folder: Path | None, run: Callable[[str, int], Progress]) -> Run:
    """Runs that save themselves in folders of their own."""
    count = iter(range(10**6))

    def begin(name: str, steps: int) -> Watch:
        number = next(count)
        return Watch(run(name, steps), None if folder is None else Checkpoint(folder / f"run-{number:03d}", keep=1))

    return begin


DEFAULT_ORDER = RandomReshuffling()
