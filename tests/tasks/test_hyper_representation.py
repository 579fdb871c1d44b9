"""Hyper-representation: the tasks that are drawn, the network, the metrics, and what one outer step costs in passes of
the network.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior import baselines
from wior.algorithms.algorithm import Draws
from wior.data import ImageClasses, with_rotations
from wior.orders import Incremental, RandomReshuffling
from wior.running import visits
from wior.running.draws import any_draws
from wior.running.plan import make_plan
from wior.tasks import networks
from wior.tasks.hyper_representation import Backbone, Shots, classifier_loss, draw_episodes, hyper_representation

WAYS, SHOTS, QUERIES, FILTERS, LAYERS = 3, 2, 4, 3, 4
INNER_LR = 0.4


def images(classes, per_class=7, size=17, channels=1, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (classes, per_class, size, size, channels)).astype(np.uint8)


@functools.cache
def small(**changes):
    options = {
        "name": "small",
        "ways": WAYS,
        "shots": SHOTS,
        "queries": QUERIES,
        "inner_lr": INNER_LR,
        "outer_lr": (0.1, 1.0),
        "adjoint_lr": (0.1, 0.2, 0.4),
        "filters": FILTERS,
        "tasks": 6,
        "held_out_tasks": 3,
        "batch": 2,
        "steps": 4,
    }
    return hyper_representation(images(5), images(4, seed=1), images(3, seed=2), **(options | changes))


# episodes


@pytest.mark.parametrize(("classes", "per_class", "ways"), [(9, 6, 4), (4, 6, 4), (9, 8, 1)])
def test_an_episode_has_different_classes_and_different_images(classes, per_class, ways):
    shots, queries, tasks = 2, 4, 50
    drawn = draw_episodes(np.random.default_rng(3), classes, per_class, ways, shots, queries, tasks)
    assert drawn.support.places.shape == drawn.support.labels.shape == (tasks, ways * shots)
    assert drawn.query.places.shape == drawn.query.labels.shape == (tasks, ways * queries)
    for table in jax.tree.leaves(drawn):
        assert table.dtype == np.int32
    for support, support_labels, query, query_labels in zip(*drawn.support, *drawn.query, strict=True):
        places, labels = np.concatenate([support, query]), np.concatenate([support_labels, query_labels])
        assert len(set(places)) == len(places)  # no image twice, so none in both sets
        assert 0 <= places.min() <= places.max() < classes * per_class
        own_class = [set(places[labels == label] // per_class) for label in range(ways)]
        assert all(len(found) == 1 for found in own_class)  # a label is one class
        assert len(set.union(*own_class)) == ways  # and another label another one
        assert [np.sum(support_labels == label) for label in range(ways)] == [shots] * ways
        assert [np.sum(query_labels == label) for label in range(ways)] == [queries] * ways
    if ways < classes:
        assert len({tuple(row) for row in drawn.support.places}) > 40
    assert set(np.concatenate([drawn.support.places, drawn.query.places], 1).ravel()) == set(range(classes * per_class))


def test_episodes_follow_from_the_seed():
    draw = lambda seed: draw_episodes(np.random.default_rng(seed), 9, 6, 4, 1, 2, 20)
    jax.tree.map(np.testing.assert_array_equal, draw(0), draw(0))
    assert (draw(0).support.places != draw(1).support.places).any()


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match="ways must be at most the 3 classes there are, got 4"):
        draw_episodes(np.random.default_rng(0), 3, 6, 4, 1, 2, 5)
    with pytest.raises(ValueError, match=r"shots \+ queries must be at most the 6 images of a class, got 2 \+ 5"):
        draw_episodes(np.random.default_rng(0), 5, 6, 4, 2, 5, 5)


def test_rotations_are_classes_of_their_own():
    plain = ImageClasses(images(3), ("a", "b", "c"))
    turned = with_rotations(plain)
    assert len(turned.images) == len(set(turned.names)) == 12
    assert len({part.tobytes() for part in turned.images}) == 12
    for quarters in range(4):
        np.testing.assert_array_equal(turned.images[4 + quarters], np.rot90(plain.images[1], quarters, (1, 2)))


# the network


@pytest.mark.parametrize("size", [(9, 7), (1, 2), (5, 4)])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_product_with_patches_is_a_convolution(size, stride):
    random = np.random.default_rng(0)
    pixels, kernel = jnp.asarray(random.normal(size=(2, *size, 3))), jnp.asarray(random.normal(size=(3, 3, 3, 4)))
    found = networks._patches(pixels, stride) @ kernel.reshape(-1, 4)
    expected = convolved(pixels, kernel, stride)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def convolved(pixels, kernel, stride):
    return jax.lax.conv_general_dilated(
        pixels, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def naive_features(x, pixels, strided, length):
    """One image at a time, in numpy but for the convolution."""
    found = []
    for image in np.asarray(pixels, float) / 255:
        hidden = image
        for layer in x:
            hidden = np.array(convolved(hidden[None], layer.kernel, 2 if strided else 1)[0])
            hidden = (hidden - hidden.mean()) / np.sqrt(hidden.var() + 1e-5)
            hidden = np.maximum(hidden * np.asarray(layer.scale) + np.asarray(layer.shift), 0)
            if not strided:
                rows, columns = hidden.shape[0] // 2, hidden.shape[1] // 2
                hidden = np.stack(
                    [
                        [hidden[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((0, 1)) for j in range(columns)]
                        for i in range(rows)
                    ]
                )
        row = hidden.mean((0, 1)) if strided else hidden.reshape(-1)
        found.append(row if length is None else length * row / np.sqrt(np.sum(row**2) + 1e-6))
    return np.stack(found)


def network(layers=LAYERS, channels=1, seed=1):
    """Numbers that are not those of the start, where scales are one and shifts zero."""
    made = networks.convolutions_init(jax.random.key(seed), channels, FILTERS, layers)
    random = np.random.default_rng(seed)
    return tuple(
        layer._replace(
            scale=layer.scale + 0.3 * random.normal(size=FILTERS), shift=layer.shift + 0.3 * random.normal(size=FILTERS)
        )
        for layer in made
    )


@pytest.mark.parametrize(("strided", "length", "layers"), [(True, 4.0, 2), (True, None, 2), (False, 25.0, 2)])
def test_features_are_those_of_a_naive_network(strided, length, layers):
    pixels = images(2, 3, size=9, channels=2).reshape(-1, 9, 9, 2)
    x = network(layers, 2)
    backbone = Backbone(jnp.asarray(pixels), strided, length)
    places = jnp.array([[4, 0], [5, 4]])
    found = jax.jit(lambda backbone, x: backbone(x, Shots(places, places)))(backbone, x)
    expected = naive_features(x, pixels[np.ravel(places)], strided, length)
    np.testing.assert_allclose(found.reshape(4, -1), expected, rtol=1e-10, atol=1e-12)
    if length is not None:
        np.testing.assert_allclose(np.linalg.norm(found, axis=-1), length, rtol=1e-4)


def test_a_network_starts_with_the_scale_asked_for():
    x = networks.convolutions_init(jax.random.key(0), 3, 64)
    assert [layer.kernel.shape for layer in x] == [(3, 3, 3, 64), *[(3, 3, 64, 64)] * 3]
    np.testing.assert_allclose(
        [layer.kernel.std() for layer in x], [(2 / 27) ** 0.5, *[(2 / 576) ** 0.5] * 3], rtol=0.1
    )
    assert all((layer.scale == 1).all() and (layer.shift == 0).all() for layer in x)


# the task


def test_the_task_is_what_it_says():
    task = small()
    assert task.batch_size == (2, WAYS * SHOTS)
    assert task.grid == {"outer_lr": (0.1, 1.0), "inner_lr": (INNER_LR,), "adjoint_lr": (0.1, 0.2, 0.4)}
    assert task.problem.sizes() == {"outer": 6, "inner": WAYS * SHOTS}
    assert task.facts["classes"] == {"train": 5, "valid": 4, "test": 3}
    assert task.y0.weights.shape == (FILTERS, WAYS)
    task.problem.check(task.x0, task.y0)


def test_validation_and_test_tasks_are_of_their_own_images():
    metrics = small().metrics
    held_out = np.concatenate([images(4, seed=1).reshape(-1, 17, 17, 1), images(3, seed=2).reshape(-1, 17, 17, 1)])
    np.testing.assert_array_equal(metrics.backbone.images, held_out)
    for part in (metrics.episodes.support.places, metrics.episodes.query.places):
        assert part.shape[0] == 6
        assert (part[:3] < 4 * 7).all()
        assert ((part[3:] >= 4 * 7) & (part[3:] < 7 * 7)).all()


@pytest.mark.parametrize(
    "bad", [images(5).astype(float), images(5)[0], images(5, size=8), images(5, channels=3)], ids=["type", "axes", "size", "channels"]
)  # fmt: skip
def test_images_of_another_make_are_refused(bad):
    with pytest.raises(
        ValueError, match=r"valid must be images \(classes, per_class, height, width, channels\) of uint8"
    ):
        hyper_representation(
            images(5), bad, images(5), name="", ways=2, shots=1, inner_lr=0.1, outer_lr=(1,), adjoint_lr=(1,), queries=2
        )


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_metrics_are_those_of_a_naive_twin():
    """A classifier for each held-out task, by gradient steps written out."""
    task, x = small(), network()
    random = np.random.default_rng(4)
    y0 = networks.Layer(jnp.asarray(random.normal(size=(FILTERS, WAYS))), jnp.asarray(random.normal(size=WAYS)))
    found = jax.jit(lambda metrics, x, y: metrics(x, y))(task.metrics, x, y0)
    episodes, pixels = jax.tree.map(np.asarray, task.metrics.episodes), np.asarray(task.metrics.backbone.images)
    losses, hits = [], []
    for support, labels, query, truth in zip(*episodes.support, *episodes.query, strict=True):
        features = naive_features(x, pixels[support], True, 4.0)
        weights, bias = np.array(y0.weights), np.array(y0.bias)
        for _ in range(4):
            error = (softmax(features @ weights + bias) - np.eye(WAYS)[labels]) / len(labels)
            weights, bias = weights - INNER_LR * features.T @ error, bias - INNER_LR * error.sum(0)
        logits = naive_features(x, pixels[query], True, 4.0) @ weights + bias
        losses.append(-np.mean(np.log(softmax(logits)[np.arange(len(truth)), truth])))
        hits.append(np.mean(logits.argmax(1) == truth))
    expected = {
        "valid_loss": np.mean(losses[:3]),
        "loss": np.mean(losses[3:]),
        "valid_accuracy": np.mean(hits[:3]),
        "accuracy": np.mean(hits[3:]),
    }
    assert set(found) == set(expected) == set(task.measures)
    for name, value in expected.items():
        exact = 1e-6 if "accuracy" in name else 1e-10  # a share of hits is in float32
        np.testing.assert_allclose(found[name], value, rtol=exact, err_msg=name)


# one pass of the network in each step


class Counted:
    """A function, and how often it was called: while a step is traced, how often it is in the program."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


