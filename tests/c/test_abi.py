"""Programs that were compiled before run with the library as it is now: tools/abi.py.

Until 0.1.0 is released, cmake/abi.txt is a candidate: after a change on purpose, run
tools/abi.py --write.
"""

import re
import sys

import pytest
from commands import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import abi

RECORDED, NOW = abi.RECORDED.read_text().splitlines(), abi.current()


def test_nothing_that_is_recorded_has_changed():
    assert NOW[0] == RECORDED[0], "a new soname: tools/abi.py --write"
    assert abi.broken(RECORDED, NOW) == []


def test_each_function_is_recorded():
    """test_install.py compares the same names with what the library exports."""
    declared = re.findall(r"^(?:\w+[ *]+)+(rnl_\w+)\(", abi.HEADER.read_text(), re.MULTILINE)
    recorded = [line for line in NOW if line.startswith("function ")]
    assert [re.search(r"(rnl_\w+)\(", line)[1] for line in recorded] == declared
    assert len(declared) > 40


@pytest.mark.parametrize(
    "old, new, broken",
    [
        ("void rnl_set_num_threads(int n);", "", ["function void rnl_set_num_threads(int)"]),
        ("int rnl_num_threads(void)", "long rnl_num_threads(void)",
         ["function int rnl_num_threads(void)"]),
        ("int64_t k, rnl_tensor *tensor", "int k, rnl_tensor *tensor",
         ["function rnl_status rnl_layout_tensor(const rnl_layout *, const rnl_spec *, unsigned, "
          "int64_t, rnl_tensor *, rnl_error *)"]),
        ("    void *hn, *cn;\n    int (*poll)", "    void *cn, *hn;\n    int (*poll)",
         ["struct rnl_rnn_call cn at 136", "struct rnl_rnn_call hn at 128"]),
        ("    char text[1024];", "    char text[512];",
         ["struct rnl_error call at 1032", "struct rnl_error number at 1040",
          "struct rnl_error size 1048"]),
        ("    rnl_dtype dtype;\n} rnl_spec;",
         "    rnl_dtype dtype;\n    int64_t more;\n} rnl_spec;",
         ["struct rnl_spec size 80"]),
        ("{ RNL_LSTM, RNL_GRU,", "{ RNL_GRU, RNL_LSTM,", ["value RNL_GRU 1", "value RNL_LSTM 0"]),
        # what does not break a program
        ("void rnl_set_num_threads(int n);", "void rnl_set_num_threads(int number);", []),
        ("void rnl_set_num_threads(int n);",
         "void rnl_set_num_threads(int n);\nvoid rnl_more(void);", []),
        ("RNL_RNN_RELU }", "RNL_RNN_RELU, RNL_MORE }", []),
    ],
)  # fmt: skip
def test_a_change_that_breaks_programs_is_seen(tmp_path, monkeypatch, old, new, broken):
    text = abi.HEADER.read_text()
    assert text.count(old) == 1
    (tmp_path / "rnnlayout.h").write_text(text.replace(old, new))
    monkeypatch.setattr(abi, "HEADER", tmp_path / "rnnlayout.h")
    now = abi.current()
    assert now != NOW or "number" in new
    assert abi.broken(NOW, now) == broken
