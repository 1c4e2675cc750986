"""A cache keeps as many results as their sizes allow, and the newest whatever its size."""

import threading

import numpy as np
import pytest

import rnnlayout as rl
from rnnlayout._model import sized_cache
from rnnlayout._sources import fitting


@pytest.fixture
def counted():
    """A cached function of a number that has this size, and the arguments of its calls."""
    calls = []

    @sized_cache.cached_by_size(lambda number: number)
    def double(number):
        calls.append(number)
        return 2 * number

    return double, calls


def test_a_result_is_computed_once(counted):
    double, calls = counted
    assert [double(3), double(4), double(3)] == [6, 8, 6]
    assert calls == [3, 4]
    double.cache_clear()
    assert double(3) == 6 and calls == [3, 4, 3]


def test_the_oldest_results_are_forgotten(counted):
    double, calls = counted
    third = sized_cache.MOST // 3
    for number in (third, third - 1, third, third - 2, third - 1):  # the last but one forgets third
        double(number)
    assert calls == [third, third - 1, third - 2]
    double(third)
    assert calls[3:] == [third]


def test_small_results_are_at_most_512():
    absolute = sized_cache.cached_by_size(lambda _: 0)(abs)
    for number in range(600):
        absolute(-number)
    assert len(absolute.results) == 512


def test_a_large_result_stays_until_the_next(counted):
    double, calls = counted
    for number in (1, 2 * sized_cache.MOST, 2 * sized_cache.MOST, 2, 1):
        double(number)
    assert calls == [1, 2 * sized_cache.MOST, 2, 1]
    assert [number for (number,) in double.results] == [2, 1]


def test_errors_are_not_kept_and_threads_may_share(counted):
    double, _ = counted
    with pytest.raises(TypeError):
        double(None)
    threads = [
        threading.Thread(target=lambda: [double(k % 700) for k in range(20_000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sizes = [64 + number for (number,) in double.results]
    assert len(sizes) > 10 and sum(sizes) <= sized_cache.MOST


def test_refused_networks_do_not_stay():
    """They stayed in caches of 512 results: 6 MB of a file of 0.6 MB."""
    fitting._fitting_rnns_or_error.cache_clear()
    for layers in range(400, 440):
        shapes = {"weight_ih": (4, 1), "weight_hh": (4, 1), "bias_ih": (4,), "bias_hh": (3,)}
        tensors = {f"{name}_l{k}": np.zeros(shape, "f4")
                   for k in range(layers) for name, shape in shapes.items()}  # fmt: skip
        with pytest.raises(rl.LayoutError, match="bias_hh_l0: shape"):
            rl.convert(tensors, to="keras")
    kept = fitting._fitting_rnns_or_error.results
    assert sum(len(shapes) for _, shapes, *_ in kept) <= sized_cache.MOST < 40 * 4 * 400
