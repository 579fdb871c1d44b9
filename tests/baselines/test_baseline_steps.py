"""Steps of every baseline against its formula, written out with matrices in a naive twin.

The losses are the closed-form quadratics with a cubic term in g, and a quadratic one in r, so that H = ∇²_yy g,
J = ∇²_xy g and ∇r depend on the point: on a plain quadratic, a second derivative at the wrong point would go unnoticed.
"""

import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_algorithms import MINIMAX, VISITED, X, Y, close, dense, lengths, mean, stepped

import problems
import wior
import wior.baselines as of
from problems import flat
from wior.algorithms.algorithm import Draws, Reserve, Reserves
from wior.algorithms.parts import linear_systems
from wior.orders import RandomReshuffling
from wior.problems.fixed_batches import InFixedBatches
from wior.running import visits
from wior.tasks import quadratic

TERMS = 4  # of every Neumann series


# The problems, and their derivatives.


def bent_inner(x, y, batch):
    """The quadratic g, and k_j (Σ y³/6 + (Σ x) y'y/2) in addition."""
    *coefficients, k = batch
    cubic = jnp.sum(y**3) / 6 + jnp.sum(x) * (y @ y) / 2
    return quadratic.inner(x, y, quadratic.Inner(*coefficients)) + jnp.mean(k) * cubic


def bent_map(x, batch):
    """The linear r, and k_j x'x/2 in addition in every entry."""
    *coefficients, k = batch
    return quadratic.inner_map(x, quadratic.Map(*coefficients)) + jnp.mean(k) * (x @ x) / 2


def bent(made, function):
    """A quadratic problem with one more coefficient for each inner example."""
    problem = made.problem
    shape = problem.inner_data[0].shape[: 1 + isinstance(problem, CONDITIONAL)]
    k = jnp.asarray(0.02 + 0.03 * np.random.default_rng(11).normal(size=shape))
    counts = (problem.counts,) if isinstance(problem, CONDITIONAL) else ()
    return type(problem)(problem.outer, function, problem.outer_data, (*problem.inner_data, k), *counts)


CONDITIONAL = wior.ConditionalBilevel, wior.ConditionalCompositional
BILEVEL = bent(quadratic.quadratic(), bent_inner)
COMPOSITIONAL = bent(quadratic.quadratic_compositional(), bent_map)
F, G = (jax.tree.map(np.asarray, data) for data in (BILEVEL.outer_data, BILEVEL.inner_data))


class At(NamedTuple):
    """The derivatives at (x, y), each on a batch."""

    x: Any
    y: Any
    f: Any = F
    g: Any = G

    def f_x(self, xi):
        _, D, E, _, e = mean(self.f, xi)
        return E @ self.x + D @ self.y + e

    def f_y(self, xi):
        C, D, _, c, _ = mean(self.f, xi)
        return C @ self.y + D.T @ self.x + c

    def g_x(self, zeta):
        _, B, _, b, k = mean(self.g, zeta)
        return B.T @ self.y + b + k * (self.y @ self.y) / 2

    def g_y(self, zeta):
        A, B, a, _, k = mean(self.g, zeta)
        return A @ self.y + B @ self.x + a + k * (self.y**2 / 2 + self.x.sum() * self.y)

    def H(self, zeta):
        A, *_, k = mean(self.g, zeta)
        return A + k * (np.diag(self.y) + self.x.sum() * np.eye(len(self.y)))

    def J(self, zeta):
        _, B, *_, k = mean(self.g, zeta)
        return B.T + k * np.outer(np.ones(len(self.x)), self.y)

    def directions(self, u, xi, zeta):
        """D_x, D_y, D_u."""
        return self.D_x(u, xi, zeta), self.g_y(zeta), self.H(zeta) @ u - self.f_y(xi)

    def D_x(self, u, xi, zeta):
        return self.f_x(xi) - self.J(zeta) @ u

    def after_sgd(self, rates, batches):
        """The point after y ← y − γ_j ∇_y g(x, y; ζ_j) on each batch, with one γ or many."""
        at = self
        for rate, zeta in zip(np.broadcast_to(rates, len(batches)), batches, strict=True):
            at = at._replace(y=at.y - rate * at.g_y(zeta))
        return at

    def products(self, xi, tau, batches):
        """Π_{j≤q} (I − τ H_j) ∇_y f for q = 0, 1, …"""
        terms = [self.f_y(xi)]
        for zeta in batches:
            terms.append((np.eye(len(self.y)) - tau * self.H(zeta)) @ terms[-1])
        return terms

    def neumann_sum(self, xi, tau, batches):
        return tau * np.sum(self.products(xi, tau, batches), 0)

    def neumann_product(self, xi, tau, batches, length):
        terms = self.products(xi, tau, batches)
        return len(terms) * tau * terms[length]


