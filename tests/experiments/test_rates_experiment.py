"""The rates experiment: fits recover known powers, and its non-convex problem is what it says."""

import copy
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from runs import enable_x64
from wior.experiments import rates
from wior.experiments.experiment import Options
from wior.tasks.quadratic import quadratic, quadratic_conditional, quadratic_with_waves, with_shared_hessians

X = jnp.array([0.7, -1.3, 0.4])
CALLS_A_STEP = 4
ETAS = 0.01 * 0.5 ** np.arange(5)


def made_up(power, seeds=12, start=1e3, height=1e2):
    """Arrays of runs whose ‖∇h‖² falls as exp(−η·steps) from `start` to `height`·η^power, the latter apart by seed."""
    rng = np.random.default_rng(0)
    arrays = {"etas": ETAS, "curvature": np.zeros((len(ETAS), 2)), "alpha": np.full((2, 3), 2.0)}
    factors = rng.uniform(0.8, 1.2, (len(ETAS), seeds, 1))
    for i, eta in enumerate(ETAS):
        steps = rates.STEPS_BETWEEN_RECORDS * np.arange(int(60 / eta / rates.STEPS_BETWEEN_RECORDS))
        arrays[f"squared_{i}"] = start * np.exp(-eta * steps) + factors[i] * height * eta**power
        arrays[f"within_{i}"] = 3 * factors[i][:, 0] * height * eta ** min(power, 2)  # inside a pass none goes faster
        arrays[f"calls_{i}"] = CALLS_A_STEP * steps
    return arrays


# fits


def test_slopes_leave_out_what_is_not_finite():
    x = np.arange(6.0)
    y = np.stack([2 * x + 1, -x, np.where(x < 2, x, np.nan)])
    y[0, 2], y[1, 5] = np.nan, np.inf
    np.testing.assert_allclose(rates.slopes(x, y), [2, -1, np.nan], rtol=1e-12)


def test_weights_are_those_of_a_bootstrap():
    mixed = rates.weights(7, 50)
    assert mixed.shape == (51, 7)
    np.testing.assert_array_equal(mixed[0], 1 / 7)
    np.testing.assert_allclose(mixed.sum(1), 1)
    np.testing.assert_array_equal(mixed, rates.weights(7, 50))


@pytest.mark.parametrize("power", [1, 2, 3])
def test_the_power_of_the_step_size_is_found_and_lies_in_its_interval(power):
    runs = rates.curves(made_up(power))
    fit = rates.fit_of(rates.step_size_slopes(runs, rates.weights(12)))
    assert abs(fit.value - power) < 0.1
    assert fit.low < power < fit.high
    assert fit.high - fit.low < 0.3


@pytest.mark.parametrize("power", [1, 2, 3])
def test_the_power_of_epsilon_is_that_of_theory(power):
    runs, mixed = rates.curves(made_up(power, start=1e4)), rates.weights(12)
    found = {
        criterion: rates.fit_of(
            rates.powers(rates.EPSILONS, rates.fewest_calls(runs, mixed, rates.EPSILONS, criterion))
        )
        for criterion in rates.CRITERIA
    }
    # calls ~ log(1/ε)/η or 1/(η ε²), where η^power ~ ε²
    assert 2 / power - 0.1 < found["last"].value < 2 / power + 0.35, found
    assert abs(found["mean"].value - 2 - 2 / power) < 0.2, found


def test_first_below_is_the_record_from_which_all_are():
    values = np.array([[9.0, 1, 5, 2, 2, 1], [9.0, 8, 7, 6, 5, 4]])
    np.testing.assert_array_equal(rates.first_below(values, np.array([10, 5.5, 5, 2, 1])), [[0, 1, 3, 5, 6], [0, 4, 5, 6, 6]])  # fmt: skip


def test_calls_to_reach_on_curves_made_by_hand():
    squared = np.array([[16.0, 4, 9, 1, 1, 1, 1, 1, 1]])
    run, one = rates.StepSizeRuns(0.01, squared, np.ones(1), 10 * np.arange(9)), np.ones((1, 1))
    epsilons = np.array([3.5, 3.0, 2.0, 1.5, 1.0])
    np.testing.assert_array_equal(rates.calls_to_reach(run, one, epsilons, "last"), [[10, 30, 30, 30, np.inf]])
    # areas under straight lines 10, 16.5, 21.5, 22.5, 23.5, ...; from the fifth on n + 18.5 after n stretches
    at = [10, 10, 70, 10 * 18.5 / 1.25, np.inf]
    np.testing.assert_allclose(rates.calls_to_reach(run, one, np.array([3.5, 3.3, 2.0, 1.5, 1.0]), "mean"), [at])


