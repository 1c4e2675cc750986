"""From every framework's files to every other's: one writes the file, the other runs the new one.

A writer saves a file with the framework itself, and records what the framework computes with it. A
reader loads the file that convert_file() made of it with the other framework, and runs it. Both get
the same x and start from zero. Keras and ONNX have one RNN per layer, so a stack is several RNNs in
their files; a reader then runs one after the other.
"""

import itertools
import json
from dataclasses import dataclass, field
from functools import cache

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.numpy
import safetensors.torch
import tf_keras
import torch
from files.onnx.models import tensors_of
from marks import pairwise
from oracles.frameworks import (
    KERAS_NOISE,
    ONNX_OPERATOR,
    H,
    I,
    N,
    P,
    T,
    fill_keras,
    normal,
    onnx_model,
    seeded,
    torch_module,
    weight,
)
from oracles.reference import cudnn_pieces, forward, from_cudnn, from_onnx
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

import rnnlayout as rl
from rnnlayout._cli import main as _cli

pytestmark = KERAS_NOISE

CELLS = [  # reset, projection
    ("lstm", "after", 0),
    ("gru", "after", 0),
    ("gru", "before", 0),
    ("rnn_tanh", "after", 0),
    ("rnn_relu", "after", 0),
    ("lstm", "after", P),
]
SHAPES = [(1, False, "double"), (2, True, "double"), (2, False, "none"), (1, True, "none")]


def x_of(spec):
    return normal(seeded("x", spec), T, N, spec.input_size)


@dataclass(frozen=True)
class Source:
    """A file of a framework. y: what the framework computes; entries: the names of the RNNs in it;
    hints: what the file does not record, as arguments of load()."""

    path: object
    y: np.ndarray
    entries: list
    hints: dict = field(default_factory=dict)


# -------------------------------------------------------------------------------------- writers


def torch_source(save, suffix):
    def write(spec, folder):
        model = torch.nn.ModuleDict({"rnn": torch_module(spec, seeded(suffix, spec))})
        path = folder / f"torch{suffix}"
        save(model.state_dict(), path)
        with torch.no_grad():
            y = model["rnn"](torch.from_numpy(x_of(spec)))[0].numpy()
        return Source(path, y, ["rnn"], {"cell": spec.cell} if spec.cell[:3] == "rnn" else {})

    return write


def names_of(spec):
    """Return the names of the layers if each is an RNN of its own."""
    return ["rnn"] if spec.num_layers == 1 else [f"rnn_{k}" for k in range(spec.num_layers)]


@cache
def keras_model(spec, kit, cudnn=False):
    """Build a model as a user would, one named layer after the other. It is shared."""
    y = x = kit.Input((None, spec.input_size))
    for name in names_of(spec):
        more = {"return_sequences": True, "use_bias": spec.bias != "none"}
        if cudnn:
            del more["use_bias"]
            layer = CuDNNLSTM if spec.cell == "lstm" else CuDNNGRU
        elif spec.cell == "gru":
            layer, more["reset_after"] = kit.layers.GRU, spec.reset == "after"
        elif spec.cell == "lstm":
            layer = kit.layers.LSTM
        else:
            layer, more["activation"] = kit.layers.SimpleRNN, spec.cell.removeprefix("rnn_")
        if spec.bidirectional:
            y = kit.layers.Bidirectional(layer(H, **more), name=name)(y)
        else:
            y = layer(H, **more, name=name)(y)
    return kit.Model(x, y)


def run_keras(model, x):
    """x, y: (T, N, ...)"""
    y = model(np.ascontiguousarray(x.swapaxes(0, 1)))
    y = keras.ops.convert_to_numpy(y) if isinstance(model, keras.Model) else y.numpy()
    return y.swapaxes(0, 1)


def keras_source(kit, suffix):
    def write(spec, folder):
        model = keras_model(spec, kit)
        fill_keras([model], seeded(kit.__name__, suffix, spec))
        path = folder / f"keras{suffix}"
        if suffix == ".weights.h5":
            model.save_weights(path)
            told = {"reset": spec.reset} if spec.cell == "gru" else {"cell": spec.cell}
            entries = list(rl.load(path, **told))  # late Keras 2 does not record their names
        else:
            model.save(path)
            told, entries = {}, names_of(spec)
        return Source(path, run_keras(model, x_of(spec)), entries, told)

    return write


