"""Golden values of the paper's five methods under three orders: a change of structure changes no number.

`python tests/algorithms/test_golden.py` writes them anew, where numbers are meant to change.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import wior
from runs import enable_x64
from wior.tasks import quadratic

FILE = Path(__file__).with_name("golden.json")
METHODS = {
    "WiORBO": (wior.WiORBO(0.01, 0.02, 0.03), quadratic.quadratic),
    "WiORCBO": (wior.WiORCBO(0.01, 0.02, 0.03), quadratic.quadratic_conditional),
    "WiORComp": (wior.WiORComp(0.01, 0.02, 0.03), quadratic.quadratic_compositional),
    "WiORCComp": (wior.WiORCComp(0.01, 0.02, 0.03), quadratic.quadratic_conditional_compositional),
    "WiORMinimax": (wior.WiORMinimax(0.01, 0.02), quadratic.quadratic_minimax),
}
ORDERS = ("independent", "random-reshuffling", "herding")


def found(method, order):
    """The state and the history at the end of a short run, in numbers."""
    algorithm, make = METHODS[method]
    with enable_x64(True):
        rng = np.random.default_rng(5)
        run = wior.solve(
            make().problem, algorithm, rng.normal(size=3), rng.normal(size=5), order=order, batch_size=2, steps=11,
            record_every=4, metrics=lambda x, y: {"sum": x.sum()}, seed=3,
        )  # fmt: skip
        state = [np.ravel(leaf).tolist() for leaf in jax.tree.leaves(run.state)]
        history = {name: values.tolist() for name, values in run.history.items() if name != "seconds"}
    return {"state": state, "history": history}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("method", METHODS)
def test_numbers_are_those_of_before(method, order):
    golden, now = json.loads(FILE.read_text())[f"{method}, {order}"], found(method, order)
    assert set(now["history"]) == set(golden["history"])
    for name, values in golden["history"].items():
        np.testing.assert_allclose(now["history"][name], values, rtol=1e-11, err_msg=name)
    for one, other in zip(now["state"], golden["state"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-14)


if __name__ == "__main__":
    values = {f"{method}, {order}": found(method, order) for method in METHODS for order in ORDERS}
    FILE.write_text(json.dumps(values, indent=1) + "\n")
