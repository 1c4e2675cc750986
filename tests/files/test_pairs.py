"""From each framework's files to every other's: one writes the file, the other runs the new one.

A writer saves a file with the framework itself, and records what the framework computes with it. A
reader loads the file that convert_file() made of it with the other framework, and runs it. Both get
the same x and start from zero. Keras and ONNX have one RNN per layer, so a stack is several RNNs in
their files; a reader then runs one after the other. Other formats have the tests of their folders.
"""

from dataclasses import dataclass, field
from functools import cache

import keras
import numpy as np
import onnx
import pytest
import tf_keras
import torch
from files.onnx.models import tensors_of
from files.outputs import exact
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
    onnx_session,
    seeded,
    torch_module,
    weight,
)
from oracles.reference import cudnn_pieces, forward, from_cudnn

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


def names_of(spec):
    """Return the names of the layers if each is an RNN of its own."""
    return ["rnn"] if spec.num_layers == 1 else [f"rnn_{k}" for k in range(spec.num_layers)]


# -------------------------------------------------------------------------------------- writers


def write_torch(spec, folder):
    model = torch.nn.ModuleDict({"rnn": torch_module(spec, seeded("torch", spec))})
    torch.save(model.state_dict(), folder / "torch.pt")
    with torch.no_grad():
        y = model["rnn"](torch.from_numpy(x_of(spec)))[0].numpy()
    hints = {"cell": spec.cell} if spec.cell[:3] == "rnn" else {}
    return Source(folder / "torch.pt", y, ["rnn"], hints)


@cache
def keras_model(spec, kit):
    """Build a model as a user would, one named layer after the other. It is shared."""
    y = x = kit.Input((None, spec.input_size))
    for name in names_of(spec):
        more = {"return_sequences": True, "use_bias": spec.bias != "none"}
        if spec.cell == "gru":
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


def write_keras(kit, suffix):
    def write(spec, folder):
        model = keras_model(spec, kit)
        fill_keras([model], seeded(kit.__name__, suffix, spec))
        model.save(folder / f"keras{suffix}")
        return Source(folder / f"keras{suffix}", run_keras(model, x_of(spec)), names_of(spec))

    return write


def write_onnx(spec, folder):
    model = onnx_model(tensors_of(spec, seeded("onnx", spec)), spec)
    nodes = [node for node in model.graph.node if node.op_type in ONNX_OPERATOR.values()]
    for node, name in zip(nodes, names_of(spec), strict=True):
        node.name = name
    onnx.save(model, folder / "model.onnx")
    y = run_onnx(folder / "model.onnx", x_of(spec), "y")
    return Source(folder / "model.onnx", y, names_of(spec))


def run_onnx(path, x, y, of=""):
    """Run a model. of: the prefix of its inputs; the states are zero, other inputs are empty."""
    session = onnx_session(path)
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


def write_cudnn(spec, folder):
    """A weight space built without rnnlayout, and the recurrence in float64."""
    rng = seeded("cudnn", spec)
    pieces = [weight(rng, (rows, cols)) for *_, rows, cols in cudnn_pieces(spec)]
    flat = np.concatenate([piece.ravel() for piece in pieces])
    np.savez(folder / "flat.npz", weight_space=flat)
    name = "rnn" if spec.cell[:3] == "rnn" else spec.cell
    return Source(folder / "flat.npz", run_cudnn(flat, spec, x_of(spec)), [name], {"spec": spec})


def run_cudnn(flat, spec, x):
    h0 = np.zeros((spec.num_layers * spec.num_directions, N, spec.proj_size or H), "f4")
    c0 = np.zeros((len(h0), N, H), "f4") if spec.cell == "lstm" else None
    return forward(from_cudnn(flat, spec), spec, x, h0, c0).y.value


WRITERS = {
    "torch": write_torch,
    "keras": write_keras(keras, ".keras"),
    "keras .h5": write_keras(keras, ".h5"),
    "keras 2": write_keras(tf_keras, ".h5"),
    "onnx": write_onnx,
    "cudnn": write_cudnn,
}

# -------------------------------------------------------------------------------------- readers


def read_torch(path, entries, specs, x):
    state = torch.load(path, weights_only=True)
    model = torch.nn.ModuleDict(
        {name: torch_module(spec) for name, spec in zip(entries, specs, strict=True)}
    )
    if not any("." in key for key in state):  # of an RNN that had no prefix
        state = {f"{name}.{key}": value for key, value in state.items() for name in entries}
    model.load_state_dict(state, strict=True)
    y = torch.from_numpy(x)
    with torch.no_grad():
        for name in entries:
            y, _ = model[name](y)
    return y.numpy()


