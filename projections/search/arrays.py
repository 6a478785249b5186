"""What NumPy's ascending arrays are asked for."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_first(values: "NDArray[Any]") -> "NDArray[np.bool_]":
    """Which of the values do not repeat the one before."""
    found = np.empty(len(values), dtype=np.bool_)
    found[:1] = True
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found


def is_in(values: "NDArray[np.uint64]", among: "NDArray[np.uint64]") -> "NDArray[np.bool_]":
    """Which of these are among those. Both ascend."""
    if not len(among):
        return np.zeros(len(values), dtype=np.bool_)
    places = np.searchsorted(among, values)
    places[places == len(among)] = 0
    found: NDArray[np.bool_] = among[places] == values
    return found
