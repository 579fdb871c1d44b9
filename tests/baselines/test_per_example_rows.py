"""`PerExample` leaves under the baselines: only rows of the batches move."""

import numpy as np
import pytest

import problems
import wior
import wior.baselines as of
from baseline_twins import METHODS, THREE
from chance import CHANCES, drawn, keys, random_batches, reserves
from problems import flat
from twins import close, dense, stepped
from wior.problems.fixed_batches import InFixedBatches

BUILT = problems.bilevel_per_example, problems.compositional_per_example, problems.minimax_per_example
BUILDS = {type(build().problem): build for build in BUILT}
PLAIN = "Reverse", "AIDCG", "StocBiO", "BSA", "TTSA", "SOBA", "AmIGO", "F2SA", "BOME", "MEHA", "SCGD", "SGDA", "AGDA"
# which kind of batch moves rows, where it is not the first
MOVES = dict.fromkeys(("AIDCG", "F2SA", "BOME"), 1) | dict.fromkeys(("StocBiO", "BSA", "TTSA", "AmIGO"), 2)
WITH_ROWS = {n: METHODS[n][0] for n in METHODS if "," not in n or n == "Reverse, 2 checkpoints"}
MET = np.array([0, 2, 3, 5]), np.array([1, 2, 4, 7, 8])  # no batch holds another example
IN_EVERY_RUN = "SOBA", "StocBiO", "MRBO", "VRBO", "F2SA", "SGDA"


@pytest.mark.parametrize(
    "name", [n if n in IN_EVERY_RUN else pytest.param(n, marks=pytest.mark.slow) for n in WITH_ROWS]
)
def test_only_rows_of_the_batches_move(name):
    """Without a memory, along the derivative of a dense vector; also where a batch holds an example twice."""
    algorithm, rng = WITH_ROWS[name], np.random.default_rng(4)
    build = BUILDS[algorithm.solves]
    cases = [build(), dense(build)] if name.split(",")[0] in PLAIN else [build()]
    states = [algorithm.init(case.problem, case.x0, case.y0) for case in cases]
    touched = set()
    for t in range(3):
        outer, inner = random_batches(rng, algorithm.streams, MET, repeated=name != "BOME")
        draws = drawn(outer, inner, t, keys()[CHANCES[0][t]], reserves(problems.M, problems.N))
        states = [stepped(case.problem, algorithm, state, draws) for case, state in zip(cases, states, strict=True)]
        touched |= set(((outer if algorithm.solves is wior.Minimax else inner)[MOVES.get(name, 0)]).ravel())
    before, after = np.asarray(cases[0].x0["rows"].rows), np.asarray(states[0].x["rows"].rows)
    moved = set(np.flatnonzero(before != after))
    assert moved
    assert moved <= touched
    assert np.abs(after - before).max() > 1e-4
    assert np.isfinite(flat(states[0])).all()
    for other in states[1:]:
        close(states[0], flat(other))


def test_bome_measures_q_in_a_dense_vector_also_where_a_batch_holds_an_example_twice():
    """The square of the sum of both contributions to a row, and not the sum of their squares."""
    algorithm, for_z = WITH_ROWS["BOME"], [[1, 2, 4, 7], [8, 7, 4, 0], [3, 5, 2, 1]]
    draws = drawn([[[0, 2, 3]]], [for_z, [[4, 7, 4, 4]]], 1, keys()[0, False], reserves(problems.M, problems.N))
    rows, vector = (
        stepped(case.problem, algorithm, algorithm.init(case.problem, case.x0, case.y0), draws)
        for case in (problems.bilevel_per_example(), dense(problems.bilevel_per_example))
    )
    close(rows, flat(vector))


@pytest.mark.parametrize(("name", "decay"), [("FSLA", 0.5), ("SRBA", 0.0), ("SPABA", 0.0)])
def test_rows_take_no_part_in_the_memory_of_differences(name, decay):
    """They move as those of SOBA do from the same point, while what is shared does not."""
    (problem, _, x, y, _), rng = problems.bilevel_per_example(), np.random.default_rng(4)
    algorithm, plain = WITH_ROWS[name], of.SOBA(*THREE, decay=decay)
    state = algorithm.init(problem, x, y)
    for t in range(4):
        before = plain.init(problem, state.x, state.y)._replace(u=state.u)
        outer, inner = random_batches(rng, algorithm.streams, MET)
        draws = drawn(outer, inner, t, keys()[0, False], reserves(problems.M, problems.N))
        state, other = stepped(problem, algorithm, state, draws), stepped(problem, plain, before, draws)
    close(state.x["rows"], flat(other.x["rows"]))
    assert np.abs(flat(state.x["rows"]) - flat(before.x["rows"])).max() > 1e-4
    assert np.abs(flat(state.x["shared"]) - flat(other.x["shared"])).max() > 1e-4


def test_only_rows_of_the_batches_move_under_saba():
    case, algorithm = problems.bilevel_per_example(), of.SABA(*THREE)
    problem = InFixedBatches(case.problem, (2, 3))
    state = algorithm.init(problem, case.x0, case.y0)
    for t, (i, j) in enumerate([(1, 2), (0, 0), (1, 2)]):
        state = stepped(problem, algorithm, state, drawn([[[i]]], [[[j]]], t, keys()[0, False], None))
    moved = np.flatnonzero(np.asarray(state.x["rows"].rows) != np.asarray(case.x0["rows"].rows))
    np.testing.assert_array_equal(moved, [0, 1, 2, 6, 7, 8])
    assert np.isfinite(flat(state)).all()
