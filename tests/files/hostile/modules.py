"""Hostile modules, programs and packed weights in files of torch."""

import json
import zipfile

import torch
from files.hostile.case import EITHER, Calls, each, files
from files.hostile.good import archive, good, members
from files.hostile.pickles import (
    DOUBLED,
    Instance,
    Storage,
    dumped,
    in_archive,
    in_turn,
    view,
)

# --------------------------------------------------------------------------------------- modules

RNN = "torch.nn.modules.rnn LSTM"
PARAMETERS = dict.fromkeys(("weight_ih_l0", "weight_hh_l0"), view((4, 1), (1, 1)))


def module(name=RNN, **more):
    """Return what is pickled as a module. more: its attributes."""
    return Instance(name, {"_modules": {}, "_parameters": {}, "_buffers": {}} | more)


def doubled(levels, **more):
    """Return modules: each but the first has the one before it twice."""
    made = [module(**more)]
    for _ in range(levels):
        made.append(module(_modules={"a": made[-1], "b": made[-1]}))
    return made


def nested(levels):
    """Return the pickle of a module in a module in ... The state of each follows those in it."""
    names = b"}(X\x0b\0\0\0_parameters}X\x08\0\0\0_modules}X\1\0\0\0a"
    begin = b"c" + RNN.encode().replace(b" ", b"\n") + b"\n)\x81" + names
    return b"\x80\x02" + begin * levels + b"N" + b"sub" * levels + b"."


CYCLE = module()
CYCLE.state["_modules"]["a"] = CYCLE
VALUES = (1, [], [1, 2], "a", None, {}, True, DOUBLED, 1 << 90)
TYPES = {
    f"{name} of wrong type {k}": dumped(module(**{"_parameters": PARAMETERS, name: value}))
    for name in ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set", "mode",
                 "hidden_size", "num_layers", "bias", "batch_first", "bidirectional",
                 "nonlinearity", "proj_size", "forward")
    for k, value in enumerate(VALUES)
}  # fmt: skip
TYPES |= {
    f"a module whose state is {k}": dumped(Instance(RNN, one)) for k, one in enumerate(VALUES)
}
DEEP = "modules nested 33 deep"
WALKS = {
    "sixty thousand modules in each other": (nested(60_000), r"\d steps, more than"),
    "forty thousand modules in each other": (nested(40_000), f"\\d steps, more than|{DEEP}"),
    "a module that contains itself": (dumped(CYCLE), DEEP),
    "modules doubled 25 times": (dumped(doubled(25)), r"\d steps, more than"),
    "a long name": (dumped(module(_modules={"a" * 2000: module()})), "a name of 2000 characters"),
    "a class of a long name": (dumped(module("a" * 1500 + " b")), "no tensors"),
}
TENSORS = {
    "modules with tensors doubled 25 times": (
        dumped(doubled(25, _parameters=PARAMETERS)),
        r"\d (steps|tensors|characters of names), more than",
    ),
}


# -------------------------------------------------------------------------------------- quantized

CELL = "__torch__.torch.classes.rnn CellParamsBase"
LINEAR = "__torch__.torch.classes.quantized LinearPackedParamsBase"
RIGHT = (torch.per_tensor_affine, 2.0**-15, 0)
LARGE = 1400  # two matrices of so many units have 63 MB


def quantized(scheme=RIGHT, shape=(4, 1), strides=(1, 1)):
    storage = Storage(16, torch.QInt8Storage)
    return Calls(torch._utils._rebuild_qtensor, storage, 0, shape, strides, scheme, False, {})


def cell(*weights):
    """Return the packed weights of a layer of an RNN without biases."""
    layers = [Instance(LINEAR, (one, None)) for one in weights]
    return Instance(CELL, ("quantized_dynamic", [], [], [1], layers))


def packed(made):
    return dumped({"_all_weight_values.0.param": made})


