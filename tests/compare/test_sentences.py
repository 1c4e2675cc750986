"""diagnose: of any wrong buffer, no sentence is false, and no repair that is sure is wrong."""

import dataclasses
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from compare.diagnoses import diagnosis_of
from compare.repairs import is_lost, is_wrong, same
from compare.sentences import false_sentences
from compare.wrong_packers import Case, make_case

import rnnlayout as rl


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_sentences_are_true(first):
    for number in range(first, first + 20):
        case = make_case(number)
        diagnosis, fixed = diagnosis_of(case)
        assert not false_sentences(case, diagnosis), (number, case.name, diagnosis.text)
        assert not is_wrong(case, diagnosis, fixed), (number, case.name, diagnosis.text)


@pytest.mark.parametrize(
    "number, restored",
    [pytest.param(4354, False, marks=pytest.mark.long), (190, True), (286, True), (5832, False)],
)
def test_what_a_case_has_shown(number, restored):
    """A sum that was rounded again was "rounded to fixed point"; small matrices in reverse order
    were not found. The checker allowed a bias to which 2 was added the rounding of 4."""
    case = make_case(number)
    diagnosis, fixed = diagnosis_of(case)
    assert not false_sentences(case, diagnosis) and "point" not in diagnosis.text
    assert same(fixed, case.meant) == restored


def report(change, text):
    """Return a case with a change of the buffer, and its diagnosis with another text."""
    spec = rl.Spec("lstm", 5, 3)
    like = np.random.default_rng(0).normal(size=spec.num_params).astype("f4")
    case = Case(spec, "float32", [], like, like, like, change(like.copy()))
    diagnosis, _ = diagnosis_of(case)
    mistake = dataclasses.replace(diagnosis.mistakes[0], text=text, where=())
    return case, dataclasses.replace(diagnosis, text=text, mistakes=(mistake,))


def add_two(flat):
    flat[7:9] += 1
    return flat


OR = "were the weights trained further, or edited?"
HALVES = "the values are rounded to float16"
LIES = {
    "a count": (add_two, f"3 of 120 values are changed, by up to 1: {OR}"),
    "a limit": (add_two, f"2 of 120 values are changed, by up to 2: {OR}"),
    "a dtype": (lambda x: x.astype("f2").astype("f4"), "the values are rounded to bfloat16"),
    "an exception": (lambda x: add_two(x.astype("f2").astype("f4")), f"{HALVES}, but for 1 value"),
    "a factor": (lambda x: x * np.float32(1.7), "all values are multiplied by 1.6"),
    "a gate": (lambda x: np.concatenate([x[15:30], x[:15], x[30:]]),
               "gates i and g swapped in the input matrices"),
    "a place": (lambda x: np.concatenate([x[15:30], x[:15], x[30:]]),
                "gates i and f swapped in the recurrent matrices"),
    "an absence": (lambda x: np.concatenate([x[15:30], x[:15], x[30:]]),
                   "layer 0, recurrent matrix is not in the buffer"),
    "no known words": (add_two, "the values are wrong"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_false_sentence_is_seen(lie):
    case, diagnosis = report(*LIES[lie])
    assert false_sentences(case, diagnosis)


def test_a_wrong_repair_is_seen():
    case, diagnosis = report(lambda x: x[::-1].copy(), "all values are in the reverse order")
    assert not is_wrong(case, diagnosis, case.like)
    for at in (0, 110):  # a value of W, and of bR
        fixed = case.like.copy()
        fixed[at] += 1
        assert is_wrong(case, diagnosis, fixed)
        lossy = dataclasses.replace(diagnosis.mistakes[0], lost="bR")
        assert is_wrong(case, dataclasses.replace(diagnosis, mistakes=(lossy,)), fixed) == (at == 0)


@pytest.mark.parametrize("dtype, units", [(np.float32, 16), (ml_dtypes.bfloat16, 4)])
def test_how_many_last_bits_are_lost(dtype, units):
    """1 is left of a sum of 1 and 1. The checker allowed bfloat16 16 units too: an eighth of 1."""
    case = SimpleNamespace(like=np.ones(1, dtype), spec=rl.Spec("lstm", 1, 1))
    mistake = SimpleNamespace(lost="the last bits of bR")
    x = 1 + np.array([units, units + 1]) * float(ml_dtypes.finfo(dtype).eps)
    lost = is_lost(mistake, (0, 0, "bR"), x, np.ones(2), 2 * np.ones(2), [], case)
    assert lost.tolist() == [True, False]