def cudnn_layers_source(spec, folder):
    """CuDNNLSTM and CuDNNGRU run only on GPUs: a twin of LSTM and GRU loads their weights."""
    path = folder / "cudnn_layers.h5"
    model = keras_model(spec, tf_keras, cudnn=True)
    fill_keras([model], seeded("cudnn layers", spec))
    model.save(path)
    twin = keras_model(spec, tf_keras)
    twin.load_weights(path)
    return Source(path, run_keras(twin, x_of(spec)), names_of(spec))


def onnx_source(spec, folder):
    model = onnx_model(tensors_of(spec, seeded("onnx", spec)), spec)
    nodes = [node for node in model.graph.node if node.op_type in ONNX_OPERATOR.values()]
    for node, name in zip(nodes, names_of(spec), strict=True):
        node.name = name
    path = folder / "model.onnx"
    onnx.save(model, path)
    return Source(path, run_onnx(path, x_of(spec), "y"), names_of(spec))


def run_onnx(path, x, y, of=""):
    """Run a model. of: the prefix of its inputs; the states are zero, other inputs are empty."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {}
    for given in session.get_inputs():
        if given.name in ("x", f"{of}X"):
            feed[given.name] = x
        elif given.name.endswith("X"):
            feed[given.name] = np.zeros((1, N, given.shape[2]), "f4")
        else:  # a state, which has no shape in onnx_model()
            layers = given.shape[0] if isinstance(given.shape[0], int) else None
            feed[given.name] = np.zeros((layers or states_of(path, given.name), N, H), "f4")
    return session.run([y], feed)[0]


def states_of(path, name):
    (node,) = (node for node in onnx.load(path).graph.node if name in node.input)
    return 1 + any(a.s == b"bidirectional" for a in node.attribute)


def flat_source(save, suffix, hinted=True):
    """A weight space built without rnnlayout, and the recurrence in float64."""

    def write(spec, folder):
        rng = seeded(suffix, spec)
        pieces = [weight(rng, (rows, cols)) for *_, rows, cols in cudnn_pieces(spec)]
        flat = np.concatenate([piece.ravel() for piece in pieces])
        path = folder / f"flat{suffix}"
        save(flat, path, spec)
        expected = recurrence(flat, spec, x_of(spec))
        return Source(
            path,
            expected.value,
            [spec.cell[:3] if spec.cell[:3] == "rnn" else spec.cell],
            {"spec": spec} if hinted else {},
        )

    return write


def save_bin(flat, path, spec):
    flat.astype("<f4").tofile(path)
    path.with_suffix(".json").write_text(json.dumps(spec.to_dict()))


def zeros_of(spec):
    layers = spec.num_layers * spec.num_directions
    h0 = np.zeros((layers, N, spec.proj_size or H), "f4")
    return h0, np.zeros((layers, N, H), "f4") if spec.cell == "lstm" else None


def recurrence(flat, spec, x):
    return forward(from_cudnn(flat, spec), spec, x, *zeros_of(spec)).y


WRITERS = {
    "torch .pt": torch_source(torch.save, ".pt"),
    "torch .safetensors": torch_source(safetensors.torch.save_file, ".safetensors"),
    "keras 3 .keras": keras_source(keras, ".keras"),
    "keras 3 .h5": keras_source(keras, ".h5"),
    "keras 3 .weights.h5": keras_source(keras, ".weights.h5"),
    "keras 2 .h5": keras_source(tf_keras, "_2.h5"),
    "keras 2 .keras": keras_source(tf_keras, "_2.keras"),
    "keras 2 cudnn .h5": cudnn_layers_source,
    "onnx": onnx_source,
    "cudnn .safetensors": flat_source(
        lambda flat, path, _: safetensors.numpy.save_file({"weight_space": flat}, path),
        ".safetensors",
    ),
    "cudnn .npz": flat_source(lambda flat, path, _: np.savez(path, weight_space=flat), ".npz"),
    "cudnn .npy": flat_source(lambda flat, path, _: np.save(path, flat), ".npy"),
    "cudnn .bin": flat_source(save_bin, ".bin", hinted=False),
}

# -------------------------------------------------------------------------------------- readers


@dataclass(frozen=True)
class Reader:
    """to, suffix: of the new file; run(paths, entries, specs, x) -> y of the last RNN.

    paths: one per entry if a file contains only one RNN (`apart`), else the same path for all.
    """

    to: str
    suffix: str
    run: object
    apart: bool = False


def torch_reader(load, suffix):
    def run(paths, entries, specs, x):
        state = load(paths[0])
        model = torch.nn.ModuleDict(
            {name: torch_module(spec) for name, spec in zip(entries, specs, strict=True)}
        )
        if not any("." in key for key in state):  # of an RNN that had no prefix
            (state,) = (
                {f"{name}.{key}": value for key, value in state.items()} for name in entries
            )
        model.load_state_dict(state, strict=True)
        y = torch.from_numpy(x)
        with torch.no_grad():
            for name in entries:
                y, _ = model[name](y)
        return y.numpy()

    return Reader("torch", suffix, run)


def layers_of(entries, specs):
    """Return the names of the Keras layers, one per layer of an RNN."""
    return [
        f"{name}_{k}" if spec.num_layers > 1 else name
        for name, spec in zip(entries, specs, strict=True)
        for k in range(spec.num_layers)
    ]


def run_chain(model, entries, specs, x):
    """Run the part of the model's graph that each entry is, on the output of the one before."""
    for name, spec in zip(entries, specs, strict=True):
        names = layers_of([name], [spec])
        part = keras.Model(model.get_layer(names[0]).input, model.get_layer(names[-1]).output)
        x = run_keras(part, x)
    return x