def test_epsilons_at_which_the_grid_decides_are_left_out():
    runs = rates.curves(made_up(2))
    one = rates.weights(12, 0)
    calls = rates.fewest_calls(runs, one, rates.EPSILONS, "last")[0]
    each = np.stack([rates.calls_to_reach(run, one, rates.EPSILONS, "last")[0] for run in runs])
    kept = np.isfinite(calls)
    assert kept.any()
    np.testing.assert_array_equal(calls[kept], each.min(0)[kept])
    assert np.all(each.argmin(0)[kept] > 0)
    assert np.all(rates.EPSILONS[kept] ** 2 >= 2 * runs[-1].squared[:, -1].mean())


def test_inside_of_passes_the_power_is_another_one():
    runs, mixed = rates.curves(made_up(3)), rates.weights(12)
    assert rates.fit_of(rates.step_size_slopes(runs, mixed)).value > 2.9
    assert abs(rates.fit_of(rates.slopes_within(runs, mixed)).value - 2) < 0.1


# verdicts


def some_results():
    orders = {"independent": made_up(1), "shuffle once": made_up(2), "reshuffled": made_up(3)}
    orders["independent"]["alpha"] = np.array([[1.0, 0.9, np.nan], [1.1, 0.95, np.nan]])
    return dict.fromkeys(("convex, own", "waves, own"), orders)


def test_claims_hold_where_the_powers_are_those_of_theory(tmp_path):
    results = some_results()
    found = rates.summary(results)
    assert [claim.verdict for claim in rates.judged(found)] == ["holds"] * 3
    json.dumps(found, allow_nan=False)
    fits = found["fits"]["convex, own"]
    assert fits["independent"]["mean"]["saved"] == [0, 0, 0]
    assert fits["independent"]["alpha"]["inner_products"] is None
    assert abs(fits["reshuffled"]["mean"]["saved"][0] - 4 / 3) < 0.2
    assert fits["independent"]["at_common_epsilon"]["calls"] > 10 * fits["reshuffled"]["at_common_epsilon"]["calls"]
    text = rates.report(found)
    assert all(rates.PROBLEMS[problem][1:] in text for problem in results)
    assert "nan" not in text
    one = {"convex, own": {"independent": results["convex, own"]["independent"]}}
    rates.plot(one, tmp_path)
    rates.write(one, tmp_path / "history.jsonl")
    assert {path.name for path in tmp_path.iterdir()} == {
        "history.jsonl", "step_sizes.png", "step_sizes.pdf", "calls.png", "calls.pdf"
    }  # fmt: skip
    first = json.loads((tmp_path / "history.jsonl").read_text().splitlines()[0])
    assert (first["problem"], first["order"], first["calls"]) == ("convex, own", "independent", 0)


def test_claims_do_not_hold_where_orders_do_not_differ():
    same = made_up(1)
    same["alpha"] = np.full((2, 3), 1.5)
    saved, bounded, alpha = rates.claims({"convex, own": {"independent": same, "reshuffled": same}})
    assert saved.verdict == alpha.verdict == "does not hold"
    assert bounded.verdict == "partly"  # ε⁻⁴ is right for independent draws only


def test_a_claim_holds_in_part_where_one_problem_is_as_claimed():
    found = rates.summary(some_results())
    found = copy.deepcopy(found)
    found["fits"]["waves, own"]["reshuffled"]["mean"]["saved"] = [0.2, 0.1, 0.3]
    found["fits"]["waves, own"]["reshuffled"]["alpha"]["outer_gradient"] = [1.0, 1.0, 1.0]
    saved, bounded, alpha = rates.judged(found)
    assert (saved.verdict, bounded.verdict, alpha.verdict) == ("partly", "holds", "partly")
    assert "0.20 [0.10, 0.30]" in saved.evidence


def test_settings_are_json_and_count_the_pieces():
    for quick in (False, True):
        options = Options(quick=quick)
        settings = json.loads(json.dumps(rates.settings(options)))
        assert rates.count(options) == len(settings["problems"]) * len(settings["orders"])


# the problem with waves


