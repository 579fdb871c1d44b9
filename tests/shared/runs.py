"""What many tests run: a small unsymmetric problem (p ≠ d, m ≠ n, a `PerExample` leaf, trees), and the command line."""

import sys

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest

import wior
from wior import cli

P, D, M, N = 3, 4, 13, 17

# its place before jax 0.8 was `jax.experimental`
enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


def outer(x, y, batch):
    features, targets = batch["features"], batch["targets"]
    pull = jnp.sum(jnp.sin(y["slope"]) * jnp.sum(x["dense"])) + 0.3 * jnp.sum(x["dense"] ** 2)
    return jnp.mean((features @ y["slope"] + y["shift"][0] - targets) ** 2) + 0.1 * pull


def inner(x, y, batch):
    features, others, targets = batch["features"], batch["others"], batch["targets"]
    error = features @ y["slope"] + y["shift"][0] - targets - others @ x["dense"]
    weight = 1.0 + 0.5 * jnp.tanh(x["weights"])
    ridge = 0.5 * (jnp.sum(jnp.cosh(y["slope"])) + jnp.sum(y["shift"] ** 2))
    return jnp.mean(weight * error**2) + ridge


def problem(seed=0):
    rng = np.random.default_rng(seed)
    outer_data = {"features": rng.normal(size=(M, D)), "targets": rng.normal(size=M)}
    inner_data = {"features": rng.normal(size=(N, D)), "others": rng.normal(size=(N, P)), "targets": rng.normal(size=N)}
    return wior.Bilevel(outer, inner, outer_data, inner_data)


def start():
    rng = np.random.default_rng(1)
    x0 = {"dense": jnp.asarray(rng.normal(size=P)), "weights": wior.PerExample(jnp.asarray(rng.normal(size=N)))}
    y0 = {"slope": jnp.asarray(rng.normal(size=D)), "shift": jnp.asarray(rng.normal(size=1))}
    return x0, y0


ALGORITHM = wior.WiORBO(outer_lr=0.01, inner_lr=0.02, adjoint_lr=0.03, radius=2.0)


def metrics(x, y):
    return {"size": jnp.sum(y["slope"] ** 2), "first": x["dense"][0]}


def solve(**options):
    x0, y0 = start()
    options = {"batch_size": (3, 5), "steps": 60, "record_every": 7, "metrics": metrics, "seed": 3} | options
    return wior.solve(options.pop("problem", problem()), options.pop("algorithm", ALGORITHM), x0, y0, **options)


def run_main(monkeypatch, capsys, *arguments):
    """The command line in this process: its exit code, and what it printed on both channels."""
    monkeypatch.setattr(sys, "argv", ["wior", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err
