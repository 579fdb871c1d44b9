"""`check` names derivatives that are not finite."""

import jax.numpy as jnp
import numpy as np

import wior
from faulty_losses import FEATURES, INPUTS, drawn, loss_of
from wior.instruments.checking import values


def test_a_derivative_that_is_not_finite_is_named_with_its_line_and_row():
    features = np.abs(FEATURES)
    features[11] = 0
    outer = lambda x, y, b: jnp.mean((b @ y) ** 2)

    def said(root):
        problem = wior.Bilevel(outer, lambda x, y, b: jnp.mean(root(b @ y)) + x * jnp.sum(y**2), FEATURES, features)
        losses = values.Losses(drawn(problem), jnp.ones(()), jnp.ones(INPUTS))
        return values.not_finite_at_start(losses, loss_of(problem, "inner"))

    (finding,) = said(lambda a: jnp.where(a > 0, jnp.sqrt(a), 0.0))
    assert finding.severity == "error"
    assert finding.message.startswith(
        "has a derivative that is not finite at x0, y0 on row 11 of inner_data; it begins with "
    )
    assert "at test_values.py:" in finding.message
    assert said(lambda a: jnp.where(a > 0, jnp.sqrt(jnp.where(a > 0, a, 1.0)), 0.0)) == []
    (finding,) = said(jnp.log)
    assert finding.message.startswith("is not finite at x0, y0 on row 11")
