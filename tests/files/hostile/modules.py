"""Hostile modules, programs and packed weights in files of torch."""

import json
import zipfile

from files.hostile.case import EITHER, each, files
from files.hostile.good import archive, good, members
from files.hostile.pickles import DOUBLED, in_archive, in_old, long, sizes, storage

# --------------------------------------------------------------------------------------- modules

RNN = b"torch.nn.modules.rnn\nLSTM"


def text(value):
    return b"X" + len(value).to_bytes(4, "little") + value


def mapping(pairs):
    """Return the program of a dict. pairs: (bytes of a key, program of a value)."""
    return b"}(" + b"".join(text(key) + value for key, value in pairs) + b"u"


def instance(state, name=RNN):
    return b"c" + name + b"\n)\x81" + state + b"b"


def module(modules=b"}", parameters=b"}", name=RNN, **more):
    """Return the program of a module. more: its other attributes, as programs."""
    state = {"_modules": modules, "_parameters": parameters, "_buffers": b"}", **more}
    return instance(mapping((key.encode(), value) for key, value in state.items()), name)


def one_tensor(shape=(4,), strides=(1,)):
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(4) + b"K\0" + sizes(*shape)
        + sizes(*strides) + b"\x89}tR"
    )  # fmt: skip


def doubled(levels, parameters=b"}"):
    """A module that has twice one that has twice one ..."""
    made = module(parameters=parameters)
    for _ in range(levels):
        made += b"q\5" + module(modules=mapping([(b"a", b"h\5"), (b"b", b"h\5")]))
    return b"(" + made + b"t"  # the smaller ones are in the tuple too


def nested(levels):
    """A module in a module in ... The state of each follows those inside it."""
    begin = b"c" + RNN + b"\n)\x81}(" + text(b"_parameters") + b"}" + text(b"_modules") + b"}"
    return (begin + text(b"a")) * levels + b"N" + b"sub" * levels


def cycle(*keys):
    """A module that contains itself under each of the keys."""
    state = mapping([(b"_parameters", b"}"), (b"_modules", mapping((k, b"h\6") for k in keys))])
    return b"c" + RNN + b"\n)\x81q\6" + state + b"b"


MATRIX = one_tensor((4, 1), (1, 1))
PARAMETERS = mapping([(b"weight_ih_l0", MATRIX), (b"weight_hh_l0", MATRIX)])
VALUES = (b"K\1", b"]", b"](K\1K\2e", text(b"a"), b"N", b"}", b"\x88", DOUBLED, long(1 << 90))
TYPES = {
    f"{name} of wrong type {k}": module(**{"parameters": PARAMETERS, name: value})
    for name in ("modules", "parameters", "_buffers", "_non_persistent_buffers_set", "mode",
                 "hidden_size", "num_layers", "bias", "batch_first", "bidirectional",
                 "nonlinearity", "proj_size", "forward")
    for k, value in enumerate(VALUES)
}  # fmt: skip
TYPES |= {f"a module whose state is {k}": instance(value) for k, value in enumerate(VALUES)}
DEEP = "modules nested 33 deep"
WALKS = {
    "a hundred thousand modules in each other": (nested(100_000), r"\d steps, more than"),
    "forty thousand modules in each other": (nested(40_000), f"\\d steps, more than|{DEEP}"),
    "a module that contains itself": (cycle(b"a"), DEEP),
    "modules doubled 25 times": (doubled(25), r"\d steps, more than"),
    "a long name": (module(mapping([(b"a" * 2000, module())])), "a name of 2000 characters"),
    "a class of a long name": (module(name=b"a" * 1500 + b"\nb"), "no tensors"),
}
TENSORS = {
    "modules with tensors doubled 25 times": (
        doubled(25, PARAMETERS),
        r"\d (steps|tensors|characters of names), more than",
    ),
}


# -------------------------------------------------------------------------------------- quantized


def quantized(scheme, shape=(4, 1), strides=(1, 1)):
    return (
        b"ctorch._utils\n_rebuild_qtensor\n(" + storage(16, b"QInt8Storage") + b"K\0"
        + sizes(*shape) + sizes(*strides) + scheme + b"\x89}tR"
    )  # fmt: skip


