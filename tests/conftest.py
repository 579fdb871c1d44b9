"""Tests run in float64, where numbers are compared to many digits; what must hold in float32 says so itself.

Compilation is most of their time, so XLA is told to hurry: what it leaves out makes programs fast, not right. What it
has compiled is kept in pytest's cache, for the other workers and the next session, until `pytest --cache-clear` or
until it takes more than `MOST_BYTES`; its name is a hash of the program, the versions and the flags, so a program that
has changed is compiled. The subprocesses that some tests start run as users do. A process that has compiled many
hundreds of programs runs out of memory maps, of which Linux allows 65530, and crashes in the next compilation; so they
are given up before that.
"""

import gc
import itertools
import shutil

import jax
import pytest

from wior.running import block

MOST_BYTES = 2 * 2**30

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)

collect_ignore = ["shared"]  # imported by tests, with no examples to run

_finished = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config, "cache", None) is None:  # `-p no:cacheprovider`
        return
    programs = config.cache.mkdir("programs")
    first = not hasattr(config, "workerinput")  # and not one of several workers, which come later
    if first and sum(file.stat().st_size for file in programs.iterdir()) > MOST_BYTES:
        shutil.rmtree(programs, ignore_errors=True)
    jax.config.update("jax_compilation_cache_dir", str(programs))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_runtest_teardown() -> None:
    if next(_finished) % 10 == 0 and block.short_of_maps():
        jax.clear_caches()
        gc.collect()
