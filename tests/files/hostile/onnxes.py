"""Hostile ONNX models."""

import os

import numpy as np
import onnx
from files.hostile.good import weights
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


# --------------------------------------------------------------------------------- other files


def external(place, said=True):
    def write(path):
        folder = path.with_name(f"{path.stem} data")
        folder.mkdir()
        values = weights("onnx")["W"].tobytes()
        (path.parent / "outside.bin").write_bytes(values)
        (folder / "W.bin").write_bytes(values)
        (folder / "link.bin").symlink_to(path.parent / "outside.bin")
        (folder / "linked").symlink_to(path.parent)
        os.link(path.parent / "outside.bin", folder / "hard.bin")
        tensor = TensorProto(name="W", data_type=1, dims=[1, 12, 5])
        if said:
            tensor.data_location = TensorProto.EXTERNAL
        where = place.format(folder=folder, name=folder.name)
        tensor.external_data.add(key="location", value=where)
        path.write_bytes(model({"W": tensor}))

    return write


EXTERNAL = {
    "beside": "{name}/W.bin",
    "above": "../outside.bin",
    "above, in the middle": "{name}/../../outside.bin",
    "absolute": "{folder}/W.bin",
    "the system's": "/etc/passwd",
    "a symbolic link": "{name}/link.bin",
    "under a symbolic link": "{name}/linked/outside.bin",
    "a hard link": "{name}/hard.bin",
    "nothing": "",
    "a null byte": "{name}/W.bin\0x",
    "a device": "/dev/zero",
}


# -------------------------------------------------------------------------------------- shapes


def claims(dims, nbytes=240, **more):
    return {"W": TensorProto(name="W", data_type=1, dims=dims, raw_data=bytes(nbytes), **more)}


def chain(operator, count, names=lambda k: [f"n{k}"], **attributes):
    """Compute W from n0 through many nodes."""
    nodes = [helper.make_node(operator, names(k), [f"n{k + 1}"], **attributes)
             for k in range(count)]  # fmt: skip
    return [*nodes, helper.make_node("Identity", [f"n{count}"], ["W"])]


def of_n0(**more):
    return {"W": None, "n0": weights("onnx")["W"], **more}


def casts():
    nodes = [helper.make_node("Cast", ["n0"], [f"c{k}"], to=TensorProto.DOUBLE) for k in range(30)]
    return [*nodes, helper.make_node("Concat", [f"c{k}" for k in range(30)], ["W"], axis=0)]


def cycle():
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in (("a", "b"), ("b", "a"))]
    return [*nodes, helper.make_node("Identity", ["a"], ["W"])]


def one(*arguments, **attributes):
    return [helper.make_node(*arguments, **attributes)]


def doubled_and_halved():
    nodes = []
    for k in range(40):
        nodes += one("Concat", [f"n{k}", f"n{k}"], [f"c{k}"], axis=2)
        nodes += one("Slice", [f"c{k}", "zero", "five", "two"], [f"n{k + 1}"])
    return [*nodes, *one("Identity", ["n40"], ["W"])]


def numbers(**values):
    return {name: np.array([value]) for name, value in values.items()}


# -------------------------------------------------------------------------------------- graphs


def function(name, nodes):
    return helper.make_function("mine", name, ["x"], ["y"], nodes, [helper.make_opsetid("", 14)])


def call(name):
    return helper.make_node(name, ["X"], ["y"], domain="mine")


def functions(count, times):
    made = [function(f"F{k}", [call(f"F{k + 1}")] * times) for k in range(count)]
    return lambda: model(nodes=[call("F0")], functions=made)


def within(number, message):
    """Put a message into a field of another, as bytes: protobuf's own classes limit the depth."""
    return bytes([number << 3 | 2]) + length(len(message)) + message


def length(n):
    made = bytearray()
    while n > 127:
        made.append(n & 127 | 128)
        n >>= 7
    return bytes([*made, n])


def graphs(deep):
    """Nest If in If in If."""
    graph = model_of().graph.SerializeToString()
    for _ in range(deep):
        attribute = onnx.AttributeProto(name="then_branch", type=5).SerializeToString()
        node = onnx.NodeProto(op_type="If", name="if").SerializeToString()
        graph = within(1, node + within(5, attribute + within(6, graph)))
    return onnx.ModelProto(ir_version=8).SerializeToString() + within(7, graph)


