"""The complete list of RNNs that rnnlayout accepts and cuDNN refuses, and the reverse.

tables.py writes it into docs/cudnn-versions.md. tests/model/test_real_cudnn.py asks the libraries
about the examples of each row, and searches for differences that no row explains.
"""

from collections.abc import Callable
from dataclasses import dataclass

MAX_LAYERS = 65536
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
ALL = ("9", "8", "7")  # the calls of 9; the same calls in 8.9; the calls of 7 in 8.9


@dataclass(frozen=True)
class Difference:
    """One row. A question has the form that ask_cudnn.py describes."""

    what: str
    we: str  # "take" or "refuse"
    it: tuple[str, ...]  # "takes", "refuses", "errs": the answer cannot be true
    calls: tuple[str, ...]
    applies: Callable[[dict], bool]
    examples: tuple[dict, ...]
    why: str
    error: str = ""  # a part of our error text if we refuse


def matrix_elements(question):
    """Return the number of elements of all matrices together."""
    H, P = question["hidden_size"], question.get("proj_size", 0)
    P = 0 if P == H else P  # for cuDNN, P == H means no projection
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
        what="skip input with I != H",
        we="refuse",
        it=("takes",),
        calls=ALL,
        applies=lambda q: q.get("skip_input", False) and q["input_size"] != q["hidden_size"],
        examples=(
            rnn("lstm", 3, 5, skip_input=True),
            rnn("gru", 7, 5, skip_input=True, num_layers=2, bidirectional=True),
            rnn("rnn_relu", 2, 1, skip_input=True, bias="none"),
        ),
        why="Layer 0 adds x to every gate unchanged, so x must be as wide as a gate. The call that"
        " describes the RNN does not check this.",
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
        why="In a `Spec`, `proj_size=0` means no projection. In cuDNN, projSize = hiddenSize means"
        " that; 0 is refused with BAD_PARAM, although a comment in its header says otherwise.",
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
        why="The reverse case: for cuDNN this means no projection, for every cell. In a `Spec` it"
        " would be a projection of full size, which cuDNN cannot represent.",
        error="proj_size is",
    ),
    Difference(
        what=f"more than {MAX_LAYERS} layers",
        we="refuse",
        it=("takes",),
        calls=ALL,
        applies=lambda q: q.get("num_layers", 1) > MAX_LAYERS,
        examples=(rnn("rnn_tanh", 1, 1, num_layers=MAX_LAYERS + 1, bias="none"),),
        why="A limit of rnnlayout: no such network exists, but a damaged file may claim one.",
        error=f"num_layers is {MAX_LAYERS + 1}, need at most {MAX_LAYERS}",
    ),
    Difference(
        what="2^31 or more elements in all matrices together, or in all biases together",
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
        why="cuDNN counts each of the two in a signed 32-bit integer. From this size on, the size"
        " that it returns is wrong. For a single matrix or bias it returns INTERNAL_ERROR, no"
        " address or, beyond 2^32, where a count may be positive again, a wrong address. rnnlayout"
        " supports up to 2^63 bytes: such weights can be converted, but cuDNN cannot locate them.",
    ),
    Difference(
        what="2^31 or more elements in matrices and biases together, with the calls of cuDNN 7",
        we="take",
        it=("refuses", "errs"),
        calls=("7",),
        applies=lambda q: matrix_elements(q) + bias_elements(q) >= 2**31,
        examples=(rnn("rnn_tanh", 2**31 - 3, 1),),
        why="These calls describe the weights as a filter of shape (elements, 1, 1), and each"
        " dimension is an int.",
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
        why='A `Spec` is valid for any version. With `rl.layout("cudnn", version=8)` rnnlayout'
        " refuses too.",
    ),
]


def rows():
    """Yield the rows of the table in docs/cudnn-versions.md."""
    for row in DIFFERENCES:
        ours = {"take": "accepts", "refuse": "refuses"}[row.we]
        shown = {"takes": "accepts", "refuses": "refuses", "errs": "answers wrongly"}
        theirs = " or ".join(shown[word] for word in row.it)
        calls = "all" if row.calls == ALL else ", ".join(row.calls)
        yield row.what, ours, theirs, calls, row.why