def traced_step(algorithm, problem, task):
    """One step of a method on batches of no meaning, as a jaxpr."""
    orders = (RandomReshuffling(), RandomReshuffling())
    plan = make_plan(problem, algorithm, orders, task.batch_size, 10)

    def step(problem, x, y):
        state = algorithm.init(problem, x, y)
        return algorithm.step(problem, state, any_draws(plan, problem, algorithm))[0]

    return jax.make_jaxpr(step)(problem, task.x0, task.y0)


def bodies(params):
    """The programs inside an operation: bodies of loops, branches."""
    flat = [one for value in params.values() for one in (value if isinstance(value, (tuple, list)) else (value,))]
    return [getattr(one, "jaxpr", one) for one in flat if hasattr(one, "jaxpr") or hasattr(one, "eqns")]


def products_of_images(jaxpr, looped=False):
    """The products with patches of images, or with kernels, in a program: outside of loops, and inside."""
    outside = inside = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            is_image = any(
                {9, 9 * FILTERS} & set(variable.aval.shape) for variable in equation.invars
            )  # of 3 × 3 patches
            outside, inside = outside + (is_image and not looped), inside + (is_image and looped)
        for below in bodies(equation.params):
            counts = products_of_images(below, looped or equation.primitive.name in ("scan", "while"))
            outside, inside = outside + counts[0], inside + counts[1]
    return outside, inside


