"""Tests run in float64, where numbers are compared to many digits; what must hold in float32 says so itself."""

import jax

jax.config.update("jax_enable_x64", True)
