"""The named tasks, made small."""

import numpy as np

import wior
from wior.tasks.auc import auc_maximization, imbalanced_blobs
from wior.tasks.invariant_risk import invariant_risk
from wior.tasks.meta_regression import meta_regression
from wior.tasks.portfolio import portfolio
from wior.tasks.ridge import ridge_per_class, ridge_per_feature


def blobs(seed=0):
    return imbalanced_blobs(60, 30, 50, inputs=3, share=0.3, seed=seed)


def labeled(classes, seed=0, sizes=(40, 30, 20), inputs=4):
    """Parts of rows whose labels a linear rule gives, with noise."""
    random = np.random.default_rng(seed)
    rule = random.normal(size=(inputs, classes))
    parts = [random.normal(size=(n, inputs)) for n in sizes]
    return [(rows, np.argmax(rows @ rule + 0.5 * random.normal(size=(len(rows), classes)), 1)) for rows in parts]


# each small, with the paper's algorithm for its class of problems, and steps after which the metric has gone down or up
SMALL = {
    "invariant_risk": (
        lambda seed=0: invariant_risk(m=7, n=5, dimension=3, seed=seed),
        wior.WiORCBO(outer_lr=0.1, inner_lr=0.5, adjoint_lr=0.5),
        "gap",
    ),
    "auc": (
        lambda seed=0: auc_maximization(*blobs(seed)),
        wior.WiORMinimax(outer_lr=0.05, inner_lr=0.5),
        "gap",
    ),
    "portfolio": (
        lambda seed=0: portfolio(assets=4, periods=30, factors=2, seed=seed),
        wior.WiORComp(outer_lr=0.005, inner_lr=0.5, adjoint_lr=0.5),
        "gap",
    ),
    "meta_regression": (
        lambda seed=0: meta_regression(m=6, n=4, queries=3, held_out=5, widths=(5,), seed=seed),
        wior.WiORCComp(outer_lr=0.03, inner_lr=0.9, adjoint_lr=0.9),
        "loss",
    ),
    "ridge_per_feature": (
        lambda seed=0: ridge_per_feature(*labeled(2, seed)),
        wior.WiORBO(outer_lr=0.1, inner_lr=0.3, adjoint_lr=0.3),
        "valid_loss",
    ),
    "ridge_per_class": (
        lambda seed=0: ridge_per_class(*labeled(3, seed), 3),
        wior.WiORBO(outer_lr=0.1, inner_lr=0.3, adjoint_lr=0.3),
        "valid_loss",
    ),
}
