"""From each framework's files to every other's: one writes the file, the other runs the new one.

A writer saves an RNN with the framework itself, and returns what the framework computes. A reader
loads the file that convert_file() made of it with the other framework, and runs it. Both get the
same x and start from zero. Stacks, and other formats, have the tests of their folders.
"""

from functools import cache

import keras
import numpy as np
import onnx
import pytest
import tf_keras
import torch
from files.outputs import exact
from marks import pairwise
from oracles.frameworks import (
    KERAS_NOISE,
    H,
    I,
    N,
    T,
    fill_keras,
    keras_layer,
    normal,
    onnx_model,
    onnx_session,
    onnx_tensors,
    seeded,
    torch_module,
)

import rnnlayout as rl

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore::UserWarning:keras")]

CELLS = [("lstm", "after"), ("gru", "after"), ("gru", "before"), ("rnn_tanh", "after"),
         ("rnn_relu", "after")]  # fmt: skip


def x_of(spec):
    return normal(seeded("x", spec), T, N, I)


def write_torch(spec, path):
    module = torch_module(spec, seeded("torch", spec))
    torch.save(module.state_dict(), path)
    with torch.no_grad():
        return module(torch.from_numpy(x_of(spec)))[0].numpy()


def read_torch(spec, path):
    module, state = torch_module(spec), torch.load(path, weights_only=True)
    module.load_state_dict({name.rpartition(".")[2]: one for name, one in state.items()})
    with torch.no_grad():
        return module(torch.from_numpy(x_of(spec)))[0].numpy()


@cache
def keras_model(spec, kit):
    x, layer = kit.Input((None, I)), keras_layer(spec, kit)
    y, *_ = (kit.layers.Bidirectional(layer) if spec.bidirectional else layer)(x)
    return kit.Model(x, y)


def run_keras(spec, model):
    y = model(np.ascontiguousarray(x_of(spec).swapaxes(0, 1)))
    y = keras.ops.convert_to_numpy(y) if isinstance(model, keras.Model) else y.numpy()
    return y.swapaxes(0, 1)


def keras_writer(kit):
    def write(spec, path):
        (model,) = fill_keras([keras_model(spec, kit)], seeded(kit.__name__, spec))
        model.save(path)
        return run_keras(spec, model)

    return write


def read_keras_2(spec, path):
    model = keras_model(spec, tf_keras)
    for variable in model.weights:  # so that what is not loaded is noticed
        variable.assign(np.zeros(variable.shape, "f4"))
    model.load_weights(path)
    return run_keras(spec, model)


def write_onnx(spec, path):
    onnx.save(onnx_model(onnx_tensors(spec, seeded("onnx", spec)), spec), path)
    return run_onnx(spec, path)


def run_onnx(spec, path):
    session, state = onnx_session(path), np.zeros((spec.num_directions, N, H), "f4")
    names = [given.name for given in session.get_inputs()]
    return session.run(None, {name: x_of(spec) if name in "xX" else state for name in names})[0]


WRITERS = {  # the suffix, and a function: spec, path -> y
    "torch": (".pt", write_torch),
    "keras": (".keras", keras_writer(keras)),
    "keras .h5": (".h5", keras_writer(keras)),
    "keras 2": (".h5", keras_writer(tf_keras)),
    "onnx": (".onnx", write_onnx),
}
READERS = {  # the new layout and suffix, and a function: spec, path -> y
    "torch": ("torch", ".pt", read_torch),
    "keras": ("keras", ".keras", lambda spec, path: run_keras(
        spec, keras.models.load_model(path, compile=False))),
    "keras 2": ("keras", ".h5", read_keras_2),
    "onnx": ("onnx", ".onnx", run_onnx),
}  # fmt: skip


@pytest.mark.parametrize("writer, reader, cell, both, bias", pairwise(
    WRITERS, READERS, CELLS, [False, True], ["double", "none"],
    fits=lambda writer, reader, cell, *_: cell[1] == "after" or "torch" not in (writer, reader),
), ids=str)  # fmt: skip
def test_one_runs_what_the_other_wrote(writer, reader, cell, both, bias, tmp_path):
    cell, reset = cell
    spec = rl.Spec(cell, I, H, 1, both, bias=bias, reset=reset)
    (suffix, write), (to, new_suffix, read) = WRITERS[writer], READERS[reader]
    old, new = tmp_path / f"old{suffix}", tmp_path / f"new{new_suffix}"
    theirs = write(spec, old)
    hint = {"cell": cell} if writer == "torch" and cell.startswith("rnn") else {}
    rl.convert_file(old, new, to=to, **hint)
    y = read(spec, new)
    # Each may differ from the exact result by what float32's rounding explains, so the two by twice
    # that: reference.Rounded, whose sums may be formed in any order, also two biases into one.
    (weights,) = rl.load(old, **hint).values()
    error = exact(weights, x_of(spec)).y.error
    assert y.shape == theirs.shape and error.max() < 1e-3
    assert (np.abs(y.astype(np.float64) - theirs) <= 2 * error).all()
