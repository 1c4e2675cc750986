"""diagnose: of any wrong buffer, no sentence is false, and no repair that is sure is wrong."""

import dataclasses

import numpy as np
import pytest
from compare.sentences import diagnosis_of, false_sentences, is_wrong
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