def sparse_tensor():
    made = model_of({"W": None})
    values = TensorProto(name="W", data_type=1, dims=[1], raw_data=bytes(4))
    indices = TensorProto(data_type=7, dims=[1], raw_data=bytes(8))
    made.graph.sparse_initializer.append(
        onnx.SparseTensorProto(values=values, indices=indices, dims=[1 << 40, 1 << 40])
    )
    return made.SerializeToString()


MODELS = {
    "a shape of a petabyte": lambda: model(claims([1, 12, 1 << 45])),
    "a shape that overflows": lambda: model(claims([1 << 31] * 3)),
    "a shape of the largest sizes": lambda: model(claims([LONGEST_SIZE] * 8)),
    "a shape of very many axes": lambda: model(claims([LONGEST_SIZE] * 100_000)),
    "a negative shape": lambda: model(claims([1, -12, -5])),
    "nothing of a huge shape": lambda: model(claims([0, LONGEST_SIZE, LONGEST_SIZE], 0)),
    "a byte too few": lambda: model(claims([1, 12, 5], 239)),
    "a segment": lambda: model(claims([1, 12, 5], segment=TensorProto.Segment(begin=0, end=1))),
    "a sparse tensor": sparse_tensor,
    "a long chain": lambda: model(of_n0(), chain("Identity", 20_000)),
    "a chain that doubles": lambda: model(
        of_n0(), chain("Concat", 40, lambda k: [f"n{k}", f"n{k}"], axis=2)
    ),
    "a chain that doubles and halves": lambda: model(
        of_n0(**numbers(zero=0, five=5, two=2)), doubled_and_halved()
    ),
    "casts that grow": lambda: model({"W": None, "n0": np.zeros(1 << 20, "i1")}, casts()),
    "scales that grow": lambda: model(
        {"W": None, "q": np.zeros((1 << 14, 1), "i1"), "s": np.ones((1, 1 << 14), "f4")},
        one("DequantizeLinear", ["q", "s"], ["W"]),
    ),
    "a shape that is computed": lambda: model(
        of_n0(huge=np.array([1 << 62] * 4)), one("Reshape", ["n0", "huge"], ["W"])
    ),
    "a constant of a shape": lambda: model(
        of_n0(huge=np.array([1 << 31, 1 << 31])), one("ConstantOfShape", ["huge"], ["W"])
    ),
    "expanded": lambda: model(
        of_n0(huge=np.array([1 << 31, 12, 5])), one("Expand", ["n0", "huge"], ["W"])
    ),
    "tiled": lambda: model(of_n0(huge=np.array([1 << 40] * 3)), one("Tile", ["n0", "huge"], ["W"])),
    "a range": lambda: model(
        of_n0(**numbers(zero=0, most=1 << 60, step=1)),
        one("Range", ["zero", "most", "step"], ["W"]),
    ),
    "a cycle": lambda: model({"W": None}, cycle()),
    "of itself": lambda: model({"W": None}, one("Identity", ["W"], ["W"])),
    "a name twice": lambda: model(before=one("Identity", ["R"], ["W"])),
    "graphs in graphs": lambda: graphs(60),
    "graphs in graphs, very deep": lambda: graphs(3000),
    "very many nodes": lambda: within(7, within(1, b"") * 400_000),
    "a function of itself": lambda: model(
        nodes=[call("F0")], functions=[function("F0", [call("F0")])]
    ),
    "functions that double": functions(60, 2),
    "functions in functions": functions(2000, 1),
    "a name that is not a text": lambda: model().replace(b"lstm", b"l\xff\xfem"),
    "hidden units beyond all": lambda: model().replace(
        b"hidden_size\x18\x03", b"hidden_size\x18\x7f"
    ),
    "no model": lambda: b"\x89PNG",
    "an empty file": lambda: b"",
}


def too_large(path):
    with open(path, "wb") as file:
        file.truncate(1 << 31)  # a sparse file: it uses no disk space


CASES = {
    **{f"ONNX, data {name}{'' if said else ', not said'}.onnx": external(place, said)
       for name, place in EXTERNAL.items() for said in (True, False)},
    **{f"ONNX, {name}.onnx": (lambda path, make=make: path.write_bytes(make()))
       for name, make in MODELS.items()},
    "ONNX, beyond protobuf.onnx": too_large,
}  # fmt: skip