STEPS = {
    "WiORCBO": (lambda n: wior.WiORCBO(0.1, 0.4, 0.2, inner_epochs=n)),
    "DLSGD": (lambda n: baselines.DLSGD(0.1, 0.4, 0.2, inner_steps=n)),
    "RTMLMC": (lambda n: baselines.RTMLMC(0.1, 0.4, 0.2, levels=n)),
}


@pytest.mark.parametrize("inner_steps", [1, 4])
@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_one_pass_of_the_network_and_one_back(name, inner_steps):
    task = small()
    problem = dataclasses.replace(
        task.problem,
        represent=Counted(task.problem.represent),
        represent_outer=Counted(task.problem.represent_outer),
    )
    traced = traced_step(STEPS[name](inner_steps), problem, task)
    assert (problem.represent.calls, problem.represent_outer.calls) == (1, 1)
    # forward every layer, back to every kernel and to the input of every layer but the first; support and query images
    assert products_of_images(traced.jaxpr) == (2 * (LAYERS + LAYERS + LAYERS - 1), 0)


def test_without_a_representation_the_network_is_in_the_loop():
    """And the count above would see it."""
    task = small()
    _, inside = products_of_images(traced_step(STEPS["WiORCBO"](4), plain(task.problem), task).jaxpr)
    assert inside > 0


