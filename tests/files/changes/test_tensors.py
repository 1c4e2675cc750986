"""Files of tensors that were changed: no reader answers with another RNN without a message."""

from dataclasses import replace
from functools import partial
from itertools import product

import pytest
from commands import ROOT
from marks import in_turn
from oracles.some import LAYOUTS

import rnnlayout as rl
from rnnlayout._files.formats.registry import TensorFormat, format_named, readable_suffixes

from .changing import EXEMPT, count_answers
from .sources import SIZES, WRITERS, source, write

SAME_AS_OTHERS = (".pth", ".ckpt", ".pickle")  # suffixes of formats that have another suffix too
FORMATS = [suffix for suffix in WRITERS if suffix not in SAME_AS_OTHERS]
IN_EVERY_FORMAT = {"torch": "two layers, both directions", "flax-nnx": "one layer"}


def readable_source(layout, size, suffix, folder):
    """Return a good source, with layout= in its options if the names do not select the layout."""
    separator = format_named(suffix[1:]).separator
    tensors = source(layout, size, separator)
    path = write(folder, suffix, tensors.tensors)
    if not tensors.options:
        try:
            is_read = all(rnn in rl.load(path).values() for rnn in tensors.rnns)
        except rl.Error:
            is_read = False
        tensors = tensors if is_read else replace(tensors, options={"layout": layout})
    found = rl.load(path, **tensors.options)
    assert len(found) == len(tensors.rnns) and all(rnn in found.values() for rnn in tensors.rnns)
    assert not found.unread
    return tensors


def check(layout, size, suffix, folder, every=False):
    tensors = readable_source(layout, size, suffix, folder)
    counts, failures = count_answers(tensors, partial(write, folder, suffix), every)
    assert not failures, "\n".join(failures)
    return counts


@pytest.mark.parametrize("layout, size", in_turn(LAYOUTS, SIZES), ids=str)
def test_every_layout(layout, size, tmp_path):
    check(layout, size, ".safetensors", tmp_path)


@pytest.mark.parametrize("layout", IN_EVERY_FORMAT)
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format(suffix, layout, tmp_path):
    check(rl.layout(layout), IN_EVERY_FORMAT[layout], suffix, tmp_path)


def test_every_format_of_tensors_has_a_writer():
    formats = {suffix: format_named(suffix[1:]) for suffix in readable_suffixes()}
    of_tensors = {suffix for suffix, format in formats.items() if isinstance(format, TensorFormat)}
    assert of_tensors - {".pt2"} == {*WRITERS}  # test_modules.py changes exported programs


def test_the_docs_list_the_changes_that_make_another_file():
    section = (ROOT / "docs/files.md").read_text().partition("### Changes that no file shows")[2]
    rows = section.partition("| --- |")[2].partition("\n\n")[0].splitlines()[1:]
    assert [row.split("|")[1].strip() for row in rows] == [*EXEMPT]


SOME = [*product(LAYOUTS, SIZES)][::5]


@pytest.mark.long
@pytest.mark.parametrize("case, suffix", in_turn(SOME, FORMATS), ids=str)
def test_every_tensor(case, suffix, tmp_path):
    check(*case, suffix, tmp_path, every=True)