def read_keras(path, entries, specs, x):
    """Run the part of the model's graph that each entry is, on the output of the one before."""
    model = keras.models.load_model(path, compile=False)
    for name, spec in zip(entries, specs, strict=True):
        layers = spec.num_layers
        names = [f"{name}_{k}" for k in range(layers)] if layers > 1 else [name]
        part = keras.Model(model.get_layer(names[0]).input, model.get_layer(names[-1]).output)
        x = run_keras(part, x)
    return x


def read_keras_2(path, entries, specs, x):
    whole = specs[0].replace(num_layers=sum(spec.num_layers for spec in specs))
    model = keras_model(whole, tf_keras)
    for variable in model.weights:  # so that what is not loaded is noticed
        variable.assign(np.zeros(variable.shape, "f4"))
    model.load_weights(path)
    return run_keras(model, x)


def read_onnx(path, entries, specs, x):
    for name in entries:
        of = f"{name}/" if len(entries) > 1 else ""
        x = run_onnx(path, x, f"{of}Y", of)
    return x


def read_cudnn(path, entries, specs, x):
    tensors = dict(np.load(path))
    for name, spec in zip(entries, specs, strict=True):
        one = "weight_space" if "weight_space" in tensors else f"{name}.weight_space"
        x = run_cudnn(tensors[one], spec, x)
    return x


READERS = {  # the new layout and suffix, and a function: path, entries, specs, x -> y
    "torch": ("torch", ".pt", read_torch),
    "keras": ("keras", ".keras", read_keras),
    "keras 2": ("keras", ".h5", read_keras_2),
    "onnx": ("onnx", ".onnx", read_onnx),
    "cudnn": ("cudnn", ".npz", read_cudnn),
}

# -------------------------------------------------------------------------------------- the pairs


def has(who, cell, reset="after", proj=0):
    """Does the framework have this RNN? The conversions must agree."""
    return reset == "after" if who in ("torch", "cudnn") else not proj


def draw(fits):
    found = pairwise(list(WRITERS), list(READERS), CELLS, SHAPES, fits=fits)
    return [(writer, reader, rl.Spec(cell, I, H, layers, both, proj, bias, reset))
            for writer, reader, (cell, reset, proj), (layers, both, bias) in found]  # fmt: skip


HELD = draw(lambda writer, reader, cell, _: has(writer, *cell) and has(reader, *cell))
REFUSED = draw(lambda writer, reader, cell, _: has(writer, *cell) and not has(reader, *cell))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a function: (writer, spec) -> its Source, written once."""
    return cache(lambda writer, spec: WRITERS[writer](spec, tmp_path_factory.mktemp("source")))


@pytest.mark.parametrize("writer, reader, spec", HELD, ids=str)
def test_one_runs_what_the_other_wrote(sources, writer, reader, spec, tmp_path):
    source, (to, suffix, run) = sources(writer, spec), READERS[reader]
    rl.convert_file(source.path, tmp_path / f"new{suffix}", to=to, **source.hints)
    specs = [weights.spec for weights in rl.load(source.path, **source.hints).values()]
    y = run(tmp_path / f"new{suffix}", source.entries, specs, x_of(spec))
    # Each may differ from the exact result by what float32's rounding explains, so the two by twice
    # that: reference.Rounded, whose sums may be formed in any order, also two biases into one.
    whole = rl.stack(rl.load(source.path, **source.hints).values())
    error = exact(whole, x_of(spec)).y.error
    assert y.shape == source.y.shape and error.max() < 1e-3
    assert (np.abs(y.astype(np.float64) - source.y) <= 2 * error).all()


@pytest.mark.parametrize("writer, reader, spec", REFUSED, ids=str)
def test_what_the_other_has_not_is_refused(sources, writer, reader, spec, tmp_path, capsys):
    """On the command line, with the reason; nothing is written."""
    source, (to, suffix, _) = sources(writer, spec), READERS[reader]
    new = tmp_path / f"new{suffix}"
    hints = [part for name, value in source.hints.items() for part in (f"--{name}", str(value))]
    code = _cli.main(["convert", str(source.path), str(new), "--to", to, *hints])
    said = capsys.readouterr().err
    why = "proj_size" if spec.proj_size else "reset" if spec.reset == "before" else spec.cell
    assert code == 4 and to in said and why in said, said
    assert not list(tmp_path.iterdir())


def test_a_whole_keras_model_stays_one(sources, tmp_path):
    source = sources("keras .h5", rl.Spec("lstm", I, H))
    with pytest.raises(rl.LayoutError, match="a whole Keras model can be converted to 'keras'"):
        rl.convert_file(source.path, tmp_path / "new.h5", to="keras-cudnn")
