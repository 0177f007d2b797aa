"""Numbers as people read them."""

import pytest

from pytest_dlperf.model.numbers import duration, quantity


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (999.94, "GB", "999.9 GB"),
        (999.96, "GB", "1000 GB"),
        (99.996, "GB", "100.0 GB"),
        (9.9996, "GB", "10.00 GB"),
        (0.00012345, "s", "0.0001234 s"),
        (12345.6, "images/s", "12345.60 images/s"),
        (1.999, "x", "2.00 x"),
        (1e300, "GB", "1e+300 GB"),
        (None, "GB", "-"),
    ],
)
def test_a_number_has_the_digits_that_suit_it(value, unit, written):
    assert quantity(value, unit) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(119.4, "119 s"), (119.6, "2 min"), (7169, "119 min"), (7199.9, "2.0 h"), (7300, "2.0 h")],
)
def test_a_time_is_in_the_largest_unit_that_suits_it(seconds, written):
    assert duration(seconds) == written
