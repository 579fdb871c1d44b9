"""The tasks that can be named on the command line, each on its data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wior.data import Rows, blobs, covtype, ijcnn1, standardize
from wior.experiments import cleaning, few_shot
from wior.experiments.experiment import Options
from wior.problems import Bilevel, Compositional, ConditionalBilevel, ConditionalCompositional, Minimax, Problem
from wior.tasks.auc import auc_maximization
from wior.tasks.invariant_risk import invariant_risk
from wior.tasks.meta_regression import meta_regression
from wior.tasks.portfolio import portfolio
from wior.tasks.ridge import ridge_per_class, ridge_per_feature
from wior.tasks.task import Task

SPLIT_SEED = 0
QUICK = 10  # a quick version has that share of the steps, where the task has none of its own


class Named(NamedTuple):
    about: str
    problem: type[Problem]
    data: str  # where its examples come from
    make: Callable[[Options], Task]


def shorter(make: Callable[[Options], Task]) -> Callable[[Options], Task]:
    """A task that has no quick version of its own, with one."""

    def made(options: Options) -> Task:
        task = make(options)
        return dataclasses.replace(task, steps=max(1, task.steps // QUICK)) if options.quick else task

    return made


def covtype_parts(data: Path | None, progress: bool) -> tuple[Rows, Rows, Rows]:
    """Three fifths to train, one to validate, one to test, at random.

    The ten measured columns standardized by the first.
    """
    rows = covtype(data, progress=progress)
    shuffled = np.random.default_rng(SPLIT_SEED).permutation(len(rows.labels))
    cuts = np.split(shuffled, [3 * len(shuffled) // 5, 4 * len(shuffled) // 5])
    measured = rows.features[:, :10]
    features = np.concatenate([standardize(measured, measured[cuts[0]]), rows.features[:, 10:]], 1)
    train, valid, test = (Rows(features[cut], rows.labels[cut]) for cut in cuts)
    return train, valid, test


def _few_shot(figure: few_shot.FewShot, ways: int, shots: int) -> Callable[[Options], Task]:
    return lambda options: figure.make_task(few_shot.Panel(ways, shots), figure.load(options), options)


def _on_ijcnn1(make: Callable[..., Task]) -> Callable[[Options], Task]:
    def made(options: Options) -> Task:
        parts: Any = ijcnn1(options.data, progress=options.progress)
        return make(*parts)

    return shorter(made)


TASKS: dict[str, Named] = {
    "irm": Named(
        "invariant risk minimization (figure 1)",
        ConditionalBilevel,
        "synthetic",
        shorter(lambda options: invariant_risk()),
    ),
    "cleaning": Named("hyper-data cleaning (figure 2)", Bilevel, "MNIST; the digits with --quick", cleaning.make_task),
    "omniglot": Named(
        "hyper-representation, 5-way 1-shot (figure 3)",
        ConditionalBilevel,
        "Omniglot",
        _few_shot(few_shot.OMNIGLOT, 5, 1),
    ),
    "miniimagenet": Named(
        "hyper-representation, 5-way 1-shot (figure 4)",
        ConditionalBilevel,
        "MiniImageNet, or its stand-in",
        _few_shot(few_shot.MINI_IMAGENET, 5, 1),
    ),
    "few-shot": Named(
        "hyper-representation, 5-way 1-shot",
        ConditionalBilevel,
        "synthetic",
        _few_shot(few_shot.GLYPHS, 5, 1),
    ),
    "ridge": Named(
        "a ridge for each class", Bilevel, "synthetic", shorter(lambda options: ridge_per_class(*blobs(), classes=4))
    ),
    "ridge-ijcnn1": Named("a ridge for each feature", Bilevel, "ijcnn1", _on_ijcnn1(ridge_per_feature)),
    "ridge-covtype": Named(
        "a ridge for each class",
        Bilevel,
        "covtype",
        shorter(lambda options: ridge_per_class(*covtype_parts(options.data, options.progress), classes=7)),
    ),
    "auc": Named("AUC maximization", Minimax, "synthetic", shorter(lambda options: auc_maximization())),
    "auc-ijcnn1": Named("AUC maximization", Minimax, "ijcnn1", _on_ijcnn1(auc_maximization)),
    "portfolio": Named("mean-variance portfolio", Compositional, "synthetic", shorter(lambda options: portfolio())),
    "meta-regression": Named(
        "one gradient step to a new sine wave",
        ConditionalCompositional,
        "synthetic",
        shorter(lambda options: meta_regression()),
    ),
}