def plain(problem):
    """The same losses as functions of x."""
    represent = problem.represent

    def loss(x, y, rows):
        return classifier_loss(represent(x, rows), y, rows)

    return wior.ConditionalBilevel(loss, loss, problem.outer_data, problem.inner_data)


@functools.partial(jax.jit, static_argnums=3)
def moved(problem, x, y, algorithm):
    """x after one step in which inner batches straddle two passes."""
    random = np.random.default_rng(6)
    passes = random.permuted(np.tile(np.arange(WAYS * SHOTS), (2, 2, 1)), axis=-1)
    laid = visits.in_batches(jnp.asarray(passes), jnp.full(2, WAYS * SHOTS), 4, False)
    draws = Draws((jnp.array([[4, 1]]),), (), laid, jnp.uint32(0), jnp.asarray(False))
    return algorithm.step(problem, algorithm.init(problem, x, y), draws)[0].x


def test_the_direction_through_the_representation_is_that_of_the_losses():
    task = small()
    random = np.random.default_rng(5)
    x, y = network(1), jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), task.y0)
    algorithm = wior.WiORCBO(0.7, 0.4, 0.2, inner_epochs=2)
    direct, represented = moved(plain(task.problem), x, y, algorithm), moved(task.problem, x, y, algorithm)
    for before, one, other in zip(*map(jax.tree.leaves, (x, direct, represented)), strict=True):
        np.testing.assert_allclose(other - before, one - before, rtol=1e-10, atol=1e-12)
        assert np.abs(one - before).max() > 1e-4


def test_images_are_arguments_of_the_program():
    task = small()
    leaves = jax.tree.leaves(task.problem)
    assert [leaf for leaf in leaves if leaf is task.problem.represent.images]
    assert jax.tree.structure(task.problem) == jax.tree.structure(
        dataclasses.replace(
            task.problem,
            represent=dataclasses.replace(task.problem.represent, images=task.problem.represent.images + 1),
        )
    )
    traced = traced_step(STEPS["WiORCBO"](1), task.problem, task)
    assert max([np.size(constant) for constant in traced.consts], default=0) < 100
    other = jax.make_jaxpr(lambda metrics, x, y: metrics(x, y))(task.metrics, task.x0, task.y0)
    assert max([np.size(constant) for constant in other.consts], default=0) < 100


@pytest.mark.slow
def test_the_task_runs_and_the_start_of_the_classifiers_stays():
    task = small()
    algorithm = wior.WiORCBO(0.7, 0.4, 0.2)
    options = {"order": Incremental(), "batch_size": task.batch_size, "steps": 4, "record_every": 4}
    result = wior.solve(task.problem, algorithm, network(1), task.y0, metrics=task.metrics, **options)
    assert list(result.history["step"]) == [0, 4]
    for name in task.measures:
        assert np.isfinite(result.history[name]).all()
    np.testing.assert_array_equal(result.y.weights, 0)
