"""The step of every baseline in matrices, in a naive twin, on problems with third derivatives."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import wior
import wior.baselines as of
from twins import MINIMAX, mean
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


def saga(table, slot, new):
    """part_i − table_i + mean(table), over the batches met; one that was not counts as the mean so far."""
    average = [np.mean(parts, 0) for parts in zip(*table.values(), strict=True)] if table else new
    known = table.get(slot, average)
    table[slot] = new
    return [part - old + mean for part, old, mean in zip(new, known, average, strict=True)]
