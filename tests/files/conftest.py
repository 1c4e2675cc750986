"""The limits for reading a file, in calls; in long tests in seconds."""

from functools import partial

import pytest
from files.hostile import limits
from marks import long


@pytest.fixture(
    scope="module", params=[limits.CALLS, long(limits.SECONDS)], ids=["calls", "seconds"]
)
def unit(request):
    """The unit in which the work of reading a file is limited."""
    return request.param


@pytest.fixture
def limited(unit):
    """`with limited():` asserts that reading a file stays within the limits."""
    return partial(limits.limited, unit)
