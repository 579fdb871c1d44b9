"""Blocks side by side, and one thread of linear algebra while they are computed."""

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from wior.cleaning.opinions.threads import by_one_blas_thread, side_by_side


def threads():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_a_product_is_made_by_one_thread_and_later_by_as_many_as_before():
    with threadpool_limits(2, user_api="blas"):
        assert by_one_blas_thread(lambda add: (threads(), add))(add=3) == ({1}, 3)
        assert threads() == {2}


def test_an_error_leaves_as_many_threads_as_before():
    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(ZeroDivisionError):
            by_one_blas_thread(lambda: 1 / 0)()
        assert threads() == {2}


def test_blocks_are_given_back_in_their_order():
    assert list(side_by_side(lambda one: one**2, range(50))) == [one**2 for one in range(50)]


def test_an_error_in_a_block_is_raised():
    def refused(number):
        if number == 2:
            raise ValueError("block 2")

    with pytest.raises(ValueError, match="block 2"):
        list(side_by_side(refused, range(5)))