AGAIN = cell()
AGAIN.state[-1].extend([AGAIN, AGAIN])
SCHEMES = {
    "a scale of text": (torch.per_tensor_affine, "1", 0),
    "a large zero point": (torch.per_tensor_affine, 2.0**-15, 1 << 80),
    "no zero point": (torch.per_tensor_affine, 2.0**-15),
    "a scheme of texts": "abc",
    "doubled tuples": (torch.per_tensor_affine, DOUBLED, 0),
    "an axis without scales": (torch.per_tensor_affine, 2.0**-15, 0, 0),
    "an axis that does not exist": (torch.per_tensor_affine, view(), view(), 7),
}
PACKED = {
    "packed weights": packed(cell(quantized(), quantized())),
    **{f"packed weights with {name}": packed(cell(quantized(scheme), quantized(scheme)))
       for name, scheme in SCHEMES.items()},
    "packed weights in themselves": packed(AGAIN),
    "packed weights of numbers": packed(Instance(CELL, (1, 2, 3, 4, 5))),
    "packed weights of one matrix": packed(cell(quantized())),
    **{f"packed weights of shape {shape}": packed(cell(one, one))
       for shape, strides in (((4, 9), (1, 1)), ((4 * LARGE, LARGE), (0, 0)),
                              ((40 * LARGE, 10 * LARGE), (0, 0)))
       for one in [quantized(shape=shape, strides=strides)]},
}  # fmt: skip


# --------------------------------------------------------------------------------------- programs


def changed(suffix, name, data, compression=zipfile.ZIP_STORED):
    """Return a function that makes the good file of a suffix with another member."""

    def make(path):
        parts = members(good(suffix))
        root = next(iter(parts)).partition("/")[0]
        return archive(parts | {f"{root}/{name}": data}, compression)

    return make


def program(text, compression=zipfile.ZIP_STORED):
    return changed(".script.pt", "code/__torch__/torch/nn/modules/rnn.py", text, compression)


BEGIN = b"\nclass LSTM(Module):\n"
PROGRAMS = {
    "a program of 60 MB": program(b" " * (60 << 20), zipfile.ZIP_DEFLATED),
    "a program of 5 MB": program(b"\n" * (5 << 20)),
    "a program of arguments": program(BEGIN + b"torch.lstm(" + b", a" * 1_000_000 + b")\n"),
    "a program of constants": program(BEGIN + b"  mode : Final[str] = 7\n" * 50_000),
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


WEIGHT = {"parameter": {"arg": {"name": "w"}, "parameter_name": "weight_ih_l0"}}


def calling(cell="lstm", **arguments):
    given = {"params": {"as_tensors": [{"name": "w"}]}} | arguments
    inputs = [{"name": name, "arg": arg} for name, arg in given.items()]
    return graph_program([{"target": f"torch.ops.aten.{cell}.input", "inputs": inputs}], [WEIGHT])


EXPORTED_PROGRAMS = {
    "a program that is not JSON": changed(".pt2", "models/model.json", b"[" * 100_000),
    "a program of numbers": graph_program([1], [2]),
    "a call of another cell": calling("gru"),
    "a call of numbers": calling(params=3, batch_first=4),
    "axes that are a list": calling(batch_first={"as_bool": [1]}),
}


# -------------------------------------------------------------------------------------- all cases

KIND = {"kind": "module, "}
CASES = {
    **files(TYPES, ".pt", codes=EITHER, form=in_archive, **KIND),
    **in_turn(WALKS, (".pt", ", old form.pt"), **KIND),
    **files(TENSORS, ".pt", form=in_archive, **KIND),
    **files(PACKED, ".pt", codes=EITHER, form=in_archive, **KIND),
    **files(PROGRAMS, ".pt", codes=EITHER, **KIND),
    **files(EXPORTED, ".pt2", **KIND),
    **files(EXPORTED_PROGRAMS, ".pt2", codes=EITHER, **KIND),
}