def run_keras_3(paths, entries, specs, x):
    return run_chain(keras.models.load_model(paths[0], compile=False), entries, specs, x)


def whole_spec(specs):
    return specs[0].replace(num_layers=sum(spec.num_layers for spec in specs))


def zeros_in(model):
    """Fill a model with zeros, so that what is not loaded is noticed."""
    for variable in model.weights:
        variable.assign(np.zeros(variable.shape, "f4"))
    return model


def run_keras_weights(paths, entries, specs, x):
    model = zeros_in(keras_model(whole_spec(specs), keras))
    model.load_weights(paths[0])
    return run_keras(model, x)


def run_keras_2(paths, entries, specs, x):
    model = zeros_in(keras_model(whole_spec(specs), tf_keras))
    model.load_weights(paths[0])
    return run_keras(model, x)


def run_cudnn_layers(paths, entries, specs, x):
    """Run the layers as tf_keras loads them into LSTM and GRU. They always have biases."""
    return run_keras_2(paths, entries, [spec.replace(bias="double") for spec in specs], x)


def run_onnxruntime(paths, entries, specs, x):
    for name in entries:
        of = f"{name}/" if len(entries) > 1 else ""
        x = run_onnx(paths[0], x, f"{of}Y", of)
    return x


def flat_reader(load, suffix, apart=False):
    def run(paths, entries, specs, x):
        for path, name, spec in zip(paths, entries, specs, strict=True):
            x = recurrence(load(path, name), spec, x).value
        return x

    return Reader("cudnn", suffix, run, apart)


def named(tensors, name):
    """Return the weight space of an RNN; one that had no prefix has none."""
    return tensors["weight_space" if "weight_space" in tensors else f"{name}.weight_space"]


READERS = {
    "torch .pt": torch_reader(lambda path: torch.load(path, weights_only=True), ".pt"),
    "torch .safetensors": torch_reader(safetensors.torch.load_file, ".safetensors"),
    "keras 3 .keras": Reader("keras", ".keras", run_keras_3),
    "keras 3 .h5": Reader("keras", ".h5", run_keras_3),
    "keras 3 .weights.h5": Reader("keras", ".weights.h5", run_keras_weights),
    "keras 2 .h5": Reader("keras", ".h5", run_keras_2),
    "keras 2 cudnn .h5": Reader("keras-cudnn", ".h5", run_cudnn_layers),
    "onnx": Reader("onnx", ".onnx", run_onnxruntime),
    "cudnn .safetensors": flat_reader(
        lambda path, name: named(safetensors.numpy.load_file(path), name), ".safetensors"
    ),
    "cudnn .npz": flat_reader(lambda path, name: named(dict(np.load(path)), name), ".npz"),
    "cudnn .npy": flat_reader(lambda path, name: np.load(path), ".npy", apart=True),
    "cudnn .bin": flat_reader(lambda path, name: np.fromfile(path, "<f4"), ".bin", apart=True),
}


# -------------------------------------------------------------------------------------- the pairs


def framework(who):
    names = ("torch", "keras 3", "keras 2 cudnn", "keras 2", "onnx", "cudnn")
    return next(name for name in names if who.startswith(name))


def has(who, cell, reset="after", proj=0):
    """Does the framework have this RNN? The conversions must agree."""
    if framework(who) in ("torch", "cudnn"):
        return reset == "after"
    if framework(who) == "keras 2 cudnn" and (cell[:3] == "rnn" or reset == "before"):
        return False
    return not proj


