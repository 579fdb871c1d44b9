"""What a step computes now, so that a program made of functions that have changed since is not used again."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from wior.algorithms.equipped import Equipped
from wior.running.draws import any_draws
from wior.running.plan import Plan
from wior.saving import fingerprint

Tree = Any


def as_now(plan: Plan, problem: Any, algorithm: Any, x: Tree, y: Tree, batches: tuple[int, int]) -> Plan:
    """The plan with the fingerprint of a step.

    Of wior's own methods the losses and schedules say all; they are cheaper to trace than a step with its derivatives.
    """

    def step(problem: Any, algorithm: Any, x: Tree, y: Tree) -> Any:
        return algorithm.step(problem, algorithm.init(problem, x, y), any_draws(plan, problem, algorithm))

    problem, x, y = fingerprint.shapes((problem, x, y))
    # a conditional step reads whole inner sets too
    sizes = (batches, None) if problem.conditional else (batches,)
    found = [fingerprint.traced_losses(problem, x, y, size) for size in sizes]
    foreign = any(fingerprint.has_foreign_rules(one) for one in found)
    equipped = isinstance(algorithm, Equipped)
    if plan.window or algorithm.takes_large_batches or equipped or not _is_own(algorithm) or foreign:
        parts = [fingerprint.fingerprint(step, problem, algorithm, x, y)]
    else:
        fields = (getattr(algorithm, field.name) for field in dataclasses.fields(algorithm))
        schedules = (fingerprint.fingerprint(value, jnp.int32(0)) for value in fields if callable(value))
        parts = [*(fingerprint.of_program(one) for one in found), *schedules]
    for stream in plan.streams:
        if not stream.adaptive and not _is_own(stream.order):
            run = functools.partial(stream.order.run, length=stream.chunk, n=stream.n)
            parts.append(fingerprint.fingerprint(run, jax.random.key(0), jnp.uint32(0), jnp.uint32(0)))
    return dataclasses.replace(plan, program=" ".join(parts))


def _is_own(thing: Any) -> bool:
    """Whether a method or an order is one of this package, whose code does not change while it runs."""
    return type(thing).__module__.startswith("wior.")
