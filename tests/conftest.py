"""Tests run in float64, where numbers are compared to many digits; what must hold in float32 says so itself.

Compilation is most of their time, so XLA is told to hurry: what it leaves out makes programs fast, not right. The
subprocesses that some tests start run as users do.
"""

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