@pytest.mark.parametrize("shared", [False, True])
def test_the_hypergradient_with_waves(shared):
    task = quadratic_with_waves(noise=0.8, height=0.5)
    if shared:
        task = with_shared_hessians(task)
    exact = wior.hypergradient(task.problem, X, jnp.zeros(5))
    found = jax.jit(task.hypergradient)(X)
    np.testing.assert_allclose(found, exact.gradient, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(task.objective(X), exact.objective, rtol=1e-9)
    np.testing.assert_allclose(task.inner_solution(X), exact.y, rtol=1e-7)
    h = jax.jit(task.objective)
    differences = [(h(X + 1e-5 * e) - h(X - 1e-5 * e)) / 2e-5 for e in np.eye(3)]
    np.testing.assert_allclose(found, differences, rtol=1e-6, atol=1e-8)


def test_the_waves_are_written_out_right():
    task = quadratic_with_waves(m=3, noise=0.8)
    data = task.problem.outer_data
    y = np.array([0.3, -0.2, 0.9, 1.4, -0.6])
    waves = [a @ np.cos(2 * y) + b @ np.sin(2 * y) for a, b in zip(*map(np.asarray, data.waves), strict=True)]
    plain = quadratic(m=3, noise=0.8)
    expected = plain.problem.outer(X, y, plain.problem.outer_data) + np.mean(waves)
    np.testing.assert_allclose(task.problem.outer(X, y, data), expected)


def test_h_is_not_convex_with_waves_and_is_without():
    with pytest.raises(ValueError, match="height must be a non-negative number, got -1"):
        quadratic_with_waves(height=-1)
    smallest = lambda task, x: float(np.linalg.eigvalsh(jax.jit(jax.hessian(task.objective))(x))[0])
    assert smallest(rates.make_task("waves, own"), jnp.zeros(3)) < -0.3
    assert smallest(quadratic_with_waves(height=0.0), X) > 0.49


@pytest.mark.parametrize("problem", ["convex", "waves"])
def test_shared_hessians_leave_h_as_it_is(problem):
    own, shared = (rates.make_task(f"{problem}, {kind}") for kind in ("own", "shared"))
    np.testing.assert_allclose(shared.objective(X), own.objective(X))
    x, y = X, jnp.arange(4.0)
    for level in ("outer", "inner"):
        loss, rows = getattr(shared.problem, level), getattr(shared.problem, f"{level}_data")
        mean = getattr(own.problem, level)(x, y, getattr(own.problem, f"{level}_data"))
        np.testing.assert_allclose(loss(x, y, rows), mean)
        hessian = jax.jit(jax.vmap(lambda row, loss=loss: jax.hessian(loss, (0, 1))(x, y, row)))
        each = hessian(jax.tree.map(lambda leaf: leaf[:, None], rows))
        for leaf in jax.tree.leaves(each):
            np.testing.assert_allclose(leaf, jnp.broadcast_to(leaf[0], leaf.shape), atol=1e-12)
        gradient = jax.jit(jax.vmap(lambda row, loss=loss: jax.grad(loss, 1)(x, y, row)))
        assert np.ptp(gradient(jax.tree.map(lambda leaf: leaf[:, None], rows)), 0).min() > 0.1


def test_shared_hessians_are_for_bilevel_problems():
    with pytest.raises(TypeError, match="task must be of a Bilevel problem, got one of a ConditionalBilevel"):
        with_shared_hessians(quadratic_conditional())


# the whole


def test_double_precision_ends_with_its_context():
    with enable_x64(False):
        with rates.double_precision():
            assert jnp.zeros(1).dtype == jnp.float64
        assert jnp.zeros(1).dtype == jnp.float32


def test_a_piece_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(rates, "LENGTH", 4.0)
    task, etas = rates.make_task("convex, own"), rates.step_sizes(True)[:3]
    metrics = rates.metrics_of(task)
    checkpoint = wior.Checkpoint(tmp_path / "saved", every_steps=96, keep=1, at_end=False)
    of = [rates.steps_of(eta) for eta in etas]
    stop_at = of[0] + 96

    def make(report, checkpoint):
        return rates._piece(task, metrics, rates.ORDERS["reshuffled"], etas, (3, 0), report, checkpoint)

    def half(step, latest):
        if step >= stop_at:
            raise KeyboardInterrupt

    whole = make(lambda step, latest: None, None)
    with pytest.raises(KeyboardInterrupt):
        make(half, checkpoint)
    told = []
    found = make(lambda step, latest: told.append(step), checkpoint)
    assert min(told) >= of[0]  # the first step size is not made again
    assert told[-1] == sum(of)
    assert set(found) == set(whole)
    for name, value in whole.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.slow
def test_the_quick_version_gives_the_same_numbers_twice():
    def piece(name, steps, make):
        told = []
        arrays = make(lambda step, latest: told.append(step), None)
        assert told == sorted(told)
        assert told[-1] == steps
        return arrays

    first, again = (rates.measure(True, None, piece) for _ in range(2))
    assert set(first) == set(rates.QUICK_PROBLEMS)
    for problem, orders in first.items():
        assert set(orders) == set(rates.QUICK_ORDERS)
        for name, arrays in orders.items():
            assert all(
                np.array_equal(value, again[problem][name][key], equal_nan=True) for key, value in arrays.items()
            )
    assert rates.summary(first) == rates.summary(again)
    assert rates.claims(first)[0].verdict != "does not hold"
