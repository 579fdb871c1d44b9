"""Area under the ROC curve as a saddle point: a linear score that ranks positive rows above negative ones.

With p the share of positive rows, s = w·z the score of a row z, x = (w, a, b) and y = α,

    F(x, α; z) = (1 − p) (s − a)² [z positive] + p (s − b)² [z negative]
                 + 2 (1 + α) (p s [z negative] − (1 − p) s [z positive]) − p (1 − p) α² + (L2 / 2) ‖w‖²

and  1 + min over a, b of max over α of mean F / (p (1 − p))  at L2 = 0 is the mean of (1 − w·(z − z'))² over all pairs
of a positive z and a negative z'. The maximum over α lies at the difference of the mean scores, negative less positive;
a and b belong at the mean scores of the two classes.

Ying, Wen, Lyu, "Stochastic online AUC maximization", NeurIPS 2016.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import checks
from wior.problems import Minimax
from wior.tasks.data_cleaning import auroc
from wior.tasks.task import Measure, Task, state_type

Labeled = tuple[Any, Any]  # features (n, inputs) and labels (n,) in {0, 1}


class Score(NamedTuple):
    """x: the weights of the score, and the mean scores of the positive and of the negative rows."""

    w: jax.Array  # (inputs,)
    a: jax.Array
    b: jax.Array


def auc_maximization(
    train: Labeled | None = None,
    valid: Labeled | None = None,
    test: Labeled | None = None,
    *,
    l2: float = 1e-3,
    batch_size: int = 32,
    steps: int = 10_000,
    seed: int = 0,
) -> Task:
    """The task of ranking positive rows above negative ones, on given rows or on made ones.

    Its metrics are `auroc` on the test rows; `valid_auroc` on the validation rows, by which step sizes are chosen;
    `gap`, the primal value above its minimum, which is that of a quadratic and known; and `objective`, the primal
    value: mean F with the best α, on all training rows.

    Parameters
    ----------
    train, valid, test : pair of arrays or None, default None
        Features (n, inputs) and labels (n,) in {0, 1}: all three, or none for `imbalanced_blobs(seed=seed)`.
    l2 : float, default 1e-3
        The coefficient of ½‖w‖².
    batch_size : int or (int, int), default 32
        The rows of a batch, or a pair (outer, inner), for a run of the task.
    steps : int, default 10000
        The steps of a run of the task.
    seed : int, default 0
        Makes the rows where none are given.

    Returns
    -------
    Task
        The problem, where to start, metrics and defaults for a run.

    Examples
    --------
    >>> from wior.tasks.auc import auc_maximization
    >>> auc_maximization().judged_by
    'valid_auroc'
    """
    made = train is None and valid is None and test is None
    if made:
        train, valid, test = imbalanced_blobs(seed=seed)
    if train is None or valid is None or test is None:
        raise ValueError("give train, valid and test, or none of them")
    for name, (rows, labels) in (("train", train), ("valid", valid), ("test", test)):
        _check_labeled(name, rows, labels)
    checks.positive_number("l2", l2)
    share = float(np.mean(train[1]))
    loss = Saddle(share, l2)
    features, labels = map(jnp.asarray, train)
    known = Primal.of(np.asarray(features, float), np.asarray(labels), share, l2)
    held_out = {"auroc": tuple(map(jnp.asarray, test)), "valid_auroc": tuple(map(jnp.asarray, valid))}

    def metrics(x: Score, y: jax.Array) -> dict[str, jax.Array]:
        areas = {name: auroc(rows @ x.w, truth == 1) for name, (rows, truth) in held_out.items()}
        return {**areas, "gap": known.gap(x), "objective": known.minimum + known.gap(x)}

    inputs, zero = features.shape[1], jnp.zeros((), state_type(features))
    return Task(
        name="auc",
        title=f"AUC maximization: {len(labels)} rows of which {share:.1%} are positive",
        problem=Minimax(loss, (features, labels)),
        x0=Score(jnp.zeros(inputs, zero.dtype), zero, zero),
        y0=zero,
        metrics=metrics,
        measures={
            "auroc": Measure("AUROC on the test rows", largest=True),
            "gap": Measure("primal value above its minimum", log=True),
            "valid_auroc": Measure("AUROC on the validation rows", largest=True),
            "objective": Measure("primal value"),
        },
        judged_by="valid_auroc",
        batch_size=batch_size,
        steps=steps,
        grid={"outer_lr": (0.003, 0.01, 0.03), "inner_lr": (0.1, 0.3, 1.0)},
        facts={
            "train": len(labels),
            "valid": len(valid[1]),
            "test": len(test[1]),
            "inputs": inputs,
            "positive": share,
            "l2": l2,
            **({"data": "imbalanced_blobs", "seed": seed} if made else {}),
        },
    )


@dataclasses.dataclass(frozen=True)
class Saddle:
    """mean F over rows."""

    share: float  # p, of all training rows
    l2: float

    def __call__(self, x: Score, alpha: jax.Array, batch: Labeled) -> jax.Array:
        p, rows = self.share, batch[0]
        positive = (batch[1] == 1).astype(rows.dtype)
        negative, score = 1 - positive, rows @ x.w
        spread = (1 - p) * (score - x.a) ** 2 * positive + p * (score - x.b) ** 2 * negative
        apart = 2 * (1 + alpha) * (p * negative - (1 - p) * positive) * score
        return jnp.mean(spread + apart) - p * (1 - p) * alpha**2 + self.l2 / 2 * jnp.vdot(x.w, x.w)


@dataclasses.dataclass(frozen=True, eq=False)
class Primal:
    """max over α of mean F: a quadratic in x around its minimizer, which is computed in float64.

    With μ₊, μ₋ the classes' means, S the sum of their covariances, δ = μ₊ − μ₋ and q = p (1 − p), it is

        q (w'(S + δδ')w − 2 δ'w + (a − μ₊'w)² + (b − μ₋'w)²) + (L2 / 2) ‖w‖².
    """

    minimizer: Score
    minimum: float
    hessian: np.ndarray  # of the part in w alone
    means: np.ndarray  # μ₊ and μ₋
    weight: float  # q

    @classmethod
    def of(cls, rows: np.ndarray, labels: np.ndarray, share: float, l2: float) -> Primal:
        groups, q = (rows[labels == 1], rows[labels == 0]), share * (1 - share)
        means = np.stack([group.mean(0) for group in groups])
        apart = means[0] - means[1]
        spread = sum(np.atleast_2d(np.cov(group.T, bias=True)) for group in groups)
        hessian = 2 * q * (spread + np.outer(apart, apart)) + l2 * np.eye(rows.shape[1])
        w = np.linalg.solve(hessian, 2 * q * apart)
        best = Score(*(jnp.asarray(part, float) for part in (w, *(means @ w))))
        return cls(best, -q * float(apart @ w), hessian, means, q)

    def gap(self, x: Score) -> jax.Array:
        """The value above the minimum, without a difference of nearly equal numbers."""
        hessian, means, best = (jnp.asarray(part, x.w.dtype) for part in (self.hessian, self.means, self.minimizer.w))
        apart, offsets = x.w - best, jnp.stack([x.a, x.b]) - means @ x.w
        return 0.5 * apart @ hessian @ apart + self.weight * offsets @ offsets


def imbalanced_blobs(
    train: int = 5000,
    valid: int = 2000,
    test: int = 4000,
    *,
    inputs: int = 20,
    share: float = 0.1,
    distance: float = 1.5,
    seed: int = 0,
) -> tuple[Labeled, Labeled, Labeled]:
    """Rows of two Gaussian clouds, few of which are positive.

    Parameters
    ----------
    train, valid, test : int
        The rows of each part.
    inputs : int, default 20
        The features of a row. The spread of both clouds runs from 0.5 to 1.5 along the axes.
    share : float, default 0.1
        The share of positive rows in each part.
    distance : float, default 1.5
        The distance of the centers.
    seed : int, default 0
        Draws the rows.

    Returns
    -------
    tuple of pairs
        Features and labels of the three parts.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share!r}")
    random = np.random.default_rng(seed)
    toward = random.normal(size=inputs)
    toward *= distance / np.linalg.norm(toward)
    spread = np.linspace(0.5, 1.5, inputs)

    def part(n: int) -> Labeled:
        labels = random.permutation((np.arange(n) < round(share * n)).astype(np.int32))
        return jnp.asarray(labels[:, None] * toward + spread * random.normal(size=(n, inputs)), float), labels

    return part(train), part(valid), part(test)


def _check_labeled(name: str, rows: Any, labels: Any) -> None:
    if np.ndim(rows) != 2 or np.shape(labels) != np.shape(rows)[:1]:
        raise ValueError(
            f"{name} must be features (n, inputs) and labels (n,), got shapes {np.shape(rows)} and {np.shape(labels)}"
        )
    found = np.unique(np.asarray(labels))
    if not np.array_equal(found, [0, 1]):
        raise ValueError(f"{name} must have labels 0 and 1, both of them, got {found[:8].tolist()}")
