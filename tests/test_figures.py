"""Pictures of numbers of every size."""

import numpy as np
import pytest

from wior import figures


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_no_axis_can_show_is_left_out_and_nothing_else(kind):
    values = np.array([1.0, -2.0, np.inf, np.nan], kind)
    np.testing.assert_array_equal(figures.drawable(values), [1.0, -2.0, np.nan, np.nan])
    np.testing.assert_array_equal(figures.drawable(np.array([1e300, -1e99])), [np.nan, -1e99])