# The twins: hyper-parameters a, state s, batches of each kind, number of the step, luck; they return the next state.


def reverse(a, s, xi, zeta, t, luck):
    path = [At(s.x, s.y)]
    for batch in zeta[0]:
        path.append(path[-1].after_sgd(a.inner_lr, [batch]))
    end = path.pop()
    d, w = end.f_x(xi[0][0]), end.f_y(xi[0][0])
    for at, batch in zip(path[::-1], zeta[0][::-1], strict=True):
        d, w = d - a.inner_lr * at.J(batch) @ w, w - a.inner_lr * at.H(batch) @ w
    return {"x": s.x - a.outer_lr * d, "y": end.y}


def krylov(H, b, start, steps):
    """What conjugate gradients find: the minimizer of ½ v'H v − b'v over start + span{r, H r, …, H^(N−1) r}."""
    assert np.linalg.eigvalsh(H).min() > 0
    powers = [b - H @ start]
    while len(powers) < steps:
        powers.append(H @ powers[-1])
    V, _ = np.linalg.qr(np.stack(powers, 1))
    return start + V @ np.linalg.solve(V.T @ H @ V, V.T @ (b - H @ start))


def aid_cg(a, s, xi, zeta, t, luck):
    (xi,), (for_y, (for_x,)) = xi[0], zeta
    at = At(s.x, s.y).after_sgd(a.inner_lr, for_y)
    u = krylov(at.H(for_x), at.f_y(xi), s.u, a.adjoint_steps)
    return {"x": s.x - a.outer_lr * at.D_x(u, xi, for_x), "y": at.y, "u": u}


def stoc_bio(a, s, xi, zeta, t, luck):
    (xi,), (for_y, for_u, (for_x,)) = xi[0], zeta
    at = At(s.x, s.y).after_sgd(a.inner_lr, for_y)
    u = at.neumann_sum(xi, a.neumann_lr, for_u)
    return {"x": s.x - a.outer_lr * at.D_x(u, xi, for_x), "y": at.y}


def bsa(a, s, xi, zeta, t, luck):
    (xi,), (for_y, for_u, (for_x,)) = xi[0], zeta
    steps = min(a.inner_steps, int(np.ceil(np.sqrt(t + 1))))
    at = At(s.x, s.y).after_sgd([a.inner_lr * 2 / (j + 2) for j in range(steps)], for_y[:steps])
    u = at.neumann_product(xi, a.neumann_lr, for_u, luck.length)
    return {"x": s.x - a.outer_lr * (t + 1) ** (-1 / 2) * at.D_x(u, xi, for_x), "y": at.y}


def ttsa(a, s, xi, zeta, t, luck):
    (xi,), (for_y, for_u, (for_x,)) = xi[0], zeta
    at = At(s.x, s.y).after_sgd(a.inner_lr * (t + 1) ** (-2 / 5), for_y)
    u = at.neumann_product(xi, a.neumann_lr, for_u, luck.length)
    return {"x": s.x - a.outer_lr * (t + 1) ** (-3 / 5) * at.D_x(u, xi, for_x), "y": at.y}


def storm(d, new, old, weight):
    return new + (1 - weight) * (d - old)


def double_momentum(a, s, xi, zeta, t, adjoint):
    """SUSTAIN and MRBO, which differ in u = adjoint(at, ξ, batches)."""
    (xi,), ((zeta,), for_u) = xi[0], zeta
    new, old = At(s.x, s.y), At(s.old_x, s.old_y)
    D_x = lambda at: at.D_x(adjoint(at, xi, for_u), xi, zeta)
    fall = (1 + t / a.delay) ** (-1 / 3)
    weights = (1, 1) if t == 0 else (a.outer_momentum * fall**2, a.inner_momentum * fall**2)
    d_x = storm(s.d_x, D_x(new), D_x(old), weights[0])
    d_y = storm(s.d_y, new.g_y(zeta), old.g_y(zeta), weights[1])
    moved = {"x": s.x - a.outer_lr * fall * d_x, "y": s.y - a.inner_lr * fall * d_y}
    return moved | {"d_x": d_x, "d_y": d_y, "old_x": s.x, "old_y": s.y}


def sustain(a, s, xi, zeta, t, luck):
    adjoint = lambda at, xi, batches: at.neumann_product(xi, a.neumann_lr, batches, luck.length)
    return double_momentum(a, s, xi, zeta, t, adjoint)


