"""`methods`: every method of the library, what it solves and what a step of it costs, read off the code itself.

Calls are counted, not declared: a step of each method is traced under `oracle.counting`, and a program that returns the
counters alone, from which the compiler drops all else, is run over many step numbers and keys. What a run carries is
read off the shapes of `init`, by differences in the sizes of the problem.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wior import algorithms, baselines, oracle
from wior.algorithms import Algorithm
from wior.orders import RandomReshuffling
from wior.problems import Bilevel, Compositional, ConditionalBilevel, ConditionalCompositional, Minimax, Problem
from wior.problems.fixed_batches import InFixedBatches
from wior.running.arguments import posed_for
from wior.running.draws import any_draws
from wior.running.plan import make_plan
from wior.running.setup import run_key

BATCHES = 64  # of the data at each level, and of each inner set of a conditional problem
STEPS = 2**16  # over which calls are averaged, a multiple of the default periods
REQUIRED = "required"

BATCH = (1, 1)  # an example is a batch, so that calls counted in examples are calls in batches
X, Y = 2, 12  # the lengths of x and y; conjugate gradients end early where y is shorter than they are
ANY = 0.01  # for hyper-parameters without a default


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of the library, what it solves and what it costs with its default hyper-parameters.

    Costs are those on data of 64 batches at each level. In a conditional problem calls are those for one outer example,
    in batches of its inner set.

    Parameters
    ----------
    name : str
        The name of its class.
    algorithm : type
        Its class.
    solves : tuple of str
        The problem class it is made for, then those that are restated for it.
    summary : str
        The first sentence of its documentation.
    paper : str
        Where it was published.
    parameters : dict
        Its hyper-parameters, each with its default, or "required".
    batches : (int, int)
        The outer and inner batches that a step draws.
    calls : dict
        The calls of a step in batches, by kind, as a mean over many steps: gradients, products with second derivatives,
        and backward passes.
    bounds : dict
        For each kind the fewest and the most calls in one of these steps.
    memory : str
        What a run carries from step to step, for example "x + 2 y".

    Examples
    --------
    >>> import wior
    >>> method = wior.methods()[0]
    >>> method.name, method.memory, method.calls["backward_passes"]
    ('WiORBO', 'x + 2 y', 3.0)
    """

    name: str
    algorithm: type[Algorithm]
    solves: tuple[str, ...]
    summary: str
    paper: str
    parameters: dict[str, Any]
    batches: tuple[int, int]
    calls: dict[str, float]
    bounds: dict[str, tuple[int, int]]
    memory: str

    @property
    def varies(self) -> bool:
        """Whether one step makes other calls than the next."""
        return any(fewest != most for fewest, most in self.bounds.values())


def methods() -> list[Method]:
    """Every method of the library with what it costs. The first call takes some seconds.

    Returns
    -------
    list of Method
        By problem class, the paper's own methods first.

    Examples
    --------
    >>> import wior
    >>> [method.name for method in wior.methods() if method.solves[0] == "Minimax"]
    ['WiORMinimax', 'AGDA', 'SGDA']
    """
    return list(_methods())


@functools.cache
def _methods() -> tuple[Method, ...]:
    problems = _problems(BATCHES, BATCHES, lambda shape: np.broadcast_to(np.arange(1.0, Y + 1), (*shape, Y)))
    native = [type(problem) for problem in problems]
    kinds = sorted(classes(), key=lambda kind: native.index(kind.solves))
    made = [kind(**{name: ANY for name, default in _parameters(kind).items() if default is REQUIRED}) for kind in kinds]
    measured = _measured(made, [problems[native.index(kind.solves)] for kind in kinds])
    return tuple(
        Method(
            name=type(algorithm).__name__,
            algorithm=type(algorithm),
            solves=_solves(algorithm, problems),
            summary=_first_sentence(type(algorithm)),
            paper=algorithm.paper,
            parameters=_parameters(type(algorithm)),
            batches=_batches(algorithm),
            calls={name: int(calls[name][0]) / STEPS for name in oracle.CALLS},
            bounds={name: (int(calls[name][1]), int(calls[name][2])) for name in oracle.CALLS},
            memory=_memory(algorithm),
        )
        for algorithm, calls in zip(made, measured, strict=True)
    )


def classes() -> list[type[Algorithm]]:
    """Every method that the library exports, the paper's own first."""
    names = [(module, name) for module in (algorithms, baselines) for name in sorted(module.__all__, key=str.casefold)]
    found = [getattr(module, name) for module, name in names]
    return [one for one in found if issubclass(one, Algorithm) and one is not Algorithm]


def _parameters(kind: type[Algorithm]) -> dict[str, Any]:
    return {
        field.name: REQUIRED if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(kind)
    }