def linear(weight):
    """Return the program of packed weights of a linear layer without a bias."""
    name = b"__torch__.torch.classes.quantized\nLinearPackedParamsBase"
    return instance(b"(" + weight + b"Nt", name)


def cell(layers):
    """Return the state of a layer of an RNN without biases."""
    return b"(" + text(b"quantized_dynamic") + b"]]](K\1e](" + layers + b"et"


CELL = b"__torch__.torch.classes.rnn\nCellParamsBase"


def packed(state):
    """{"_all_weight_values.0.param": packed weights}"""
    return mapping([(b"_all_weight_values.0.param", instance(state, CELL))])


AFFINE, SCALE = b"ctorch\nper_tensor_affine\n", b"G?" + bytes(7)
RIGHT = AFFINE + SCALE + b"K\0\x87"
LARGE = 1400  # two matrices of so many units have 63 MB
SCHEMES = {
    "a scale of text": AFFINE + text(b"1") + b"K\0\x87",
    "a large zero point": AFFINE + SCALE + long(1 << 80) + b"\x87",
    "no zero point": AFFINE + SCALE + b"\x86",
    "a scheme of texts": text(b"abc"),
    "doubled tuples": b"(" + AFFINE + DOUBLED + b"K\0t",
    "an axis without scales": b"(" + AFFINE + SCALE + b"K\0K\0t",
    "an axis that does not exist": b"(" + AFFINE + one_tensor() * 2 + b"K\7t",
}
PACKED = {
    "packed weights": packed(cell(linear(quantized(RIGHT)) * 2)),
    **{f"packed weights with {name}": packed(cell(linear(quantized(scheme)) * 2))
       for name, scheme in SCHEMES.items()},
    "packed weights in themselves": mapping([
        (b"_all_weight_values.0.param", b"c" + CELL + b"\n)\x81q\6" + cell(b"h\6h\6") + b"b")]),
    "packed weights of numbers": packed(b"(K\1K\2K\3K\4K\5t"),
    "packed weights of one matrix": packed(cell(linear(quantized(RIGHT)))),
    "integers of a false shape": packed(cell(linear(quantized(RIGHT, (4, 9))) * 2)),
    "packed weights of 63 MB":
        packed(cell(linear(quantized(RIGHT, (4 * LARGE, LARGE), (0, 0))) * 2)),
    "packed weights of 6 GB":
        packed(cell(linear(quantized(RIGHT, (40 * LARGE, 10 * LARGE), (0, 0))) * 2)),
}  # fmt: skip


# --------------------------------------------------------------------------------------- programs


def changed(suffix, name, data, compression=zipfile.ZIP_STORED):
    """Return the good file of a suffix with another member."""
    parts = members(good(suffix))
    root = next(iter(parts)).partition("/")[0]
    return archive(parts | {f"{root}/{name}": data}, compression)


def program(text, compression=zipfile.ZIP_STORED):
    return changed(".script.pt", "code/__torch__/torch/nn/modules/rnn.py", text, compression)


BEGIN = b"\nclass LSTM(Module):\n"
PROGRAMS = {
    "a program of 60 MB": program(b" " * (60 << 20), zipfile.ZIP_DEFLATED),
    "a program of 5 MB": program(b"\n" * (5 << 20)),
    "a program of calls": program(BEGIN + b"torch.lstm(" * 300_000),
    "a program of arguments": program(BEGIN + b"torch.lstm(" + b", a" * 1_000_000 + b")\n"),
    "a program of constants": program(BEGIN + b"  mode : Final[str] = 7\n" * 150_000),
    "a program that is not text": program(bytes(range(256)) * 4000),
}  # fmt: skip


# ---------------------------------------------------------------------------------- torch.export


def exported(told, name="weights/model_weights_config.json", compression=zipfile.ZIP_STORED):
    data = told if isinstance(told, bytes) else json.dumps({"config": told}).encode()
    return changed(".pt2", f"data/{name}", data, compression)


