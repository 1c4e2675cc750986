"""Hostile ONNX models."""

import os

import numpy as np
import onnx
from files.hostile.case import EITHER, bound, each, files
from files.hostile.good import BESIDE, field, stored, weights
from onnx import TensorProto, helper, numpy_helper

LONGEST_SIZE = (1 << 63) - 1


def model(*changes, **more):
    """Return the bytes of model_of()."""
    return model_of(*changes, **more).SerializeToString()


def model_of(given=None, before=(), nodes=(), functions=()):
    """Return a model of one LSTM, with some of its tensors replaced."""
    held = [numpy_helper.from_array(a, n) if isinstance(a, np.ndarray) else a
            for n, a in {**weights("onnx"), **(given or {})}.items() if a is not None]  # fmt: skip
    lstm = helper.make_node("LSTM", ["X", "W", "R", "B"], ["Y"], "lstm", hidden_size=3)
    x = helper.make_tensor_value_info("X", 1, [None, None, 5])
    y = helper.make_tensor_value_info("Y", 1, [None] * 4)
    graph = helper.make_graph([*before, lstm, *nodes], "g", [x], [y], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    made.functions.extend(functions)
    return made


def lstms(n, w):
    """Return n nodes. w: the name of W, in which {} is the number of the node."""
    return [
        helper.make_node("LSTM", ["X", w.format(k), "R", "B"], [f"Y{k}"], f"lstm{k}", hidden_size=3)
        for k in range(n)
    ]


# --------------------------------------------------------------------------------- other files


def external(place, said=True):
    def write(path):
        folder = path.with_name(f"{path.stem} data")
        folder.mkdir()
        for name in ("outside.bin", ".hidden", "back\\slash", f"{folder.name}/W.bin"):
            (path.parent / name).write_bytes(weights("onnx")["W"].tobytes())
        where = place.format(folder=folder, name=folder.name, path=path.name)
        tensor = stored(TensorProto(name="W", data_type=1, dims=[1, 12, 5]), location=where)
        if not said:
            tensor.ClearField("data_location")
        return model({"W": tensor})

    return write


EXTERNAL = {
    "in a folder": "{name}/W.bin",
    "above": "../outside.bin",
    "the folder": ".",
    "the folder above": "..",
    "a device": "/dev/zero",
    "absolute": "{folder}/W.bin",
    "hidden": ".hidden",
    "a backslash": "back\\slash",
    "nothing": "",
    "a null byte": "outside.bin\0x",
    "the model itself": "{path}",
    "a long name": "../" * 100_000,
}


def beside_it(make, *places):
    """Return a model with W in onnx.data, which make(path) makes or which has so many bytes.
    places: its external_data."""

    def write(path):
        other = path.with_name(BESIDE)
        other.write_bytes(bytes(make)) if isinstance(make, int) else make(other)
        tensor = stored(TensorProto(name="W", data_type=1, dims=[1, 12, 5]), location=BESIDE)
        for key, value in places:
            tensor.external_data.add(key=key, value=value)
        return model({"W": tensor})

    return write


def claimed_again(path, n=480, columns=20_000):
    """The same bytes of another file, claimed by n tensors: here of a megabyte."""
    made = model_of(nodes=lstms(n, "W{}"))
    path.with_name(BESIDE).write_bytes(bytes(12 * columns * 4))
    for k in range(n):
        tensor = TensorProto(name=f"W{k}", data_type=1, dims=[1, 12, columns])
        made.graph.initializer.append(stored(tensor, location=BESIDE))
    return made.SerializeToString()


def linked_to_a_file(path):
    """Make a link to a file in a folder beside it."""
    path.with_name("folder").mkdir()
    path.with_name("folder").joinpath("outside.bin").write_bytes(bytes(240))
    path.symlink_to("folder/outside.bin")


GROWS, STEPS = "bytes of computed weights", r"too many steps|\d steps"
ONE_FILE, NO_NUMBER = "external_data=False", "is not a number: .*external_data=False"
CUT = "it is cut short, or belongs to another model: .*external_data=False"
PLACES = {
    "a link": (beside_it(linked_to_a_file), f"is a link out of .*{ONE_FILE}"),
    "a FIFO": (beside_it(os.mkfifo), f"is not a regular file: .*{ONE_FILE}"),
    "a socket": (beside_it(bound), f"cannot be read: .*{ONE_FILE}"),
    "a missing file": (beside_it(lambda path: None), f"does not exist: .*{ONE_FILE}"),
    "a file of another model": (beside_it(200, ("length", "240")), CUT),
    "a file of another model, no length": (beside_it(200), "needs 240 bytes, it has 200"),
    "a longer file, no length": (beside_it(300), "needs 240 bytes, it has 300"),
    "an offset at the end": (beside_it(240, ("offset", "240"), ("length", "240")), CUT),
    "an offset outside, no length": (beside_it(240, ("offset", "1000")), CUT),
    "an offset outside": (beside_it(240, ("offset", "241"), ("length", "0")), CUT),
    "a huge offset": (beside_it(240, ("offset", "9" * 19), ("length", "240")), CUT),
    **{f"{key} {name}": (beside_it(240, (key, text)), NO_NUMBER)
       for key in ("offset", "length")
       for name, text in {"below 0": "-240", "nothing": "", "a word": "W", "a float": "240.0",
                          "of 100,000 digits": "9" * 100_000, "with a blank": " 240",
                          "of another script": "\u0662\u0664\u0660", "signed": "+240",
                          "of 16": "0xf0", "in parts": "2_40"}.items()},
    "two files": (beside_it(240, ("location", BESIDE)), f"recorded twice .*{ONE_FILE}"),
    "very many keys": (
        beside_it(240, *[(f"{k}", "") for k in range(50_000)], ("length", "1")),
        "needs 240 bytes",
    ),
    "claimed again": (claimed_again, GROWS, EITHER),
}  # fmt: skip


# -------------------------------------------------------------------------------------- shapes


def claims(dims=(1, 12, 5), nbytes=240, data_type=1, **more):
    """Return a W that claims this shape and type."""
    tensor = TensorProto(name="W", dims=dims, raw_data=bytes(nbytes), **more)
    tensor.data_type = data_type  # which TensorProto() checks
    return {"W": tensor}


def chain_of(count, operator, *others, **attributes):
    """Compute n1, n2 ... each from the one before it, or from that twice ("again"), and others."""
    names = [[f"n{k}", *(f"n{k}" if one == "again" else one for one in others)]
             for k in range(count)]  # fmt: skip
    return [helper.make_node(operator, names[k], [f"n{k + 1}"], **attributes) for k in range(count)]


def chain(operator, count, *others, **attributes):
    """Compute W from n0 through many nodes."""
    nodes = chain_of(count, operator, *others, **attributes)
    return [*nodes, helper.make_node("Identity", [f"n{count}"], ["W"])]


def of_n0(**more):
    return {"W": None, "n0": weights("onnx")["W"], **more}


def one(*arguments, **attributes):
    return [helper.make_node(*arguments, **attributes)]


def casts():
    names = [f"c{k}" for k in range(30)]
    nodes = [helper.make_node("Cast", ["n0"], [name], to=TensorProto.DOUBLE) for name in names]
    return [*nodes, *one("Concat", names, ["W"], axis=0)]


def doubled_and_halved():
    nodes = []
    for k in range(40):
        nodes += one("Concat", [f"n{k}", f"n{k}"], [f"c{k}"], axis=2)
        nodes += one("Slice", [f"c{k}", "zero", "five", "two"], [f"n{k + 1}"])
    return [*nodes, *one("Identity", ["n40"], ["W"])]


# -------------------------------------------------------------------------------------- graphs


def function(name, nodes):
    return helper.make_function("mine", name, ["x"], ["y"], nodes, [helper.make_opsetid("", 14)])


def call(name):
    return helper.make_node(name, ["X"], ["y"], domain="mine")


def functions(count, times):
    """Return functions that call the next one so many times."""
    return [function(f"F{k}", [call(f"F{k + 1}")] * times) for k in range(count)]


def graphs(deep):
    """Nest If in If in If, as bytes: protobuf's own classes limit the depth."""
    graph = model_of().graph.SerializeToString()
    for _ in range(deep):
        attribute = onnx.AttributeProto(name="then_branch", type=5).SerializeToString()
        node = onnx.NodeProto(op_type="If", name="if").SerializeToString()
        graph = field(1, node + field(5, attribute + field(6, graph)))
    return onnx.ModelProto(ir_version=8).SerializeToString() + field(7, graph)


def sparse_tensor():
    made = model_of({"W": None})
    values = TensorProto(name="W", data_type=1, dims=[1], raw_data=bytes(4))
    indices = TensorProto(data_type=7, dims=[1], raw_data=bytes(8))
    made.graph.sparse_initializer.append(
        onnx.SparseTensorProto(values=values, indices=indices, dims=[1 << 40, 1 << 40])
    )
    return made.SerializeToString()


NONSENSE = [
    ("Transpose", ["n0"], {"perm": [0, 0, 5]}), ("Transpose", [], {}),
    ("Concat", ["n0", "n0"], {}), ("Concat", ["n0", "B"], {"axis": 0}),
    ("Cast", ["n0"], {}), ("Cast", ["n0"], {"to": 99}),
    ("Reshape", ["n0", "n0"], {}), ("Reshape", ["n0", "huge"], {}),
    ("Unsqueeze", ["n0", "huge"], {}),
    ("Slice", ["n0", "huge", "n0"], {}), ("Slice", ["n0", "huge", "huge", "huge", "huge"], {}),
    ("Gather", ["n0"], {}), ("Gather", ["n0", "huge"], {"axis": 9}),
    ("Expand", ["n0", "huge"], {}), ("Expand", ["n0", "below"], {}),
    ("Tile", ["n0", "huge"], {}), ("Tile", ["n0", "below"], {}), ("Tile", ["n0"], {}),
    ("ConstantOfShape", ["huge"], {}), ("ConstantOfShape", ["below"], {}),
    ("ConstantOfShape", [], {}),
    ("DequantizeLinear", ["n0"], {}), ("DequantizeLinear", ["n0", "n0"], {}),
    ("Range", ["zero", "most", "step"], {}),
    ("Constant", [], {}), ("Constant", [], {"value_string": "x"}),
]  # fmt: skip
ZERO = np.array([0])
NUMBERS = {"huge": np.array([1 << 62] * 4), "below": np.array([-(1 << 40), 1, 1]),
           "zero": ZERO, "most": np.array([1 << 60]), "step": np.array([1])}  # fmt: skip
# What it is: W replaced, other nodes before, and nodes and functions after the LSTM; the error.
GIVEN = {
    **each(claims, "data_type", 0, 8, 14, 17, 22, 99, -1, says="W"),
    **each(claims, "dims", [1, 12, 1 << 45], [LONGEST_SIZE] * 8, [1] * 1000,
           [LONGEST_SIZE] * 100_000, [1, -12, -5], says="W"),
    **each(claims, "nbytes", 239, 241, says="W"),
    "nothing of a huge shape": (claims([0, LONGEST_SIZE, LONGEST_SIZE], 0), "W"),
    "no bytes": ({"W": TensorProto(name="W", data_type=1, dims=[1, 12, 5])}, "W"),
    "a segment": (claims(segment=TensorProto.Segment(begin=0, end=1)), "W"),
    "a name of nothing": ({"W": None}, "'W' is used but not defined"),
    "a tensor twice": (
        {"again": numpy_helper.from_array(weights("onnx")["W"] + 1, "W")}, "'W' is defined twice",
    ),
}  # fmt: skip
NODES = {
    "101 steps": (of_n0(), chain("Identity", 101), STEPS),
    "a chain that doubles": (
        of_n0(), chain("Concat", 40, "again", axis=2), f"{STEPS}|{GROWS}",
    ),
    "a chain that doubles and halves": (
        of_n0(zero=ZERO, five=np.array([5]), two=np.array([2])), doubled_and_halved(),
        f"{STEPS}|{GROWS}",
    ),
    "casts that grow": ({"W": None, "n0": np.zeros(1 << 20, "i1")}, casts(), GROWS),
    "scales that grow": (
        {"W": None, "q": np.zeros((1 << 14, 1), "i1"), "s": np.ones((1, 1 << 14), "f4")},
        one("DequantizeLinear", ["q", "s"], ["W"]), GROWS,
    ),
    "a cycle": (
        {"W": None}, [helper.make_node("Identity", [a], [b]) for a, b in ("ab", "ba", "aW")],
        "from itself",
    ),
    **{f"nonsense, {operator} {k}": (
           of_n0(**NUMBERS), one(operator, given, ["W"], **more), "node 'lstm': ")
       for k, (operator, given, more) in enumerate(NONSENSE)},
}  # fmt: skip
# What computes n60, the initial state, from n0, which has the state of one sequence for each of x.
STATES = {
    "a state that doubles": chain_of(60, "Concat", "again", axis=0),
    "a state that grows": one("Gather", ["n0", "all"], ["n60"], axis=2),
    "a state from itself": one("Concat", ["n60", "n0"], ["n60"], axis=0),
    "a state that is not read": chain_of(5000, "Mul", "again"),
}


def with_state(nodes):
    given = {"first": np.ones((1, 1, 3), "f4"), "all": np.zeros(1 << 10, "i8")}
    before = [*one("Shape", ["X"], ["sizes"]), *one("Expand", ["first", "sizes"], ["n0"]), *nodes]
    made = model_of(given, before)
    made.graph.node[-1].input.extend(["", "n60"])
    return made.SerializeToString()


DEEP, TOO_MANY = "nested more than 100 deep", r"\d steps"
FUNCTIONS = {
    "a function of itself": ([function("F0", [call("F0")])], DEEP),
    "functions that double": (functions(60, 2), TOO_MANY),
}  # fmt: skip
NO_MODEL = "not an ONNX model"
MODELS = {
    "a sparse tensor": (lambda path: sparse_tensor(), "sparse tensor"),
    "graphs in graphs, very deep": (lambda path: graphs(3000), NO_MODEL),
    "very many nodes": (lambda path: field(7, field(1, b"") * 400_000), r"\d steps"),
    "a name that is not a text": (
        lambda path: model().replace(b"lstm", b"l\xff\xfem"), f"{NO_MODEL}|not UTF-8",
    ),
    "hidden units beyond all": lambda path: model().replace(
        b"hidden_size\x18\x03", b"hidden_size\x18\x7f"
    ),
}  # fmt: skip


def all_files(rows, **more):
    return files(rows, ".onnx", kind="ONNX, ", **more)


CASES = {
    **all_files({f"data {name}": (external(place), ONE_FILE) for name, place in EXTERNAL.items()}),
    **all_files({"data, not said": (external("outside.bin", said=False), ONE_FILE)}),
    **all_files({f"data, {name}": place for name, place in PLACES.items()}),
    **all_files({name: (lambda path, given=given, nodes=nodes: model(given, nodes), says)
                 for name, (given, *nodes, says) in (GIVEN | NODES).items()
                 for nodes in [nodes[0] if nodes else ()]}),
    **all_files({name: (lambda path, nodes=nodes: with_state(nodes), "lstm")
                 for name, nodes in STATES.items()}, codes=EITHER),
    **all_files({name: (lambda path, made=made: model(nodes=[call("F0")], functions=made), says)
                 for name, (made, says) in FUNCTIONS.items()}),
    **all_files(MODELS),
    # a sparse file: it uses no disk space
    **all_files({"beyond protobuf": (lambda path: path.touch() or os.truncate(path, 1 << 31),
                                     "protobuf's limit of 2 GB")}),
}  # fmt: skip
