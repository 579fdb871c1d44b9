"""Tests run in float64, where numbers are compared to many digits; what must hold in float32 says so itself.

Compilation is most of their time, so XLA is told to hurry: what it leaves out makes programs fast, not right. The
subprocesses that some tests start run as users do. A process that has compiled many hundreds of programs runs out of memory
maps, of which Linux allows 65530, and crashes in the next compilation; so they are given up before that.
"""

import gc
import itertools

import jax

from wior.running import block

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)

collect_ignore = ["shared"]  # imported by tests, with no examples to run

_finished = itertools.count(1)


def pytest_runtest_teardown() -> None:
    if next(_finished) % 10 == 0 and block.short_of_maps():
        jax.clear_caches()
        gc.collect()
