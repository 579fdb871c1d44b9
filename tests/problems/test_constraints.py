"""Where variables may lie: the sets in closed form, after every step of every method, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import problems
import wior
from methods import CASE_OF, CLASSES, made
from problems import flat
from runs import enable_x64
from wior import constraints
from wior.orders import Incremental

STEPS = 7


@pytest.fixture(autouse=True)
def _in_float64():
    with enable_x64(True):
        yield


def case_of(kind, **rules):
    case = CASE_OF[kind.solves]()
    problem = (
        type(case.problem)(
            *(getattr(case.problem, name) for name in (*case.problem._losses[:2], *case.problem._data)), **rules
        )
        if kind.solves is not wior.Minimax
        else wior.Minimax(case.problem.objective, case.problem.data, **rules)
    )
    if kind.solves is wior.ConditionalBilevel:
        p = case.problem
        problem = wior.ConditionalBilevel(p.outer, p.inner, p.outer_data, p.inner_data, p.counts, **rules)
    return problem, case.x0, case.y0, (2, 3) if kind.fixed_batches else case.batch_size


def ran(kind, algorithm, rules, start=None, **options):
    problem, x, y, batch_size = case_of(kind, **rules)
    options = {"batch_size": batch_size, "steps": STEPS, "record_every": STEPS, "order": Incremental()} | options
    x = x if start is None else start
    return wior.solve(problem, algorithm, x, y, **options)


def test_sets_in_closed_form():
    point = {"a": jnp.array([3.0, -1.0]), "b": jnp.array(0.5)}
    assert flat(constraints.box(-0.5, 2.0)(point)).tolist() == [2.0, -0.5, 0.5]
    assert flat(constraints.non_negative()(point)).tolist() == [3.0, 0.0, 0.5]
    np.testing.assert_allclose(flat(constraints.ball(1.0)(point)), np.array([3, -1, 0.5]) / np.sqrt(10.25), rtol=1e-12)
    np.testing.assert_allclose(flat(constraints.simplex()(point)), [1.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(flat(constraints.simplex(4.0)(point)), [3.25, 0.0, 0.75], atol=1e-12)
    assert flat(constraints.l1(2.0).function(point, 0.5)).tolist() == [2.0, 0.0, 0.0]
    assert flat(constraints.l1(0.5).function(point, 0.5)).tolist() == [2.75, -0.75, 0.25]
    for name in constraints.KNOWN:
        there = constraints.Projection(name, (-1.0, 1.0) if name == "box" else ())
        once = there(point)
        np.testing.assert_allclose(flat(there(once)), flat(once), atol=1e-6, err_msg=name)
        assert [leaf.dtype for leaf in jax.tree.leaves(once)] == [leaf.dtype for leaf in jax.tree.leaves(point)]


def test_constraints_are_values():
    assert constraints.box(0, 1) == constraints.Projection("box", (0, 1))
    assert constraints.Projection("ball", (2.0,)) == constraints.ball(2.0)
    assert constraints.l1(0.1) == constraints.l1(0.1)


FIRST = ("WiORBO", "AmIGO", "WiORMinimax", "WiORCBO", "F2SA", "BOME", "SUSTAIN")
in_turn = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind.__name__ in FIRST else [pytest.mark.slow]) for kind in CLASSES],
    ids=lambda kind: kind.__name__,
)


@in_turn
def test_the_whole_space_changes_no_number_and_a_box_holds_what_moves(kind):
    plain = ran(kind, made(kind), {})
    whole = {"project_x": lambda x: x} | ({"project_y": lambda y: y} if "y" in kind.moved() else {})
    found = ran(kind, made(kind), whole)
    np.testing.assert_allclose(flat((found.x, found.y)), flat((plain.x, plain.y)), rtol=1e-13, atol=1e-14)
    assert found.history["backward_passes"].tolist() == plain.history["backward_passes"].tolist()
    held = ran(kind, made(kind), {"project_x": ("box", -0.3, 0.3)})
    assert float(jnp.abs(flat(held.x)).max()) <= 0.3
    assert np.abs(flat(plain.x)).max() > 0.3


@pytest.mark.parametrize("kind", [wior.WiORBO, wior.baselines.AmIGO, wior.baselines.F2SA, wior.WiORMinimax])
def test_inner_variables_stay_where_they_may_in_every_inner_step(kind):
    found = ran(kind, made(kind), {"project_y": constraints.box(-0.2, 0.2)})
    assert float(jnp.abs(flat(found.y)).max()) <= 0.2
    if hasattr(found.state, "z"):
        assert float(jnp.abs(flat(found.state.z)).max()) <= 0.2


def test_a_loop_of_inner_steps_projects_each_of_them():
    problem, _, x, y, (outer, inner) = problems.bilevel()
    radius = 0.5
    held = wior.Bilevel(
        problem.outer, problem.inner, problem.outer_data, problem.inner_data, project_y=constraints.ball(radius)
    )
    method = wior.baselines.AmIGO(0.05, 0.1, 0.1, inner_steps=3, adjoint_steps=1)
    found = wior.solve(held, method, x, y, batch_size=(outer, inner), steps=1, order=Incremental())
    for number in range(3):
        zeta = jax.tree.map(
            lambda leaf, n=number: leaf[(np.arange(inner) + inner * n) % problems.N], problem.inner_data
        )
        y = jax.tree.map(lambda v, d: v - 0.1 * d, y, jax.grad(problem.inner, 1)(x, y, zeta))
        norm = jnp.linalg.norm(flat(y))
        y = jax.tree.map(lambda v, n=norm: v * jnp.minimum(1.0, radius / n), y)
    np.testing.assert_allclose(flat(found.y), flat(y), rtol=1e-11)


def test_rows_of_a_batch_are_projected_and_no_others():
    problem, _, x, y, _ = problems.bilevel_per_example()
    x = {**x, "rows": wior.PerExample(jnp.full(problems.N, 2.0))}
    held = wior.Bilevel(
        problem.outer, problem.inner, problem.outer_data, problem.inner_data,
        project_x=lambda x: {**x, "rows": jnp.clip(x["rows"], 0.0, 1.0)},
    )  # fmt: skip
    found = wior.solve(held, wior.WiORBO(0.05, 0.1, 0.1), x, y, batch_size=(2, 4), steps=1, order=Incremental())
    rows = np.asarray(found.x["rows"].rows)
    assert (rows[:4] <= 1.0).all()
    assert (rows[4:] == 2.0).all()
    assert float(jnp.abs(flat(found.x["shared"]) - flat(x["shared"])).max()) > 0


def test_raw_weights_in_the_unit_interval_clean_data():
    """The paper's x as it is written: a weight in [0, 1] for each example, and none of a program's making."""
    rng = np.random.default_rng(0)
    features, right = rng.normal(size=(60, 3)), np.array([1.0, -2.0, 0.5])
    targets = features @ right
    targets[:20] *= -1  # these are wrong
    loss = lambda y, rows: (rows[0] @ y - rows[1]) ** 2
    outer = lambda x, y, rows: jnp.mean(loss(y, rows))
    inner = lambda x, y, rows: jnp.mean(x * loss(y, rows)) + 1e-2 * jnp.sum(y**2)
    trusted = rng.normal(size=(30, 3))
    problem = wior.Bilevel(outer, inner, (trusted, trusted @ right), (features, targets), project_x=("box", 0.0, 1.0))
    x0 = wior.PerExample(jnp.full(60, 0.5))
    found = wior.solve(problem, wior.WiORBO(0.1, 0.05, 0.05), x0, jnp.zeros(3), batch_size=(10, 10), epochs=300)
    weights = np.asarray(found.x.rows)
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert weights[:20].mean() < 0.2 < 0.7 < weights[20:].mean()


def test_a_proximal_step_is_that_of_the_step_size():
    problem, _, x, y, (outer, inner) = problems.bilevel()
    held = wior.Bilevel(
        problem.outer, problem.inner, problem.outer_data, problem.inner_data, project_x=constraints.l1(0.3)
    )
    rate = lambda step: 0.05 / (1 + step)
    plain = wior.Bilevel(problem.outer, problem.inner, problem.outer_data, problem.inner_data)
    method = wior.WiORBO(rate, 0.1, 0.1)
    for steps, here in ((1, 0), (2, 1)):
        found = wior.solve(held, method, x, y, batch_size=(outer, inner), steps=steps, order=Incremental())
        if steps == 1:
            moved = wior.solve(plain, method, x, y, batch_size=(outer, inner), steps=1, order=Incremental())
            bound = 0.3 * rate(here)
            expected = np.sign(flat(moved.x)) * np.maximum(np.abs(flat(moved.x)) - bound, 0)
            np.testing.assert_allclose(flat(found.x), expected, rtol=1e-12)
    sparse = wior.Bilevel(
        problem.outer, problem.inner, problem.outer_data, problem.inner_data, project_x=constraints.l1(5.0)
    )
    found = wior.solve(sparse, wior.WiORBO(0.05, 0.1, 0.1), x, y, batch_size=(outer, inner), steps=60)
    assert (np.asarray(flat(found.x)) == 0).all()


def test_an_optimizer_is_projected_after_its_step():
    found = ran(wior.WiORBO, wior.WiORBO(optax.adam(0.5), 0.1, 0.1), {"project_x": "simplex"})
    np.testing.assert_allclose(float(flat(found.x).sum()), 1.0, rtol=1e-6)
    assert float(flat(found.x).min()) >= 0


def test_a_problem_restated_keeps_its_constraints():
    found = ran(
        wior.WiORMinimax, wior.WiORMinimax(0.05, 0.1), {"project_x": ("box", -0.1, 0.1), "project_y": ("ball", 0.2)}
    )
    problem, x, y, batch_size = case_of(wior.WiORMinimax, project_x=("box", -0.1, 0.1), project_y=("ball", 0.2))
    general = wior.solve(problem, wior.WiORBO(0.05, 0.1, 0.1), x, y, batch_size=batch_size, steps=STEPS)
    for one in (found, general):
        assert float(jnp.abs(flat(one.x)).max()) <= 0.1
        assert float(jnp.linalg.norm(flat(one.y))) <= 0.2 + 1e-9


def test_stationarity_is_projected():
    """h(x) = ½ (x − 3)² held in [0, 1]: at x = 1 no step helps, though the gradient is −2."""
    outer = lambda x, y, batch: 0.5 * jnp.mean((y - 3.0) ** 2)
    inner = lambda x, y, batch: 0.5 * jnp.mean((y - x) ** 2)
    rows = np.zeros(4)
    for x, expected in ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0)):
        held = wior.Bilevel(outer, inner, rows, rows, project_x=("box", 0.0, 1.0))
        found = wior.hypergradient(held, jnp.array(x), jnp.zeros(()))
        assert float(found.gradient) == pytest.approx(x - 3.0)
        assert float(found.stationarity) == pytest.approx(expected, abs=1e-9)
        assert float(wior.hypergradient(wior.Bilevel(outer, inner, rows, rows), jnp.array(x), jnp.zeros(())).stationarity
                     ) == pytest.approx(3.0 - x)  # fmt: skip
    sparse = wior.Bilevel(outer, inner, rows, rows, project_x=constraints.l1(2.5))
    assert float(wior.hypergradient(sparse, jnp.array(0.5), jnp.zeros(())).stationarity) == pytest.approx(0, abs=1e-9)
    outside = wior.Bilevel(outer, inner, rows, rows, project_y=("box", 0.0, 0.1))
    with pytest.raises(RuntimeError, match=r"^the inner solution lies outside of project_y, at a distance of 0\.4"):
        wior.hypergradient(outside, jnp.array(0.5), jnp.zeros(()))


def test_another_constraint_is_another_run_and_a_function_is_read_anew(tmp_path):
    global bound
    ran(wior.WiORBO, made(wior.WiORBO), {"project_x": ("box", -1.0, 1.0)}, checkpoint=tmp_path / "run")
    with pytest.raises(wior.AnotherRunError, match="project_x"):
        ran(wior.WiORBO, made(wior.WiORBO), {"project_x": ("box", -2.0, 1.0)}, checkpoint=tmp_path / "run")
    rule = {"project_x": lambda x: jax.tree.map(lambda leaf: jnp.clip(leaf, -bound, bound), x)}
    for bound in (0.3, 0.1):
        assert float(jnp.abs(flat(ran(wior.WiORBO, made(wior.WiORBO), rule).x)).max()) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("cube", "project_x: there is no projection 'cube'; there are non_negative, box,"),
        (("box", 0.0), "project_x: projection 'box' takes lower and upper, got (0.0,)"),
        (("box", 1.0, 0.0), "project_x: projection 'box' needs lower ≤ upper, got 1.0 and 0.0"),
        (("ball", -1.0), "project_x: the scale of projection 'l2_ball' must be a positive"),
        (("non_negative", 1.0), "project_x: projection 'non_negative' takes no numbers, got (1.0,)"),
        ((0.0, 1.0), "project_x, a tuple, must be a name and numbers, such as ('box', 0.0, 1.0); got (0.0, 1.0)"),
        (3.0, "project_x must be a function of the variable that returns one like it, a constraint of"),
    ],
)
def test_a_wrong_constraint_is_named(value, message):
    with pytest.raises((TypeError, ValueError)) as error:
        case_of(wior.WiORBO, project_x=value)
    assert str(error.value).startswith(message)


def test_what_cannot_be_held_is_refused_before_anything_is_compiled():
    with pytest.raises(
        ValueError, match=r"^project_x\(x0\) must have the structure and shapes of x0: found float64\[2\]"
    ):
        ran(wior.WiORBO, made(wior.WiORBO), {"project_x": lambda x: jnp.zeros(2)})
    with pytest.raises(ValueError, match=r"^Reverse cannot keep y in project_y: it does not move y by plain steps"):
        ran(wior.baselines.Reverse, made(wior.baselines.Reverse), {"project_y": ("box", 0.0, 1.0)})
    with pytest.raises(TypeError, match=r"^project_x is a proximal step, which needs to know how long a step is"):
        ran(wior.WiORBO, made(wior.WiORBO, outer_lr=optax.adam(0.1)), {"project_x": constraints.l1(0.1)})


def test_check_runs_inside_of_the_constraints():
    """Outside of the box the outer loss is not a number."""
    outer = lambda x, y, batch: jnp.mean((y - 3.0) ** 2) + jnp.log(1.05 - x)
    inner = lambda x, y, batch: jnp.mean((y - x - batch) ** 2)
    rows = np.linspace(-1, 1, 32)
    held = wior.Bilevel(outer, inner, rows, rows, project_x=("box", 0.0, 1.0))
    report = wior.check(held, jnp.array(0.5), jnp.zeros(()), batch_size=8)
    assert report.ok
    assert report.step_sizes["outer_lr"] > 0


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            lambda x: np.clip(x, 0.0, 1.0),
            r"project_x asks for the values of its variable \(TracerArrayConversionError\)",
        ),
        (lambda x: x if x.sum() > 0 else -x, r"project_x asks for the values of its variable \(TracerBoolConversion"),
    ],
)
def test_a_function_that_cannot_be_compiled_is_refused(rule, message):
    problem = wior.Bilevel(
        lambda x, y, b: jnp.mean((y - b) ** 2), lambda x, y, b: jnp.mean((y - x - b) ** 2), np.arange(8.0),
        np.arange(8.0), project_x=rule,
    )  # fmt: skip
    with pytest.raises(TypeError, match=message):
        wior.solve(problem, wior.WiORBO(0.1, 0.1, 0.1), jnp.zeros(()), jnp.zeros(()), batch_size=4, steps=2)


def test_what_is_no_constraint():
    with pytest.raises(TypeError, match=r"projection 'box' takes two numbers, got \(array"):
        constraints.named("project_x", ("box", np.zeros(3), np.ones(3)))
    with pytest.raises(TypeError, match=r"in a tuple with its numbers, of .* got \['box', 0, 1\]"):
        constraints.named("project_x", ["box", 0, 1])
    with pytest.raises(TypeError, match="project_x must be a function of the variable"):
        constraints.named("project_x", constraints.Proximal)
    with pytest.raises(TypeError, match=r"Proximal.function is called as Proximal.function\(variable, step_size\)"):
        constraints.Proximal(lambda v: v)
