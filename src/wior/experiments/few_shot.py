"""Figures 3 and 4: hyper-representation on few-shot tasks of Omniglot and of MiniImageNet, eight panels each.

A network of four convolutions is learned so that a linear classifier does well on new classes after four steps on a few
images of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from wior import baselines, figures
from wior.algorithms import WiORCBO
from wior.data import FewShotParts, glyphs, mini_imagenet, omniglot, tiny_imagenet_fs, with_rotations
from wior.experiments import comparison
from wior.experiments.claims import Claim, Ends, ahead, level, verdict
from wior.experiments.comparison import Entrant, How, Outcome, Piece
from wior.experiments.experiment import Conclusion, Options
from wior.orders import Independent, RandomReshuffling, ShuffleOnce
from wior.tasks.hyper_representation import INNER_STEPS, hyper_representation
from wior.tasks.task import Task

SO, RR, WIR, DLSGD, RTMLMC = "WiOR-CBO (SO)", "WiOR-CBO (RR)", "WiR-CBO", "DL-SGD", "RT-MLMC"
LEVELS = 6  # the paper's K_max
OURS = {"inner_epochs": INNER_STEPS}
ENTRANTS = (
    Entrant(RR, WiORCBO, RandomReshuffling(), OURS),
    Entrant(SO, WiORCBO, ShuffleOnce(), OURS),
    Entrant(DLSGD, baselines.DLSGD, Independent(), {"inner_steps": INNER_STEPS}),
    Entrant(RTMLMC, baselines.RTMLMC, Independent(), {"levels": LEVELS}),
    Entrant(WIR, WiORCBO, Independent(), OURS),
)
POINT = 0.01  # of accuracy


def entrants(options: Options) -> tuple[Entrant, ...]:
    return tuple(one for one in ENTRANTS if not options.quick or one.label != WIR)


class Panel(NamedTuple):
    ways: int
    shots: int

    @property
    def name(self) -> str:
        return f"{self.ways}-way {self.shots}-shot"


PANELS = (Panel(5, 1), Panel(5, 5), Panel(20, 1), Panel(20, 5))


class Images(NamedTuple):
    name: str
    parts: FewShotParts


@dataclasses.dataclass(frozen=True)
class FewShot:
    """One data set's figure, with its settings."""

    TITLE: str
    FIGURE: str
    key: str
    load: Callable[[Options], Images]
    inner_lr: float
    outer_lr: tuple[float, ...]  # the paper's among them
    adjoint_lr: tuple[float, ...]
    length: float  # of the features of 5-way tasks, see `hyper_representation`; it grows as the root of the ways
    strided: bool
    steps: int
    tuning_steps: int
    batch: int
    tasks: int
    quick: dict[str, Any]

    def panels(self, options: Options) -> tuple[Panel, ...]:
        if options.only:
            known = {f"{panel.ways}x{panel.shots}": panel for panel in PANELS}
            unknown = [name for name in options.only if name not in known]
            if unknown:
                raise ValueError(f"--only must name panels, some of {', '.join(known)}; got {', '.join(unknown)}")
            return tuple(known[name] for name in dict.fromkeys(options.only))
        return PANELS[:1] if options.quick else PANELS

    def make_task(self, panel: Panel, images: Images, options: Options) -> Task:
        sizes: dict[str, Any] = {
            "outer_lr": self.outer_lr,
            "adjoint_lr": self.adjoint_lr,
            "tasks": self.tasks,
            "batch": self.batch,
            "steps": self.steps,
            **(self.quick if options.quick else {}),
        }
        task = hyper_representation(
            *(part.images for part in images.parts),
            name=self.key,
            ways=panel.ways,
            shots=panel.shots,
            inner_lr=self.inner_lr,
            strided=self.strided,
            length=self.length * math.sqrt(panel.ways / 5),
            **sizes,
        )
        return dataclasses.replace(
            task, title=f"{images.name}, {panel.name}", facts={**task.facts, "data": images.name}
        )

    def settings(self, options: Options) -> dict[str, Any]:
        changes = self.quick if options.quick else {}
        return {
            "panels": [panel.name for panel in self.panels(options)],
            "entrants": [entrant.describe() for entrant in entrants(options)],
            "inner_lr": self.inner_lr,
            "outer_lr": self.outer_lr,
            "adjoint_lr": self.adjoint_lr,
            "length": self.length,
            "steps": self.steps,
            "tuning_steps": self.tuning_steps,
            "batch": self.batch,
            "tasks": self.tasks,
            "changes": changes,
        }

    def count(self, options: Options) -> int:
        return len(entrants(options)) * len(self.panels(options))

    def run(self, options: Options, piece: Piece) -> Conclusion:
        images = self.load(options)
        tasks: dict[Panel, Task] = {}
        found: dict[Panel, list[Outcome]] = {}
        for panel in self.panels(options):
            task = self.make_task(panel, images, options)
            # the images of one panel are enough on the device
            tasks[panel] = dataclasses.replace(task, problem=None, metrics=None)  # type: ignore[arg-type]
            how = How(
                options.seeds,
                records=8 if options.quick else 25,
                timed=False,
                tuning_steps=min(self.tuning_steps, task.steps // 2),
            )
            found[panel] = comparison.compare(task, entrants(options), how, piece, panel.name)
        first = next(iter(tasks.values()))
        rows = {panel: comparison.rows(tasks[panel], outcomes) for panel, outcomes in found.items()}
        text = f"{self._protocol(first, options)}\n\n![]({self.key}.png)\n\n" + "\n\n".join(
            f"## {tasks[panel].title}\n\n{comparison.table(tasks[panel], rows[panel])}\n\n"
            + _to_within_a_point(tasks[panel], outcomes)
            for panel, outcomes in found.items()
        )
        summary = {
            "data": images.name,
            "panels": {panel.name: {"task": dict(task.facts), "methods": rows[panel]} for panel, task in tasks.items()},
        }
        groups = {panel.name: outcomes for panel, outcomes in found.items()}
        return Conclusion(
            claims(tasks, found),
            summary,
            text,
            lambda folder: figures.save(plot(images.name, tasks, found), folder, self.key),
            lambda path: comparison.write_history(path, groups),
        )

    def _protocol(self, task: Task, options: Options) -> str:
        facts = task.facts
        return (
            f"Data: {facts['data']}, {facts['classes']} classes. {facts['tasks']['train']} training tasks in batches "
            f"of {task.batch_size[0]}, "  # type: ignore[index]
            f"{facts['queries']} query images a class; accuracy and loss on {facts['tasks']['test']} tasks of held-out "
            f"classes after {facts['inner_steps']} steps of {self.inner_lr:g} on the support set. {facts['filters']} "
            f"filters a layer, {facts['halving']}; normalized {facts['normalization']}; features of length "
            f"{self.length:g} in 5-way tasks, growing as the root of the ways, so that the inner problem is smooth "
            "whatever the network. An inner step has as many images as the support set: each once without replacement, "
            "a draw with replacement under independent sampling. Every method has the grid of outer steps "
            f"{facts_of(task, 'outer_lr')} and adjoint or Neumann steps {facts_of(task, 'adjoint_lr')}; the setting is "
            f"the one with the best accuracy on {facts['tasks']['valid']} tasks of the validation classes after "
            f"{min(self.tuning_steps, task.steps // 2)} steps with one seed; {options.seeds} seeds then run "
            f"{task.steps} steps. Seconds are of steps, one run after another."
        )


def facts_of(task: Task, name: str) -> str:
    return ", ".join(f"{value:g}" for value in task.grid[name])


def load_omniglot(options: Options) -> Images:
    return Images("Omniglot", FewShotParts(*map(with_rotations, omniglot(options.data, progress=options.progress))))


def load_mini_imagenet(options: Options) -> Images:
    """MiniImageNet where its images are, else the stand-in; a quarter of the height and width in the quick version."""
    try:
        images = Images("MiniImageNet", mini_imagenet(options.data, progress=options.progress))
    except FileNotFoundError as missing:
        try:
            images = Images("Tiny ImageNet stand-in", tiny_imagenet_fs(options.data, progress=options.progress))
        except FileNotFoundError:
            raise missing from None  # which also names the stand-in
    if not options.quick:
        return images
    smaller = (part._replace(images=part.images[:, :, ::4, ::4]) for part in images.parts)
    return Images(f"{images.name}, every fourth pixel", FewShotParts(*smaller))


QUICK: dict[str, Any] = {
    "filters": 16,
    "queries": 5,
    "tasks": 400,
    "held_out_tasks": 32,
    "batch": 4,
    "steps": 160,
    "outer_lr": (1.0,),
}

OMNIGLOT = FewShot(
    TITLE="Hyper-representation on Omniglot",
    FIGURE="Figure 3 of Li and Huang, NeurIPS 2024. 33, 5 and 12 alphabets to train, validate and test; each rotation "
    "of a character is a class.",
    key="omniglot",
    load=load_omniglot,
    inner_lr=0.4,
    outer_lr=(0.1, 0.3, 1.0, 3.0, 10.0),
    adjoint_lr=(0.1, 0.4),
    length=4.0,
    strided=True,
    steps=2000,
    tuning_steps=300,
    batch=8,
    tasks=4000,
    quick=QUICK,
)

GLYPHS = dataclasses.replace(
    OMNIGLOT,
    TITLE="Hyper-representation on made-up drawings",
    key="glyphs",
    load=lambda options: Images("made-up drawings", glyphs()),
    steps=400,
    quick={**QUICK, "steps": 40},
)

# four steps of 0.01 on features 25 times as long in square are four steps of 0.4 on those of Omniglot
MINI_IMAGENET = FewShot(
    TITLE="Hyper-representation on MiniImageNet, or its stand-in",
    FIGURE=(
        "Figure 4 of Li and Huang, NeurIPS 2024. Where MiniImageNet's images are not found, a stand-in: 100 classes of "
        "Tiny ImageNet in 64 × 64 pixels with the same numbers of classes. It is not MiniImageNet, and its numbers are "
        "not to be compared with MiniImageNet's."
    ),
    key="miniimagenet",
    load=load_mini_imagenet,
    inner_lr=0.01,
    outer_lr=(0.005, 0.015, 0.05, 0.15, 0.5),
    adjoint_lr=(0.0025, 0.01),
    length=25.0,
    strided=False,
    steps=1000,
    tuning_steps=150,
    batch=8,
    tasks=2000,
    quick={**QUICK, "steps": 80, "outer_lr": (0.2,)},
)


def claims(tasks: dict[Panel, Task], found: dict[Panel, list[Outcome]]) -> list[Claim]:
    over, beside, alike = [], [], []
    sentences = []
    for panel, outcomes in found.items():
        task = tasks[panel]
        of = {one.label: one.end("accuracy", task) for one in outcomes}
        over += [ahead(of[label], of[DLSGD]) for label in (SO, RR)]
        beside += [_level(of[label], of[RTMLMC]) or ahead(of[label], of[RTMLMC]) for label in (SO, RR)]
        alike += [_level(of[WIR], of[DLSGD])] if WIR in of else []
        sentences.append(f"{panel.name}: " + ", ".join(f"{end} ({label})" for label, end in of.items()))
    numbers = "Accuracy at the end. " + "; ".join(sentences) + "."
    by_time = []
    for panel, outcomes in found.items():
        by = {one.label: one for one in outcomes}
        seconds = min(by[label].seconds[-1] for label in (SO, RR))
        at = {label: one.after_seconds("accuracy", seconds, tasks[panel]) for label, one in by.items()}
        by_time += [_level(at[label], at[RTMLMC]) or ahead(at[label], at[RTMLMC]) for label in (SO, RR)]
    same = "The same numbers."
    paces = "; ".join(
        f"{panel.name} {_pace(outcomes, RTMLMC) / _pace(outcomes, RR):.2f}" for panel, outcomes in found.items()
    )
    judged = [
        Claim("Shuffle once and random reshuffling are ahead of DL-SGD.", verdict(over), numbers),
        Claim("They are level with RT-MLMC, or ahead, after the same number of steps.", verdict(beside), same),
        Claim(
            "They are level with RT-MLMC, or ahead, after the same time.",
            verdict(by_time),
            f"Seconds a step of RT-MLMC in those of WiOR-CBO (RR): {paces}.",
        ),
    ]
    if alike:
        judged.append(Claim("WiOR-CBO with independent sampling performs like DL-SGD.", verdict(alike), same))
    return judged


def _level(one: Ends, other: Ends) -> bool:
    return level(one, other, share=0.0, within=POINT)


def _pace(outcomes: Sequence[Outcome], label: str) -> float:
    return next(one.pace for one in outcomes if one.label == label)


def _to_within_a_point(task: Task, outcomes: Sequence[Outcome]) -> str:
    """When each method comes within a point of the accuracy it ends at."""
    times = []
    for one in outcomes:
        target = one.end("accuracy", task).mean - POINT
        times.append(f"{one.label} {one.first_at('accuracy', target, task, 'seconds'):.3g}")
    return f"Seconds of one run until within a point of the final accuracy: {', '.join(times)}."


def plot(name: str, tasks: dict[Panel, Task], found: dict[Panel, list[Outcome]]) -> Any:
    """Accuracy against steps, and loss against seconds, a column for each panel."""
    figure = figures.new_figure(len(found), 2, 3.6, 2.8)
    axes = np.reshape(figure.subplots(2, len(found)), (2, -1))
    looks = figures.styles([entrant.label for entrant in ENTRANTS])
    for (top, bottom), (panel, outcomes) in zip(axes.T, found.items(), strict=True):
        for one in outcomes:
            style = looks[one.label]
            figures.curve(top, one.history["step"], one.history["accuracy"], style, one.label, False)
            figures.curve(bottom, one.seconds, one.history["loss"], style, one.label, False)
        top.set(title=panel.name, xlabel="steps")
        bottom.set(xlabel="seconds of one run")
        bottom.set_ylim(*figures.limits([one.history["loss"].mean(0) for one in outcomes if one.best is not None], 0.0))
        for axis in (top, bottom):
            figures.tidy(axis)
    axes[0, 0].set(ylabel=tasks[next(iter(found))].measures["accuracy"].label)
    axes[1, 0].set(ylabel="loss on held-out classes")
    figure.suptitle(f"Hyper-representation, {name}")
    figures.legend(figure, axes[0, 0], 5)
    return figure
