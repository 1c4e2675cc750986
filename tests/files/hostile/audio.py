"""Hostile models of RTNeural, .json, Neural Amp Modeler, .nam, and GuitarML, .state_dict.json."""

import json

from files.hostile.case import EITHER, files
from files.hostile.good import good

RTNEURAL, NAM, GUITARML = (
    json.loads(good(suffix)) for suffix in (".json", ".nam", ".state_dict.json")
)


def layer(**more):
    """Return a model whose only layer is changed."""
    (one,) = RTNEURAL["layers"]
    return json.dumps(RTNEURAL | {"layers": [one | more]}).encode()


def nam(config=None, **more):
    return json.dumps(NAM | {"config": NAM["config"] | (config or {})} | more).encode()


def guitarml(facts=None, bias=None, **tensors):
    """Return a model of GuitarML with other facts, another bias_ih_l0, and more tensors."""
    state = GUITARML["state_dict"] | ({"rec.bias_ih_l0": bias} if bias is not None else {})
    facts = GUITARML["model_data"] | (facts or {})
    return json.dumps({"model_data": facts, "state_dict": state | tensors}).encode()


def arrays(k, change):
    """Return a model with one array changed: 0 kernel, 1 recurrent_kernel, 2 bias."""
    (one,) = RTNEURAL["layers"]
    weights = list(one["weights"])
    weights[k] = change(weights[k])
    return layer(weights=weights)


def words(data, found):
    """Put a text of JSON in the place of the first weight."""
    first = json.loads(data)
    numbers = first["weights"] if "weights" in first else first["layers"][0]["weights"][2]
    numbers[0] = 0.123456789
    return json.dumps(first).encode().replace(b"0.123456789", found.encode())


NUMBERS = {
    "NaN": "is not JSON", "Infinity": "is not JSON", "1e400": "exceeds the largest float32",
    "3.5e38": "exceeds the largest float32", "null": "has a null", "true": "has a bool",
    '"1.5"': "has a str", "[1.5]": "has a list|same length", "{}": "has a dict",
    "1" * 4000: "exceeds the largest float32", "1" * 5000: "is malformed", "01": "is malformed",
}  # fmt: skip
ANY = {
    "nested": lambda n: b"[" * n + b"]" * n,
    "nested objects": lambda n: b'{"a":' * n + b"0" + b"}" * n,
}
SHAPES = {
    "a missing array": (layer(weights=[[], []]), "weights has 2 arrays, need kernel"),
    "no lists": (layer(weights=[1, 2, 3]), "kernel is a int"),
    "uneven rows": (arrays(0, lambda a: [a[0][1:], *a[1:]]), "not of the same length"),
    "three axes": (arrays(1, lambda a: [[[one] for one in row] for row in a]), "has a list"),
    "a shape of texts": (layer(shape=["3"]), "need 'shape'"),
    "H of zero": (layer(shape=[0]), "need 'shape'"),
    "other H": (layer(shape=[4]), r"kernel has shape \(5, 12\), expected \(5, 16\)"),
    "a type of half a pair": (layer(type="\ud800"), "is malformed"),
    "a type that is a number": (layer(type=1), "not a model of RTNeural"),
    "layers that are an object": (
        json.dumps(RTNEURAL | {"layers": {}}).encode(), "not a model of RTNeural"),
    "a record that is a number": (json.dumps(RTNEURAL | {"rnnlayout": 1}).encode(), "strings"),
    "a Keras config": (b'{"class_name": "Sequential", "config": {}}', "the config of a Keras"),
    "a double name": (b'{"layers": [], "layers": []}', "occurs twice"),
    "not an object": (b"[1, 2]", "is not a JSON object"),
}  # fmt: skip
SIZES = {
    "a WaveNet": (nam(architecture="WaveNet"), "'WaveNet', which has no recurrent layer"),
    "no architecture": (nam(architecture=None), "need 'architecture'"),
    "weights that are an object": (nam(weights={}), "need 'weights', a list"),
    "a weight less": (nam(weights=NAM["weights"][1:]), "weights has 117 numbers.* needs 118"),
    **{f"{key} {size!r}": (nam({key: size}), says)
       for key in ("input_size", "hidden_size", "num_layers", "out_channels")
       for size, says in {0: "from 1", -1: "from 1", 1.0: "from 1", "1": "from 1", None: "from 1",
                          2**31 - 1: "numbers, an LSTM", 2**200: "from 1"}.items()},
}  # fmt: skip
FACTS = {
    "a GRU of an LSTM": (guitarml({"unit_type": "GRU"}), r"\(gru in torch\)"),
    "an unknown cell": (guitarml({"unit_type": "\ud800"}), "", EITHER),
    **{f"{key} {value!r}": (guitarml({key: value}), f"its module has {key}")
       for key in ("input_size", "hidden_size", "num_layers") for value in (2, None, "3", [1])},
    "model_data that is a list": (guitarml().replace(b'"model_data": {', b'"model_data": [{', 1)
                                  .replace(b"true}", b"true}]", 1), "", EITHER),
    "a bias of texts": (guitarml(bias=["1.0"] * 12), "a list that is not read .*has a str"),
    "uneven rows": (guitarml(bias=[[1.0], []]), "not of the same length"),
    "an infinite number": (guitarml().replace(b"1.0", b"1e400", 1), "", EITHER),
    "a name in two places": (
        guitarml(**{"a.b": [1.0], "a": {"b": [1.0]}}), "two tensors would both be named 'a.b'"),
    "a name of half a pair": (guitarml(**{"\ud800": [1.0]}), "is malformed"),
    "no tensors": (b'{"state_dict": {"a": 1}}', "has no tensors"),
    "objects in each other": (b'{"state_dict": ' + b'{"a":' * 40 + b"[1]" + b"}" * 41, "nested 3"),
}  # fmt: skip
CASES = (
    files(SHAPES, ".json")
    | files(SIZES, ".nam")
    | files(FACTS, ".state_dict.json")
    | files(
        {f"{name}, {n}": make(n) for name, make in ANY.items() for n in (20_000, 10**6)},
        ".json", ".nam", says="malformed",
    )
)  # fmt: skip
for suffix in (".json", ".nam"):
    CASES |= files(
        {f"number {k}": (words(good(suffix), one), says)
         for k, (one, says) in enumerate(NUMBERS.items())}, suffix,
    )  # fmt: skip
    CASES |= files({"an infinity elsewhere": good(suffix)[:-1] + b', "a": 1e400}'}, suffix,
                   codes=EITHER)  # fmt: skip