def _first_sentence(kind: type[Algorithm]) -> str:
    return re.split(r"(?<=\.)\s", inspect.getdoc(kind) or "")[0]


def _solves(algorithm: Algorithm, problems: list[Problem]) -> tuple[str, ...]:
    taken = []
    for problem in sorted(problems, key=lambda problem: type(problem) is not algorithm.solves):
        try:
            posed_for(problem, algorithm)
        except TypeError:
            continue
        taken.append(type(problem).__name__)
    return tuple(taken)


def _batches(algorithm: Any) -> tuple[int, int]:
    outer, inner = sum(algorithm.batch_kinds.outer), sum(algorithm.batch_kinds.inner)
    if algorithm.solves.conditional:
        inner = algorithm.visit_batches or algorithm.inner_epochs * BATCHES
    return outer, inner


# The problems: losses that are barely enough to differentiate, over rows of the length of y.


def _problems(m: int, n: int, rows: Callable[[tuple[int, ...]], Any]) -> list[Problem]:
    """One problem of each class, with m outer and n inner examples."""
    outer, inner, sets = rows((m,)), rows((n,)), rows((m, n))
    return [
        Bilevel(_loss, _loss, outer, inner),
        ConditionalBilevel(_loss, _loss, outer, sets),
        Compositional(_loss_of_y, _map, outer, inner),
        ConditionalCompositional(_loss_of_y, _map, outer, sets),
        Minimax(_loss, outer),
    ]


def _posed(problem: Any, algorithm: Algorithm) -> Any:
    return InFixedBatches(problem, BATCH) if algorithm.fixed_batches else problem


def _loss(x: Any, y: Any, rows: Any) -> Any:
    return 0.5 * jnp.mean(rows, 0) @ y**2 + jnp.sum(x) * jnp.sum(y)


def _loss_of_y(y: Any, rows: Any) -> Any:
    return 0.5 * jnp.mean(rows, 0) @ y**2


def _map(x: Any, rows: Any) -> Any:
    return jnp.mean(rows, 0) * jnp.sum(x)


# Calls.


def _measured(made: list[Algorithm], problems: list[Problem]) -> list[dict[str, tuple[Any, Any, Any]]]:
    """For each method and counter the total, the fewest and the most over all steps; one program for all of them."""

    @jax.jit
    def measure(problems: list[Problem], steps: jax.Array) -> Any:
        def in_step(step: jax.Array) -> list[dict[str, jax.Array]]:
            key = jax.random.fold_in(run_key(0), step)
            return [_calls(*pair, step, key) for pair in zip(made, problems, strict=True)]

        return jax.tree.map(lambda calls: (jnp.sum(calls), jnp.min(calls), jnp.max(calls)), jax.vmap(in_step)(steps))

    measured: list[dict[str, tuple[Any, Any, Any]]] = jax.device_get(
        measure(problems, jnp.arange(STEPS, dtype=jnp.uint32))
    )
    return measured


def _calls(algorithm: Algorithm, problem: Any, step: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    """The calls of a step from the start of a run, as far as its number and its key decide on them."""
    posed = _posed(problem, algorithm)
    plan = make_plan(posed, algorithm, (RandomReshuffling(), RandomReshuffling()), BATCH, 1)
    draws = any_draws(plan, posed, algorithm)._replace(step=step, starts_epoch=step == 0, key=key)
    state = algorithm.init(posed, jnp.ones(X), jnp.ones(Y))
    with oracle.counting() as tally:
        algorithm.step(posed, state, draws)
    return tally.everything()


# Memory.


def _memory(algorithm: Algorithm) -> str:
    """The state in copies of x and y: those that are always there, and those for each batch of the data."""

    def numbers(x: int, y: int, m: int, n: int) -> int:
        shape = lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32)
        problem: Any = next(one for one in _problems(m, n, shape) if type(one) is algorithm.solves)
        state = jax.eval_shape(algorithm.init, _posed(problem, algorithm), shape((x,)), shape((y,)))
        return sum(leaf.size for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating))

    def copies(m: int, n: int) -> np.ndarray:
        start = numbers(1, 1, m, n)
        return np.array([numbers(2, 1, m, n) - start, numbers(1, 2, m, n) - start])

    both = copies(1, 1)
    outer, inner = copies(2, 1) - both, copies(1, 2) - both
    tables = [
        f"({_sum(table)}) an {level} batch" for table, level in ((outer, "outer"), (inner, "inner")) if any(table)
    ]
    return " + ".join([_sum(both - outer - inner), *tables])


def _sum(copies: np.ndarray) -> str:
    terms = zip(copies.tolist(), ("x", "y"), strict=True)
    return " + ".join(name if number == 1 else f"{number} {name}" for number, name in terms if number)
