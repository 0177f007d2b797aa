"""The few sums that measurements need, and NumPy's only home in the package.

The original benchmark rounded with NumPy, so its printed figures come out to the last digit only
with NumPy's rounding. The import waits for the first number: collecting tests and printing help
do without it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """Median; the mean of the middle two when the count is even."""
    import numpy as np

    return float(np.median(values))


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, summed exactly: the order of the values cannot change it.

    A rounded running sum can. Ten published runs of one case have the mean 8773.375 and were
    printed as 8773.38; added up in the order in which they were printed they come out below.
    """
    return math.fsum(values) / len(values)


def sample_standard_deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample (n - 1); needs two values at least."""
    import numpy as np

    return float(np.std(values, ddof=1))


def rounded(value: float, decimals: int) -> float:
    """Round as NumPy does: scale, round half to even, scale back."""
    import numpy as np

    return float(np.round(value, decimals))