def mrbo(a, s, xi, zeta, t, luck):
    return double_momentum(a, s, xi, zeta, t, lambda at, xi, batches: at.neumann_sum(xi, a.neumann_lr, batches))


def vrbo(a, s, xi, zeta, t, luck):
    (for_f,), (for_g, for_u) = xi, zeta
    for_u = for_u.reshape(a.inner_steps + 1, TERMS - 1, -1)
    D_x = lambda at, xi, zeta, factors: at.D_x(at.neumann_sum(xi, a.neumann_lr, factors), xi, zeta)
    before, d_x, d_y = At(s.x, s.y), s.d_x, s.d_y
    if t % a.period == 0:
        xi, zeta = luck.large(t // a.period, a.large_batch)
        d_x, d_y = D_x(before, xi, zeta, [zeta] * (TERMS - 1)), before.g_y(zeta)
    now = At(s.x - a.outer_lr * d_x, s.y)
    for j, (xi, zeta, factors) in enumerate(zip(for_f, for_g, for_u, strict=True)):
        d_x = d_x + D_x(now, xi, zeta, factors) - D_x(before, xi, zeta, factors)
        d_y = d_y + now.g_y(zeta) - before.g_y(zeta)
        before, now = now, now if j == a.inner_steps else now._replace(y=now.y - a.inner_lr * d_y)
    return {"x": now.x, "y": now.y, "d_x": d_x, "d_y": d_y}


def descended(a, s, d_x, d_y, d_u, fall=1.0):
    rates = fall * a.outer_lr, fall * a.inner_lr, fall * a.adjoint_lr
    return {"x": s.x - rates[0] * d_x, "y": s.y - rates[1] * d_y, "u": s.u - rates[2] * d_u}


def soba(a, s, xi, zeta, t, luck):
    return descended(a, s, *At(s.x, s.y).directions(s.u, xi[0][0], zeta[0][0]), fall=(t + 1) ** (-1 / 2))


def amigo(a, s, xi, zeta, t, luck):
    (xi,), (for_y, for_u, (for_x,)) = xi[0], zeta
    at, u = At(s.x, s.y).after_sgd(a.inner_lr, for_y), s.u
    for batch in for_u:
        u = u - a.adjoint_lr * (at.H(batch) @ u - at.f_y(xi))
    return {"x": s.x - a.outer_lr * at.D_x(u, xi, for_x), "y": at.y, "u": u}


def fsla(a, s, xi, zeta, t, luck):
    (xi,), (zeta,) = xi[0], zeta[0]
    D_x, D_y, D_u = At(s.x, s.y).directions(s.u, xi, zeta)
    fall = (t + 1) ** (-1 / 2)
    h = storm(s.h, D_x, At(s.old_x, s.old_y).D_x(s.old_u, xi, zeta), 1 if t == 0 else a.momentum * fall)
    return descended(a, s, h, D_y, D_u, fall) | {"h": h, "old_x": s.x, "old_y": s.y, "old_u": s.u}


def ma_soba(a, s, xi, zeta, t, luck):
    D_x, D_y, D_u = At(s.x, s.y).directions(s.u, xi[0][0], zeta[0][0])
    h = (1 - a.averaging) * s.h + a.averaging * D_x
    return descended(a, s, h, D_y, D_u) | {"h": h}


def recursive(a, s, xi, zeta, large):
    """SRBA and SPABA: the directions on large batches, if there are any, or SARAH's."""
    D = lambda z, xi, zeta: At(*z[:2]).directions(z[2], xi, zeta)
    z, small = (s.x, s.y, s.u), (xi[0][0], zeta[0][0])
    if large is not None:
        d = D(z, *large)
    else:
        d = [d + new - old for d, new, old in zip((s.d_x, s.d_y, s.d_u), D(z, *small), D(s.old, *small), strict=True)]
    return descended(a, s, *d) | dict(zip(("d_x", "d_y", "d_u"), d, strict=True)) | {"old": z}


def srba(a, s, xi, zeta, t, luck):
    return recursive(a, s, xi, zeta, luck.large(t // a.period, None) if t % a.period == 0 else None)


def spaba(a, s, xi, zeta, t, luck):
    return recursive(a, s, xi, zeta, luck.large(t, a.large_batch) if t == 0 or luck.coin else None)


def f2sa(a, s, xi, zeta, t, luck):
    (for_y, (for_x,)), (in_y, (in_x,)) = xi, zeta
    at_y, at_z, penalty = At(s.x, s.y), At(s.x, s.z), a.penalty * (t + 1) ** (1 / 7)
    for outer, inner in zip(for_y, in_y, strict=True):
        at_z = at_z._replace(y=at_z.y - a.inner_lr * (t + 1) ** (-4 / 7) * at_z.g_y(inner))
        d = at_y.f_y(outer) + penalty * at_y.g_y(inner)
        at_y = at_y._replace(y=at_y.y - a.penalized_lr * (t + 1) ** (-5 / 7) * d)
    d = at_y.f_x(for_x) + penalty * (at_y.g_x(in_x) - at_z.g_x(in_x))
    return {"x": s.x - a.outer_lr * (t + 1) ** (-5 / 7) * d, "y": at_y.y, "z": at_z.y}


def bome_parts(a, s, xi, zeta):
    """∇f and ∇q in (x, y), and λ."""
    (xi,), (for_y, (zeta,)) = xi[0], zeta
    at = At(s.x, s.y)
    z = at.after_sgd(a.inner_lr, for_y)
    f = np.concatenate([at.f_x(xi), at.f_y(xi)])
    q = np.concatenate([at.g_x(zeta) - z.g_x(zeta), at.g_y(zeta)])
    return f, q, max((a.control * (q @ q) - f @ q) / (q @ q), 0)


def bome(a, s, xi, zeta, t, luck):
    f, q, weight = bome_parts(a, s, xi, zeta)
    d = f + weight * q
    return {"x": s.x - a.outer_lr * d[:3], "y": s.y - a.outer_lr * d[3:]}


def meha(a, s, xi, zeta, t, luck):
    (xi,), (zeta,) = xi[0], zeta[0]
    at, c, tau = At(s.x, s.y), a.penalty * (t + 1) ** a.penalty_growth, a.proximity
    z = s.z - a.inner_lr * (At(s.x, s.z).g_y(zeta) + (s.z - s.y) / tau)
    d_y = at.f_y(xi) / c + at.g_y(zeta) - (s.y - z) / tau
    d_x = at.f_x(xi) / c + at.g_x(zeta) - At(s.x, z).g_x(zeta)
    return {"x": s.x - a.outer_lr * d_x, "y": s.y - a.penalized_lr * d_y, "z": z}


def map_of(rows, x, zeta):
    """r(x; ζ) and its Jacobian."""
    R, r, k = mean(rows, zeta)
    return R @ x + r + k * (x @ x) / 2, R + k * np.outer(np.ones(len(R)), x)


def outer_gradient(rows, y, xi):
    C, c = mean(rows, xi)
    return C @ y + c


def scgd(a, s, xi, zeta, t, luck):
    r, r_x = map_of(COMPOSITIONAL.inner_data, s.x, zeta[0][0])
    beta = a.inner_lr * (t + 1) ** (-1 / 2)
    y = (1 - beta) * s.y + beta * r
    d = r_x.T @ outer_gradient(COMPOSITIONAL.outer_data, y, xi[0][0])
    return {"x": s.x - a.outer_lr * (t + 1) ** (-3 / 4) * d, "y": y}


def nasa(a, s, xi, zeta, t, luck):
    r, r_x = map_of(COMPOSITIONAL.inner_data, s.x, zeta[0][0])
    d = r_x.T @ outer_gradient(COMPOSITIONAL.outer_data, s.y, xi[0][0])
    h = (1 - a.averaging) * s.h + a.averaging * d
    return {"x": s.x - a.outer_lr * h, "y": (1 - a.inner_lr) * s.y + a.inner_lr * r, "h": h}


def sgda(a, s, xi, zeta, t, luck):
    at = At(s.x, s.y, MINIMAX.problem.data)
    return {"x": s.x - a.outer_lr * at.f_x(xi[0][0]), "y": s.y + a.inner_lr * at.f_y(xi[0][0])}


def agda(a, s, xi, zeta, t, luck):
    (for_x,), (for_y,) = xi
    x = s.x - a.outer_lr * At(s.x, s.y, MINIMAX.problem.data).f_x(for_x)
    return {"x": x, "y": s.y + a.inner_lr * At(x, s.y, MINIMAX.problem.data).f_y(for_y)}


THREE, NEUMANN = (0.07, 0.11, 0.13), (0.07, 0.11, 0.3)
MOMENTA = {"neumann_terms": TERMS, "outer_momentum": 0.7, "inner_momentum": 0.6, "delay": 2.5}
METHODS = {
    "Reverse": (of.Reverse(0.07, 0.11, inner_steps=7), reverse),
    "Reverse, 1 checkpoint": (of.Reverse(0.07, 0.11, inner_steps=7, checkpoints=1), reverse),
    "Reverse, 2 checkpoints": (of.Reverse(0.07, 0.11, inner_steps=7, checkpoints=2), reverse),
    "Reverse, 3 checkpoints": (of.Reverse(0.07, 0.11, inner_steps=7, checkpoints=3), reverse),
    "AIDCG": (of.AIDCG(0.07, 0.11, inner_steps=2, adjoint_steps=3), aid_cg),
    "StocBiO": (of.StocBiO(*NEUMANN, inner_steps=2, neumann_terms=TERMS), stoc_bio),
    "BSA": (of.BSA(*NEUMANN, inner_steps=3, neumann_terms=TERMS), bsa),
    "TTSA": (of.TTSA(*NEUMANN, neumann_terms=TERMS), ttsa),
    "MRBO": (of.MRBO(*NEUMANN, **MOMENTA), mrbo),
    "VRBO": (of.VRBO(*NEUMANN, inner_steps=2, neumann_terms=TERMS, period=2), vrbo),
    "VRBO, large batches": (of.VRBO(*NEUMANN, inner_steps=2, neumann_terms=TERMS, period=2, large_batch=5), vrbo),
    "SUSTAIN": (of.SUSTAIN(*NEUMANN, **MOMENTA), sustain),
    "SOBA": (of.SOBA(*THREE), soba),
    "AmIGO": (of.AmIGO(*THREE, inner_steps=2, adjoint_steps=3), amigo),
    "FSLA": (of.FSLA(*THREE, momentum=0.7), fsla),
    "MASOBA": (of.MASOBA(*THREE, averaging=0.3), ma_soba),
    "SRBA": (of.SRBA(*THREE, period=2), srba),
    "SPABA": (of.SPABA(*THREE, probability=0.5), spaba),
    "SPABA, large batches": (of.SPABA(*THREE, probability=0.5, large_batch=5), spaba),
    "F2SA": (of.F2SA(0.07, 0.11, 0.05, penalty=1.7, inner_steps=2), f2sa),
    "BOME": (of.BOME(0.07, 0.11, inner_steps=3), bome),
    "MEHA": (of.MEHA(0.07, 0.11, 0.05, proximity=0.8, penalty=1.7), meha),
    "SCGD": (of.SCGD(0.07, 0.6), scgd),
    "NASA": (of.NASA(0.07, 0.6, averaging=0.3), nasa),
    "SGDA": (of.SGDA(0.07, 0.11), sgda),
    "AGDA": (of.AGDA(0.07, 0.11), agda),
}
PROBLEMS = {wior.Bilevel: BILEVEL, wior.Compositional: COMPOSITIONAL, wior.Minimax: MINIMAX.problem}
# what chance brings in three steps from each first one: the length of a Neumann product, and a coin for large batches
CHANCES = {
    0: [(0, False), (3, False), (1, True)],
    3: [(3, False), (0, True), (2, False)],
    15: [(2, True), (1, False), (3, False)],
}


@jax.jit
def chance_of(key):
    return linear_systems.random_length(key, TERMS), jax.random.bernoulli(key, 0.5)


@functools.cache
def keys():
    """A key for each length and side of the coin."""
    some = [jax.random.key(seed) for seed in range(40)]
    found = {(int(p), bool(coin)): key for (p, coin), key in zip(map(chance_of, some), some, strict=True)}
    assert sorted(found) == [(p, coin) for p in range(TERMS) for coin in (False, True)]
    return found


def reserves(m, n):
    return Reserves(*(Reserve(jax.random.key(9 + n), RandomReshuffling(), n) for n in (m, n)))


take = jax.jit(Reserve.take, static_argnames="size")


def large_batches(number, size):
    if size is None:
        return np.arange(7), np.arange(11)
    return [np.asarray(take(reserve, jnp.uint32(number), size=size)) for reserve in reserves(7, 11)]


def drawn(outer, inner, step, key, reserves, visits=None):
    kinds = lambda level: tuple(jnp.asarray(kind, jnp.int32) for kind in level)
    return Draws(kinds(outer), kinds(inner), visits, jnp.uint32(step), jnp.asarray(False), key, reserves)


def random_batches(rng, streams, examples, repeated=True):
    """Batches of 3 outer and 4 inner examples for every kind, of which some hold an example twice."""
    batches = lambda number, rows, size: np.array([rng.choice(rows, size, repeated) for _ in range(number)])
    levels = zip((streams.outer, streams.inner), examples, (3, 4), strict=True)
    return [tuple(batches(number, rows, size) for number in level) for level, rows, size in levels]


@pytest.mark.parametrize("start", CHANCES)
@pytest.mark.parametrize("name", METHODS)
def test_three_steps_are_the_formula(name, start):
    """From the first step on, or later from a state in which every memory is filled."""
    (algorithm, twin), rng = METHODS[name], np.random.default_rng(start)
    problem = PROBLEMS[algorithm.solves]
    first = algorithm.init(problem, jnp.asarray(X), jnp.asarray(Y))
    if start > 0:
        first = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), first)
    state, s = first, SimpleNamespace(**jax.tree.map(np.asarray, first)._asdict())
    for t, chance in enumerate(CHANCES[start], start):
        outer, inner = random_batches(rng, algorithm.streams, (np.arange(7), np.arange(11)))
        draws = drawn(outer, inner, t, keys()[chance], reserves(7, 11))
        luck = SimpleNamespace(length=chance[0], coin=chance[1], large=large_batches)
        state = stepped(problem, algorithm, state, draws)
        expected = twin(algorithm, s, outer, inner, t, luck)
        assert set(expected) == set(state._fields)
        for field, value in expected.items():
            close(getattr(state, field), np.concatenate(value) if isinstance(value, tuple) else value)
        s = SimpleNamespace(**expected)
    for before, after in zip(jax.tree.leaves(first), jax.tree.leaves(state), strict=True):
        assert np.abs(after - before).max() > 1e-3


def test_every_baseline_has_a_twin():
    beside = {"WiRBO", "SABA", "DLSGD", "RTMLMC", "BSGD"}  # the first in test_algorithms.py, the others below
    assert {type(algorithm).__name__ for algorithm, _ in METHODS.values()} | beside == set(wior.baselines.__all__)


def test_the_twin_of_reverse_is_the_derivative_of_f_at_the_end_of_the_steps():
    """By a complex step, which has no truncation error: f(x, y_K(x)) is a polynomial in x."""
    (a, _), rng = METHODS["Reverse"], np.random.default_rng(5)
    outer, inner = random_batches(rng, a.streams, (np.arange(7), np.arange(11)))
    C, D, E, c, e = mean(F, outer[0][0])

    def value(x):
        y = At(x, Y).after_sgd(a.inner_lr, inner[0]).y
        return y @ C @ y / 2 + x @ D @ y + x @ E @ x / 2 + c @ y + e @ x

    derivative = [value(X + 1e-30j * unit).imag / 1e-30 for unit in np.eye(3)]
    twin = reverse(a, SimpleNamespace(x=X, y=Y), outer, inner, 0, None)
    np.testing.assert_allclose(X - a.outer_lr * np.array(derivative), twin["x"], rtol=1e-12)


def test_bome_adds_nothing_of_q_where_f_alone_brings_it_down():
    algorithm, rng, signs = of.BOME(0.07, 0.11, inner_steps=3, control=0.02), np.random.default_rng(6), set()
    for _ in range(6):
        s = SimpleNamespace(x=rng.normal(size=3), y=rng.normal(size=5))
        outer, inner = random_batches(rng, algorithm.streams, (np.arange(7), np.arange(11)))
        state = algorithm.init(BILEVEL, jnp.asarray(s.x), jnp.asarray(s.y))
        found = stepped(BILEVEL, algorithm, state, drawn(outer, inner, 1, keys()[0, False], reserves(7, 11)))
        close(found, np.concatenate(list(bome(algorithm, s, outer, inner, 1, None).values())))
        signs.add(bool(bome_parts(algorithm, s, outer, inner)[2] > 0))
    assert signs == {False, True}


def saga(table, slot, new):
    """part_i − table_i + mean(table), over the batches met; one that was not counts as the mean so far."""
    average = [np.mean(parts, 0) for parts in zip(*table.values(), strict=True)] if table else new
    known = table.get(slot, average)
    table[slot] = new
    return [part - old + mean for part, old, mean in zip(new, known, average, strict=True)]


def test_steps_of_saba_are_the_formula():
    """Slots come again before all have been met, and after."""
    made = bent(quadratic.quadratic(m=8, n=12), bent_inner)
    problem, algorithm = InFixedBatches(made, (2, 3)), of.SABA(*THREE)
    state = algorithm.init(problem, jnp.asarray(X), jnp.asarray(Y))._replace(u=jnp.asarray(Y[::-1]))
    s, of_outer, of_inner, distances = SimpleNamespace(x=X, y=Y, u=Y[::-1]), {}, {}, []
    for t, (i, j) in enumerate([(1, 2), (3, 0), (1, 2), (1, 0), (0, 3), (2, 1), (3, 2), (1, 3)]):
        state = stepped(problem, algorithm, state, drawn([[[i]]], [[[j]]], t, keys()[0, False], None))
        at, xi, zeta = At(s.x, s.y, made.outer_data, made.inner_data), 2 * i + np.arange(2), 3 * j + np.arange(3)
        f_x, f_y = saga(of_outer, i, (at.f_x(xi), at.f_y(xi)))
        g_y, g_yy_u, g_xy_u = saga(of_inner, j, (at.g_y(zeta), at.H(zeta) @ s.u, at.J(zeta) @ s.u))
        s = SimpleNamespace(**descended(algorithm, s, f_x - g_xy_u, g_y, g_yy_u - f_y))
        close(state[:3], np.concatenate([s.x, s.y, s.u]))
        distances.append(np.abs(f_x - at.f_x(xi)).max())
    np.testing.assert_array_equal(np.array(distances) > 1e-6, [False, False, True, True, False, False, True, True])


# Conditional problems.


@functools.cache
def conditional(kind, ragged):
    build, function = {
        "bilevel": (quadratic.quadratic_conditional, bent_inner),
        "compositional": (quadratic.quadratic_conditional_compositional, bent_map),
    }[kind]
    problem = bent(build(m=5, n=4, ragged=ragged, seed=1), function)
    assert (len(set(lengths(problem)[VISITED])) > 1) == ragged
    return problem


def visit(problem, algorithm, batch=3, seed=5):
    """The batches of a visit to each outer example, as a twin and as a step takes them: its passes, over and over."""
    rng, n, number = np.random.default_rng(seed), problem.sizes()["inner"], algorithm.visit_batches
    passes = visits.passes_of(algorithm, n, batch)
    permutations = [[rng.permutation(count) for _ in range(passes)] for count in lengths(problem)[VISITED]]
    batches = [np.resize(np.concatenate(own), (number, batch)) for own in permutations]
    whole = np.stack([[np.pad(one, (0, n - len(one))) for one in own] for own in permutations])
    lay_out = jax.jit(lambda *one: visits.in_batches(*one, batch, problem.counts is not None, number))
    return batches, lay_out(whole, lengths(problem)[VISITED])


def inner_problems(problem, x, y):
    """For each outer example of the batch its own f and g."""
    f, g = jax.tree.map(np.asarray, (problem.outer_data, problem.inner_data))
    return [At(x, y, [leaf[i : i + 1] for leaf in f], [leaf[i] for leaf in g]) for i in VISITED]


def epoch_sgd(at, levels, lr, batches):
    """2^k steps of length β/2^k in epoch k = 0 … K, from the mean of the iterates of the epoch before."""
    batches = iter(batches)
    for k in range(levels + 1):
        iterates = []
        for _ in range(2**k):
            at = at.after_sgd(lr / 2**k, [next(batches)])
            iterates.append(at.y)
        at = at._replace(y=np.mean(iterates, 0))
    return at


def hypergradient(a, at, batches, length):
    """∇_x f − J u on the last batch, u by a Neumann product on those before it, or by their sum for length None."""
    *for_u, for_x = batches[-TERMS:]
    series = [0], a.neumann_lr, for_u
    return at.D_x(at.neumann_sum(*series) if length is None else at.neumann_product(*series, length), [0], for_x)


def dl_sgd(a, at, batches, length):
    plain = a.inner_steps is not None
    at = at.after_sgd(a.inner_lr, batches[: a.inner_steps]) if plain else epoch_sgd(at, a.levels, a.inner_lr, batches)
    return hypergradient(a, at, batches, length)


def rt_mlmc(a, at, batches, level, length):
    v = lambda k: hypergradient(a, epoch_sgd(at, k, a.inner_lr, batches), batches, length)
    p = 2.0**-level / sum(2.0**-k for k in range(1, a.levels + 1))
    return v(1) + (v(level + 1) - v(level)) / p


@pytest.mark.parametrize(("inner_steps", "ragged"), [(None, False), (4, True)])
def test_a_step_of_dl_sgd_is_the_formula(inner_steps, ragged):
    problem = conditional("bilevel", ragged)
    algorithm = of.DLSGD(*NEUMANN, levels=2, inner_steps=inner_steps, neumann_terms=TERMS)
    batches, laid = visit(problem, algorithm)
    state = algorithm.init(problem, jnp.asarray(X), jnp.asarray(Y))
    for length in range(TERMS):
        found = stepped(problem, algorithm, state, drawn([[VISITED]], [], 3, keys()[length, True], None, laid))
        points = zip(inner_problems(problem, X, Y), batches, strict=True)
        direction = np.mean([dl_sgd(algorithm, at, own, length) for at, own in points], 0)
        assert np.abs(direction).max() > 1e-2
        close(found.x, X - algorithm.outer_lr * direction)
        close(found.y, Y)


MLMC = of.RTMLMC(*NEUMANN, levels=3, neumann_terms=TERMS)


@functools.cache
def mlmc():
    """The estimates at every level and length, found and by the twin: (levels, lengths, 3), the mean over outer examples."""
    problem = conditional("bilevel", True)
    batches, laid = visit(problem, MLMC)
    state, draws = MLMC.init(problem, X, Y), drawn([[VISITED]], [], 3, keys()[0, False], None, laid)
    points = list(zip(inner_problems(problem, X, Y), batches, strict=True))
    cases = [[(level, p) for p in range(TERMS)] for level in (1, 2, 3)]
    estimates = jax.jit(lambda *case: MLMC.estimate(problem, state, draws, *case)[0])
    found = [[estimates(*map(jnp.int32, case)) for case in row] for row in cases]
    expected = [[np.mean([rt_mlmc(MLMC, *point, *case) for point in points], 0) for case in row] for row in cases]
    return np.array(found), np.array(expected), points, draws


def test_estimates_of_rt_mlmc_are_the_formula():
    found, expected, _, _ = mlmc()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert np.abs(np.diff(expected, axis=0)).max() > 1e-4
    assert np.abs(np.diff(expected, axis=1)).min() > 1e-4


def test_levels_of_rt_mlmc_add_up_to_the_deepest():
    """And lengths, in the mean, to the first terms of the Neumann series; the deepest level is DL-SGD's."""
    (found, _, points, draws), problem = mlmc(), conditional("bilevel", True)
    np.testing.assert_allclose(MLMC.probabilities, np.array([4, 2, 1]) / 7, rtol=1e-14)
    summed = np.einsum("k,kl...->l...", MLMC.probabilities, found)
    deepest = lambda at, own, length: hypergradient(MLMC, epoch_sgd(at, 4, MLMC.inner_lr, own), own, length)
    expected = np.array([np.mean([deepest(*point, length) for point in points], 0) for length in range(TERMS)])
    np.testing.assert_allclose(summed, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        summed.mean(0), np.mean([deepest(*point, None) for point in points], 0), rtol=1e-12, atol=1e-12
    )
    deep = of.DLSGD(*NEUMANN, levels=4, neumann_terms=TERMS)
    for length in (0, 3):
        end = stepped(problem, deep, deep.init(problem, X, Y), draws._replace(key=keys()[length, False]))
        close(end.x, X - deep.outer_lr * summed[length])


def test_rt_mlmc_draws_levels_with_their_probabilities_and_lengths_evenly():
    """Each of many steps is along the estimate of exactly one level and length."""
    number, problem, (_, expected, _, draws) = 2000, conditional("bilevel", True), mlmc()
    state = MLMC.init(problem, jnp.asarray(X), jnp.asarray(Y))
    step = jax.jit(jax.vmap(lambda key: MLMC.step(problem, state, draws._replace(key=key))[0].x))
    found = step(jax.random.split(jax.random.key(1), number))
    ends = (X - MLMC.outer_lr * expected).reshape(-1, 3)
    matches = np.abs(np.asarray(found)[:, None] - ends).max(2) < 1e-12
    np.testing.assert_array_equal(matches.sum(1), 1)
    shares = np.outer(MLMC.probabilities, np.full(TERMS, 1 / TERMS)).reshape(-1)
    deviations = (matches.mean(0) - shares) / np.sqrt(shares * (1 - shares) / number)
    assert np.abs(deviations).max() < 3.5


@pytest.mark.parametrize("ragged", [False, True])
def test_a_step_of_bsgd_is_the_formula(ragged):
    problem, algorithm = conditional("compositional", ragged), of.BSGD(0.07)
    batches, laid = visit(problem, algorithm)
    state, draws = algorithm.init(problem, X, Y), drawn([[VISITED]], [], 3, keys()[0, False], None, laid)
    found = stepped(problem, algorithm, state, draws)
    directions = []
    for i, (own,) in zip(VISITED, batches, strict=True):
        r, r_x = map_of([np.asarray(leaf)[i] for leaf in problem.inner_data], X, own)
        directions.append(r_x.T @ outer_gradient(problem.outer_data, r, [i]))
    assert np.abs(np.mean(directions, 0)).max() > 1e-2
    close(found.x, X - algorithm.outer_lr * np.mean(directions, 0))


# PerExample leaves.

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