def payload(meta=None, **more):
    one = {"dtype": 7, "sizes": [{"as_int": 3}], "strides": [{"as_int": 1}],
           "storage_offset": {"as_int": 0}}  # fmt: skip
    found = {"path_name": "weight_0", "use_pickle": False, "tensor_meta": one | (meta or {})}
    return exported({"weight_hh_l0": found | more})


def ints(*numbers):
    return [{"as_int": n} for n in numbers]


EXPORTED = {
    "an export without a config": exported(b"{}"),
    "an export of a list": exported(b"[]"),
    "an export that is not JSON": exported(b"{" * 100_000),
    "an export of numbers": exported({"a": 1}),
    **each(payload, "path_name", "../../../../etc/passwd", 3),
    **each(payload, "meta", *(
        {"dtype": [7]}, {"storage_offset": {"as_int": -1}}, {"strides": []},
        {"sizes": ints(1 << 40), "strides": ints(0)},
        {"sizes": ints(*[1] * 60), "strides": ints(*[1] * 60)},
        *({"sizes": sizes} for sizes in (
            ints(1 << 50), ints(-3), ints(True), "abc", [{"as_expr": {"expr_str": "s0"}}])),
    )),
    "an export of a compressed config":
        exported({f"{k}": {} for k in range(100_000)}, compression=zipfile.ZIP_DEFLATED),
    "an export of two tensors of one name":
        exported({"0.weight_ih_l0": {"use_pickle": True}}, "constants/model_constants_config.json"),
}  # fmt: skip


def graph_program(nodes, inputs=()):
    """Return a file whose program has these nodes; the weights are read in spite of it."""
    graph = {"graph": {"nodes": nodes}, "signature": {"input_specs": inputs}}
    data = json.dumps({"graph_module": graph}).encode()
    return changed(".pt2", "models/model.json", data)


def call(**arguments):
    given = [{"name": name, "arg": arg} for name, arg in arguments.items()]
    return {"target": "torch.ops.aten.lstm.input", "inputs": given}


def tensors(name):
    return {"as_tensors": [{"name": name}]}


WEIGHT = {"parameter": {"arg": {"name": "w"}, "parameter_name": "weight_ih_l0"}}
EXPORTED_PROGRAMS = {
    "a program that is not JSON": changed(".pt2", "models/model.json", b"[" * 100_000),
    "a program without nodes": graph_program(3),
    "a program of numbers": graph_program([1], [2]),
    "a program without names": graph_program([call()], [{"parameter": {}}]),
    "a program with names of lists": graph_program([], [{"parameter": {"arg": {"name": []}}}]),
    "a call without inputs": graph_program([{"target": "torch.ops.aten.lstm.input"}]),
    "a call of numbers": graph_program([call(params=3, batch_first=4)], [WEIGHT]),
    "a call of unknown tensors": graph_program([call(params=tensors("x"))], [WEIGHT]),
    "a call of another cell": graph_program(
        [call(params=tensors("w")) | {"target": "torch.ops.aten.gru.input"}], [WEIGHT]
    ),
    "axes that are a list": graph_program(
        [call(params=tensors("w"), batch_first={"as_bool": [1]})], [WEIGHT]
    ),
}


# -------------------------------------------------------------------------------------- all cases


def pickled(table):
    """Return the table with whole pickles for the programs of objects."""
    rows = {name: row if isinstance(row, tuple) else (row, "") for name, row in table.items()}
    return {name: (b"\x80\x02" + data + b".", says) for name, (data, says) in rows.items()}


KIND = {"kind": "module, "}
CASES = {
    **files(pickled(TYPES), ".pt", codes=EITHER, form=in_archive, **KIND),
    **files(pickled(WALKS | TENSORS), ".pt", form=in_archive, **KIND),
    **files(pickled(WALKS), ", old form.pt", form=in_old, **KIND),
    **files(pickled(PACKED), ".pt", codes=EITHER, form=in_archive, **KIND),
    **files(PROGRAMS, ".pt", codes=EITHER, **KIND),
    **files(EXPORTED, ".pt2", **KIND),
    **files(EXPORTED_PROGRAMS, ".pt2", codes=EITHER, **KIND),
}
