"""Which RNNs rnnlayout takes and cuDNN refuses, and the reverse: the whole list.

The page docs/cudnn-versions.md shows it (tables.py writes it there). tests/model/test_real_cudnn.py
asks the libraries about the examples of each row, and looks for differences that no row explains.
"""

from collections.abc import Callable
from dataclasses import dataclass

MAX_LAYERS = 65536
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
ALL = ("9", "8", "7")  # the calls of 9; those of 9 in 8.9; those of 7 in 8.9


@dataclass(frozen=True)
class Difference:
    """One row. A question is one of ask_cudnn's."""

    what: str
    we: str  # "take" or "refuse"
    it: tuple[str, ...]  # "takes", "refuses", "errs": with an answer that cannot be true
    calls: tuple[str, ...]
    applies: Callable[[dict], bool]
    examples: tuple[dict, ...]
    why: str
    error: str = ""  # a part of what we say when we refuse


def matrix_elements(question):
    """Of all matrices together."""
    H, P = question["hidden_size"], question.get("proj_size", 0)
    P = 0 if P == H else P  # cuDNN's way to say none
    D, L = 1 + question.get("bidirectional", False), question.get("num_layers", 1)
    state = P or H
    first = 0 if question.get("skip_input") else question["input_size"]
    width = first + (L - 1) * D * state + L * state
    return D * H * (GATES[question["cell"]] * width + L * P)


def bias_elements(question):
    kinds = {"double": 2, "none": 0}.get(question.get("bias", "double"), 1)
    D, L = 1 + question.get("bidirectional", False), question.get("num_layers", 1)
    return kinds * L * D * GATES[question["cell"]] * question["hidden_size"]


def rnn(cell, input_size, hidden_size, **more):
    return {"cell": cell, "input_size": input_size, "hidden_size": hidden_size, **more}


DIFFERENCES = [
    Difference(
        what="skip input with I unlike H",
        we="refuse",
        it=("takes",),
        calls=ALL,
        applies=lambda q: q.get("skip_input", False) and q["input_size"] != q["hidden_size"],
        examples=(
            rnn("lstm", 3, 5, skip_input=True),
            rnn("gru", 7, 5, skip_input=True, num_layers=2, bidirectional=True),
            rnn("rnn_relu", 2, 1, skip_input=True, bias="none"),
        ),
        why="Layer 0 adds x to every gate as it is, so x has to be as wide as a gate. The call that"
        " describes the RNN does not check it.",
        error="needs input_size == hidden_size",
    ),
    Difference(
        what="projSize 0",
        we="take",
        it=("refuses",),
        calls=ALL,
        applies=lambda q: q.get("call", {}).get("projSize") == 0,
        examples=(
            rnn("lstm", 3, 5, call={"projSize": 0}),
            rnn("gru", 3, 5, call={"projSize": 0}),
        ),
        why="`proj_size=0` is how a `Spec` says that there is no projection. cuDNN's way is"
        " projSize = hiddenSize, and 0 itself is BAD_PARAM, whatever a comment in its header says.",
    ),
    Difference(
        what="projSize equal to hiddenSize",
        we="refuse",
        it=("takes",),
        calls=ALL,
        applies=lambda q: q.get("proj_size", 0) == q["hidden_size"],
        examples=(
            rnn("lstm", 3, 5, proj_size=5),
            rnn("lstm", 3, 1, proj_size=1, num_layers=2),
            rnn("gru", 3, 5, proj_size=5),
        ),
        why="The same, seen from the other side: to cuDNN this is no projection, for any cell. In a"
        " `Spec` it would be a projection of full size, which cuDNN has no place for.",
        error="proj_size is",
    ),
    Difference(
        what=f"more than {MAX_LAYERS} layers",
        we="refuse",
        it=("takes",),
        calls=ALL,
        applies=lambda q: q.get("num_layers", 1) > MAX_LAYERS,
        examples=(rnn("rnn_tanh", 1, 1, num_layers=MAX_LAYERS + 1, bias="none"),),
        why="Our limit: no such network exists, but a damaged file may claim one.",
        error=f"num_layers is {MAX_LAYERS + 1}, need at most {MAX_LAYERS}",
    ),
    Difference(
        what="2^31 elements and more in all matrices, or in all biases",
        we="take",
        it=("refuses", "errs"),
        calls=ALL,
        applies=lambda q: max(matrix_elements(q), bias_elements(q)) >= 2**31,
        examples=(
            rnn("rnn_tanh", 2**31 - 1, 1, bias="none"),
            rnn("lstm", 65000, 65000, dtype="float16"),
            rnn("rnn_relu", 46341, 46341, skip_input=True),
            rnn("gru", 2**31, 3),
            rnn("lstm", 2**20, 2**20, bidirectional=True),
            rnn("lstm", 20000, 20000, proj_size=15000),
            rnn("lstm", 300_000_000, 300_000_000, skip_input=True, proj_size=1),
        ),
        why="cuDNN counts each of the two in 32 bits with a sign. From there on the size it gives"
        " is wrong; asked for a piece it answers INTERNAL_ERROR, no address, or (past 2^32, where a"
        " count may be positive again) a wrong one. We go on to 2^63 bytes: such weights can be"
        " converted, but cuDNN cannot say where they are.",
    ),
    Difference(
        what="2^31 elements and more in both together, in the calls of cuDNN 7",
        we="take",
        it=("refuses", "errs"),
        calls=("7",),
        applies=lambda q: matrix_elements(q) + bias_elements(q) >= 2**31,
        examples=(rnn("rnn_tanh", 2**31 - 3, 1),),
        why="There the weights are described as a filter of (elements, 1, 1), and each of these is"
        " an int.",
    ),
    Difference(
        what="bfloat16 in cuDNN 8 and 7",
        we="take",
        it=("refuses",),
        calls=("8", "7"),
        applies=lambda q: q.get("dtype") == "bfloat16",
        examples=(
            rnn("lstm", 3, 5, dtype="bfloat16"),
            rnn("gru", 3, 5, dtype="bfloat16", num_layers=2),
            rnn("rnn_tanh", 3, 5, dtype="bfloat16", bias="none"),
        ),
        why='A `Spec` is of any version. Told the version, `rl.layout("cudnn", version=8)`, we'
        " refuse too.",
    ),
]


def rows():
    """The table for pages."""
    for row in DIFFERENCES:
        its = " or ".join({"errs": "answers wrongly"}.get(word, word) for word in row.it)
        calls = "all" if row.calls == ALL else ", ".join(row.calls)
        yield row.what, {"take": "takes", "refuse": "refuses"}[row.we], its, calls, row.why
