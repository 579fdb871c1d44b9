"""Hyper-representation: a backbone x such that a linear classifier y is learned quickly from few examples.

    min over x of  mean over tasks of CE(features(x, query images), y_x; labels)
    where y_x minimizes  CE(features(x, support images), y; labels) over the support set of the task

A task has `ways` classes drawn at random, and of each class `shots` images to learn from and `queries` others to judge
by. Tasks are tables of places in one array of images: no image is stored twice, and a step gathers the images of its
own tasks.

Li, Huang, NeurIPS 2024, appendix A. The cross entropy of a linear classifier is convex, not strongly: as there, y takes
a fixed number of gradient steps from zero.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wior import tree
from wior.problems import ConditionalBilevel
from wior.tasks.networks import Convolution, Layer, convolutions, convolutions_init, label_losses
from wior.tasks.task import Measure, Task

Tree = Any

QUERIES = 15
INNER_STEPS = 4


class Shots(NamedTuple):
    """Images by their places in the array, and their labels within a task: (..., rows)."""

    places: Any
    labels: Any


class Episodes(NamedTuple):
    """Few-shot tasks: support sets (tasks, ways · shots) and query sets (tasks, ways · queries)."""

    support: Shots
    query: Shots


def draw_episodes(
    rng: np.random.Generator, classes: int, per_class: int, ways: int, shots: int, queries: int, tasks: int
) -> Episodes:
    """Few-shot tasks over images (classes, per_class) that lie in one array.

    Each task draws its classes at random, and its images of each class, without repetition.
    """
    if classes < ways:
        raise ValueError(f"ways must be at most the {classes} classes there are, got {ways}")
    if per_class < shots + queries:
        raise ValueError(f"shots + queries must be at most the {per_class} images of a class, got {shots} + {queries}")
    chosen = np.stack([rng.permutation(classes)[:ways] for _ in range(tasks)])  # (tasks, ways)
    images = rng.random((tasks, ways, per_class)).argsort(-1)[..., : shots + queries]
    places = chosen[..., None] * per_class + images
    labels = np.broadcast_to(np.arange(ways)[:, None], places.shape)

    def part(of: slice) -> Shots:
        return Shots(*(table[..., of].reshape(tasks, -1).astype(np.int32) for table in (places, labels)))

    return Episodes(part(slice(shots)), part(slice(shots, None)))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["images"], meta_fields=["strided", "length"])
@dataclasses.dataclass(frozen=True, eq=False)
class Backbone:
    """Features of the images that a batch points to: (..., features) for places (...)."""

    images: jax.Array  # (images, height, width, channels) of uint8
    strided: bool
    length: float | None  # the norm of every feature vector; None leaves it as it is

    def __call__(self, x: Sequence[Convolution], rows: Shots) -> jax.Array:
        pixels = self.images[rows.places.reshape(-1)].astype(x[0].kernel.dtype) / 255
        features = convolutions(x, pixels, self.strided)
        if self.length is not None:
            features *= self.length * jax.lax.rsqrt(jnp.sum(features**2, -1, keepdims=True) + 1e-6)
        return features.reshape(*rows.places.shape, -1)

    def describe(self) -> dict[str, Any]:
        """How it makes features of an image, as JSON."""
        return {
            "halving": "strides of 2, mean of what is left" if self.strided else "maximum over 2 × 2 pixels",
            "normalization": "each image by itself, over pixels and channels",
            "feature_length": self.length,
        }


def classifier_loss(features: jax.Array, y: Layer, rows: Shots) -> jax.Array:
    """f and g: mean cross entropy of the linear classifier y on features (..., features)."""
    return jnp.mean(label_losses(features @ y.weights + y.bias, rows.labels))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["backbone", "episodes"],
    meta_fields=["inner_lr", "inner_steps"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class FewShotMetrics:
    """How well a classifier on the features does on held-out classes.

    The classifier is learned by `inner_steps` steps on the support set.
    """

    backbone: Backbone
    episodes: Episodes  # half of them of classes to choose by, then as many of classes to report
    inner_lr: float
    inner_steps: int

    def __call__(self, x: Tree, y: Layer) -> dict[str, jax.Array]:
        """`valid_accuracy` and `valid_loss` on classes to choose by, `accuracy` and `loss` on classes to report."""
        tasks = len(self.episodes.support.places)
        # some tasks at a time, since the features of all would not fit on a small machine
        at_once = max(size for size in range(1, 33) if tasks % size == 0)
        losses, hits = jax.lax.map(functools.partial(self._judge, x, y), self.episodes, batch_size=at_once)
        (valid_loss, loss), (valid_accuracy, accuracy) = (jnp.mean(each.reshape(2, -1), 1) for each in (losses, hits))
        return {"accuracy": accuracy, "loss": loss, "valid_accuracy": valid_accuracy, "valid_loss": valid_loss}

    def _judge(self, x: Tree, y0: Layer, episode: Episodes) -> tuple[jax.Array, jax.Array]:
        support, query = episode
        # one pass for both sets: every call of the network is compiled by itself
        both = self.backbone(x, jax.tree.map(lambda *parts: jnp.concatenate(parts), support, query))
        features, others = jnp.split(both, [len(support.places)])

        def step(_: Any, y: Layer) -> Layer:
            return tree.axpy(-self.inner_lr, jax.grad(classifier_loss, 1)(features, y, support), y)

        y = jax.lax.fori_loop(0, self.inner_steps, step, y0)
        logits = others @ y.weights + y.bias
        return jnp.mean(label_losses(logits, query.labels)), jnp.mean(jnp.argmax(logits, -1) == query.labels)


MEASURES = {
    "accuracy": Measure("accuracy on held-out classes", largest=True),
    "loss": Measure("loss on held-out classes", log=True),
    "valid_accuracy": Measure("accuracy on validation classes", largest=True),
    "valid_loss": Measure("loss on validation classes", log=True),
}


def hyper_representation(
    train: np.ndarray,
    valid: np.ndarray,
    test: np.ndarray,
    *,
    name: str,
    ways: int,
    shots: int,
    inner_lr: float,
    outer_lr: Sequence[float],
    adjoint_lr: Sequence[float],
    queries: int = QUERIES,
    inner_steps: int = INNER_STEPS,
    filters: int = 64,
    strided: bool = True,
    length: float | None = 4.0,
    tasks: int = 4000,
    held_out_tasks: int = 200,
    batch: int = 16,
    steps: int = 2000,
    seed: int = 0,
) -> Task:
    """The task of learning features from which a linear classifier is learned quickly, on given images.

    Parameters
    ----------
    train, valid, test : numpy.ndarray
        Images (classes, per_class, height, width, channels) of uint8; the three parts have different classes.
    name : str
        The name of the task.
    ways, shots, queries : int
        A few-shot task has `ways` classes, and of each class `shots` images to learn from and `queries` to judge by.
    inner_lr : float
        The length of the gradient steps of the classifier, in a run and when it is judged.
    outer_lr, adjoint_lr : sequence of float
        The step sizes of x and of u to try.
    inner_steps : int
        How many gradient steps the classifier makes, in a run and when it is judged. An inner batch has as many images
        as the support set, so that an order without replacement sees each image once in a step.
    filters : int
        The filters of each convolution.
    strided : bool
        Whether convolutions are strided, as for Omniglot, or followed by a maximum over 2 × 2 pixels.
    length : float or None
        The norm that every feature vector is scaled to, so that the inner problem is L-smooth with L ≤ ½(length² + 1)
        whatever x is. None leaves features unscaled.
    tasks, held_out_tasks : int
        The number of tasks to train on, and of tasks of each kind to judge by.
    batch, steps : int
        The tasks of a batch, and the steps, for a run.
    seed : int, default 0
        Draws the tasks and where x starts.

    Returns
    -------
    Task
        The problem, where to start, metrics and defaults for a run.
    """
    parts = {"train": train, "valid": valid, "test": test}
    _check_images(parts)
    sizes = {"ways": ways, "shots": shots, "queries": queries}
    counts = {"train": tasks, "valid": held_out_tasks, "test": held_out_tasks}
    drawn = _episodes_of_parts(seed, parts, sizes, counts)
    flat = {part: each.reshape(-1, *each.shape[2:]) for part, each in parts.items()}
    held_out = _one_after_the_other(drawn["valid"], drawn["test"], len(flat["valid"]))
    backbone = Backbone(jnp.asarray(flat["train"]), strided, length)
    judged = dataclasses.replace(backbone, images=jnp.asarray(np.concatenate([flat["valid"], flat["test"]])))
    x0 = convolutions_init(jax.random.key(seed), train.shape[-1], filters)
    (features,) = jax.eval_shape(backbone, x0, Shots(jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32))).shape[1:]
    return Task(
        name=name,
        title=f"{ways}-way {shots}-shot",
        problem=_problem(backbone, drawn["train"]),
        x0=x0,
        y0=Layer(jnp.zeros((features, ways)), jnp.zeros(ways)),
        metrics=FewShotMetrics(judged, held_out, inner_lr, inner_steps),
        measures=MEASURES,
        judged_by="valid_accuracy",
        batch_size=(batch, ways * shots),
        steps=steps,
        grid={"outer_lr": tuple(outer_lr), "inner_lr": (inner_lr,), "adjoint_lr": tuple(adjoint_lr)},
        side_by_side=False,
        fixed={"inner_epochs": inner_steps, "inner_steps": inner_steps},
        facts={
            **sizes,
            "classes": {part: len(images) for part, images in parts.items()},
            "image": list(train.shape[2:]),
            "tasks": counts,
            "filters": filters,
            "features": int(features),
            **backbone.describe(),
            "inner_steps": inner_steps,
            "seed": seed,
        },
    )


def _episodes_of_parts(
    seed: int, parts: dict[str, np.ndarray], sizes: dict[str, int], counts: dict[str, int]
) -> dict[str, Episodes]:
    """The few-shot tasks of each part, drawn one part after the other."""
    rng = np.random.default_rng(seed)
    return {
        part: draw_episodes(rng, images.shape[0], images.shape[1], **sizes, tasks=counts[part])
        for part, images in parts.items()
    }


def _problem(backbone: Backbone, episodes: Episodes) -> ConditionalBilevel:
    return ConditionalBilevel(
        classifier_loss, classifier_loss, episodes.query, episodes.support, represent=backbone, represent_outer=backbone
    )


def _one_after_the_other(valid: Any, test: Any, behind: int) -> Any:
    """The tasks of both parts, for one array of images in which those of the test begin at `behind`."""
    shifted = test._replace(
        support=test.support._replace(places=test.support.places + behind),
        query=test.query._replace(places=test.query.places + behind),
    )
    return jax.tree.map(lambda *tables: jnp.asarray(np.concatenate(tables)), valid, shifted)


def _check_images(parts: dict[str, np.ndarray]) -> None:
    train = parts["train"]
    for part, images in parts.items():
        if images.ndim != 5 or images.dtype != np.uint8 or images.shape[2:] != train.shape[2:]:
            raise ValueError(
                f"{part} must be images (classes, per_class, height, width, channels) of uint8, of one size in all "
                f"parts; got {images.dtype} {images.shape}"
            )
