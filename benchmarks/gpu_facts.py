"""Questions about cuDNN that only a GPU can answer: one case of gpu.py each.

An answer is a dict. It is compared with what we assume so far, if we assume anything; a difference
matters to the fakes in tests/fakes and to our GPU path. A wrong assumption may kill the process.
"""

import ctypes

import gpu_facts_captures  # noqa: F401, its questions
import gpu_facts_memory  # noqa: F401, its questions
import gpu_facts_results  # noqa: F401, its questions
import gpu_facts_streams  # noqa: F401, its questions
from gpu_ask import FACTS, Gpu


def fact(name, folder, cublas=None):
    """Answer a question. folder: it contains libcudnn; cublas: a library to load before."""
    if cublas:
        ctypes.CDLL(cublas, mode=ctypes.RTLD_GLOBAL)
    return compared(name, FACTS[name][0](Gpu(folder)))


def compared(name, answer):
    """Return {"answer", "expected", "as_expected"}; the last is None if nothing is expected."""
    expected = {} if "left_out" in answer else FACTS[name][1]
    same = all(answer.get(key) == value for key, value in expected.items())
    return {"answer": answer, "expected": expected, "as_expected": same if expected else None}