def whole_model(writer, reader):
    """Is the file converted as a whole model, to Keras 3's layers?"""
    return writer.endswith(".h5") and reader == "keras 2 cudnn .h5"


def spec_of(writer, cell, reset, proj, layers, both, bias):
    if framework(writer) == "keras 2 cudnn":  # which always has biases
        bias = "double"
    return rl.Spec(cell, I, H, layers, both, proj, bias, reset)


def draw(fits):
    """Return (writer, reader, spec): each writer with each cell and shape, the readers of a cell in
    turn. fits(writer, reader, cell): is it such a pair?"""
    turns, found = {cell: itertools.cycle(READERS) for cell in CELLS}, []
    for writer, cell, shape in pairwise(
        list(WRITERS), CELLS, SHAPES, fits=lambda writer, cell, _: has(writer, *cell)
    ):
        tried = itertools.islice(turns[cell], len(READERS))
        if reader := next((one for one in tried if fits(writer, one, cell)), None):
            found.append((writer, reader, spec_of(writer, *cell, *shape)))
    return found


HELD = draw(lambda writer, reader, cell: has(reader, *cell) and not whole_model(writer, reader))
REFUSED = draw(
    lambda writer, reader, cell: not has(reader, *cell) and not whole_model(writer, reader)
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a function: (writer, spec) -> its Source, written once."""
    return cache(lambda writer, spec: WRITERS[writer](spec, tmp_path_factory.mktemp("source")))


def exact(source, spec):
    """Return the recurrence in float64, and how far float32 may be from it."""
    weights = rl.stack(rl.load(source.path, **source.hints).values())
    if spec.proj_size:
        layers = from_cudnn(weights.pack(), weights.to("cudnn").spec)
    else:
        layers = from_onnx(weights.to("onnx"), spec)
    return forward(layers, spec, x_of(spec), *zeros_of(spec)).y


def convert(source, reader, folder, **more):
    """Returns the new files, and whose RNN each holds."""
    prefixes = source.entries if reader.apart and len(source.entries) > 1 else [""]
    paths = []
    for k, prefix in enumerate(prefixes):
        paths.append(folder / f"new{k}{reader.suffix}")
        rl.convert_file(source.path, paths[-1], to=reader.to, prefix=prefix, **source.hints, **more)
    return paths if len(prefixes) > 1 else paths * len(source.entries)


@pytest.mark.parametrize("writer, reader, spec", HELD, ids=str)
def test_one_runs_what_the_other_wrote(sources, writer, reader, spec, tmp_path):
    source = sources(writer, spec)
    paths = convert(source, READERS[reader], tmp_path)
    specs = [weights.spec for weights in rl.load(source.path, **source.hints).values()]
    y = READERS[reader].run(paths, source.entries, specs, x_of(spec))
    # Each may differ from the exact result by what float32's rounding explains, so the two by twice
    # that: reference.Rounded, whose sums may be formed in any order, also two biases into one.
    error = exact(source, spec).error
    assert y.shape == source.y.shape and error.max() < 1e-3
    assert (np.abs(y.astype(np.float64) - source.y) <= 2 * error).all()


@pytest.mark.parametrize("writer, reader, spec", REFUSED, ids=str)
def test_what_the_other_has_not_is_refused(sources, writer, reader, spec, tmp_path, capsys):
    """On the command line, with the reason; nothing is written."""
    source, (to, suffix) = sources(writer, spec), (READERS[reader].to, READERS[reader].suffix)
    new = tmp_path / f"new{suffix}"
    hints = [part for name, value in source.hints.items() for part in (f"--{name}", str(value))]
    code = _cli.main(["convert", str(source.path), str(new), "--to", to, *hints])
    said = capsys.readouterr().err
    why = "proj_size" if spec.proj_size else "reset" if spec.reset == "before" else spec.cell
    assert code == 4 and to in said and why in said, said
    assert not list(tmp_path.iterdir())


def test_a_whole_keras_model_stays_one(sources, tmp_path):
    source = sources("keras 3 .h5", spec_of("keras 3 .h5", *CELLS[0], *SHAPES[0]))
    with pytest.raises(rl.LayoutError, match="a whole Keras model can be converted to 'keras'"):
        rl.convert_file(source.path, tmp_path / "new.h5", to="keras-cudnn")


def test_every_reader_has_all_its_cells():
    met = {(reader, s.cell, s.reset, s.proj_size) for _, reader, s in HELD}
    assert met == {(reader, *cell) for reader in READERS for cell in CELLS if has(reader, *cell)}
