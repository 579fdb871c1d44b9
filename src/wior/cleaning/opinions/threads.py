"""Blocks of rows on all cores, with one thread of linear algebra on each.

The threads of a BLAS wait for each other by spinning. Where other work has a core, as the compiler of a network has
here, small products take many times as long by several of them as by one.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")
MOST = 8  # blocks at once, each of which takes memory


def by_one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The function, while which every product of matrices is made by the thread that asks for it."""

    @functools.wraps(function)
    def limited(*args: P.args, **keywords: P.kwargs) -> R:
        with _libraries().limit(limits=1, user_api="blas"):
            return function(*args, **keywords)

    return limited


def part_by_part(function: Callable[[int], R], parts: int, at_once: int) -> Iterator[R]:
    """What a function makes of every part: of the first one alone, since it may be the last that is asked for, then of
    some at once.
    """
    yield function(0)
    pool = ThreadPoolExecutor(at_once)
    try:
        yield from pool.map(function, range(1, parts))
    finally:
        pool.shutdown(cancel_futures=True)


def in_background(work: Callable[[], Any]) -> threading.Thread:
    """A thread that has begun the work."""
    thread = threading.Thread(target=work, name="compiling")
    thread.start()
    return thread


def side_by_side(function: Callable[[Any], R], blocks: Iterable[Any]) -> Iterator[R]:
    """What a function makes of every block, in their order."""
    pool = ThreadPoolExecutor(min(os.cpu_count() or 1, MOST))
    try:
        yield from pool.map(function, blocks)
    finally:
        pool.shutdown(cancel_futures=True)


@functools.cache
def _libraries() -> Any:
    return ThreadpoolController()
