"""Hostile layers models of TensorFlow.js, .tfjs.json."""

import json

from files.hostile.case import EITHER, each, files
from files.hostile.good import PARTS, beside, good, tfjs_model
from files.hostile.tensor_sets import fifo, link_out

FIRST, LAST = PARTS[".tfjs.json"]


def changed(**group):
    """Return a model whose manifest has other paths or weights."""
    model = tfjs_model()
    model["weightsManifest"][0] |= group
    return json.dumps(model).encode()


def weight(**keys):
    """Return a model whose first weight has other keys."""
    model = tfjs_model()
    model["weightsManifest"][0]["weights"][0] |= keys
    return json.dumps(model).encode()


def topology(**keys):
    model = tfjs_model()
    return json.dumps(model | {"modelTopology": model["modelTopology"] | keys}).encode()


def with_files(data=None, change=lambda weight_map, path: None):
    """Return a function that writes the files of a good model, changes them, and returns the
    model."""

    def write(path):
        beside(path)
        change({}, path)
        return data or good(".tfjs.json")

    return write


def layer(kind, **config):
    """Return a model with another layer."""
    layers = [{"class_name": kind, "config": {"name": "lstm", **config}}]
    model = {"class_name": "Sequential", "config": {"layers": layers}}
    return topology(model_config=model)


QUANTIZED = {"dtype": "uint8", "scale": 0.5, "min": -1.0}
MODELS = {
    **each(changed, "paths", [FIRST, FIRST], ["../x"], ["/etc/passwd"], [1], ["."], [None]),
    **each(changed, "paths", {}, None, "a", says="need a weightsManifest"),
    **each(changed, "weights", {}, None, 1, says="need a weightsManifest"),
    **each(changed, "weights", [1], [None], [{}], [{"name": 1}], says="has no name"),
    "a name of half a pair": (weight(name="\ud800"), "is malformed"),
    "a name twice": (weight(name="lstm/bias"), "two tensors would both be named"),
    **each(weight, "shape", None, [-1], [1.5], "a", {}, [[1]], says="not a list of sizes"),
    **each(weight, "shape", [2**62], [2**40, 2**40], says="too large|beyond the end"),
    **each(weight, "shape", [1, 1], [], [0], says="bytes more than its weights"),
    **each(weight, "dtype", "string", "complex64", None, [], "O", says="need float32, int32 or"),
    "a number of texts": (weight(quantization=QUANTIZED | {"scale": "1"}), "needs numbers"),
    "a scale of 1e301": (weight(quantization=QUANTIZED | {"scale": 1e301}), "needs numbers"),
    "quantized to uint8": (weight(quantization=QUANTIZED), "bytes more than its weights"),
    "quantized to text": (weight(quantization=QUANTIZED | {"dtype": "str"}), "has dtype 'str'"),
    "a list of quantizations": (weight(quantization=[1]), "need float32, int32 or bool"),
    "a config that is a number": (topology(model_config=1), "", EITHER),
    "a config that is a text": (topology(model_config='{"class_name": "a"}'), "", EITHER),
    "a version that is a number": (topology(keras_version=3), "", EITHER),
    "a config that is cut": (topology(model_config="{"), "is malformed"),
    **{f"a Bidirectional of {inner!r}": (layer("Bidirectional", layer=inner), "", EITHER)
       for inner in (None, 1, [], {}, {"class_name": "LSTM", "config": 1})},
    "a Bidirectional without a layer": (layer("Bidirectional"), "", EITHER),
    "no manifest": (good(".tfjs.json").replace(b"weightsManifest", b"other"), "weightsManifest"),
    "objects in each other": (b'{"modelTopology": ' + b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
                              "is malformed"),
    "a number in 100,000 groups": (weight(name="a/" * 10**5 + "vars/0"), "too long|steps|names"),
    "numbers as groups": (weight(name="layers/lstm/cell/vars/0"), "weights of 0 cells"),
    "other units": (json.dumps(tfjs_model(units=4)).encode(), "do not determine"),
}  # fmt: skip
COMPANIONS = {
    "a file that is a link": (link_out, "is a link out of"),
    "a file that is a FIFO": (fifo, "is not a regular file"),
    "a file that is cut": (
        lambda _, path: path.with_name(LAST).write_bytes(b"a"), "beyond the end"),
}  # fmt: skip
CASES = files(
    {name: (with_files(data), *told) for name, (data, *told) in MODELS.items()}
    | {name: (with_files(change=change), says) for name, (change, says) in COMPANIONS.items()},
    ".tfjs.json",
    kind="tfjs, ",
)
