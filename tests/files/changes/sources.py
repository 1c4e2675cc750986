"""Good files of tensors: two RNNs of a layout and a layer of another kind, written by the library
of the format; never by rnnlayout."""

import json
import pickle
from dataclasses import dataclass

import numpy as np
import safetensors.numpy
from files.hostile.trees import nd, params
from flax import serialization
from oracles.some import holds

import rnnlayout as rl

CHANGED, KEPT = "enc", "dec"  # paths of the RNNs: the tests change the tensors of the first RNN
HEAD = {"head.weight": np.ones((2, 3), "f4"), "head.bias": np.ones(2, "f4")}
SIZES = {
    "two layers, both directions": {"num_layers": 2, "bidirectional": True},
    "three layers": {"num_layers": 3},
    "both directions": {"bidirectional": True},
    "one layer": {},
}


@dataclass(frozen=True)
class Source:
    """Tensors of a file with two RNNs. spec, layout: of both RNNs. tensors: name -> array.
    options: the arguments with which load() reads the file."""

    spec: rl.Spec
    layout: rl.Layout
    separator: str
    tensors: dict
    options: dict

    def rnn(self, path, spec=None, tensors=None):
        """Return the RNN at a path of the tensors, or another RNN there."""
        below = below_path(path, self.separator, self.tensors if tensors is None else tensors)
        arrays = below.get("weight_space", below)
        return rl.Weights(arrays, spec or self.spec, self.layout)

    @property
    def rnns(self):
        return [self.rnn(path) for path in (CHANGED, KEPT) if self.has(path)]

    def has(self, path):
        return bool(below_path(path, self.separator, self.tensors))


def below_path(path, separator, tensors):
    start = path + separator
    return {n.removeprefix(start): a for n, a in tensors.items() if n.startswith(start)}


def spec_in(layout, **size):
    """Return an RNN with biases that the layout can represent, an LSTM if possible; I is not H."""
    return next(
        spec
        for cell in ("lstm", "gru", "rnn_tanh")
        for bias in ("double", "input", "recurrent", "none")
        for reset in ("after", "before")
        for spec in [rl.Spec(cell, 5, 3, bias=bias, reset=reset, **size)]
        if holds(layout, spec)
    )


def source(layout, size, separator="."):
    """Return a good source; of a layout that is one vector, with a single RNN.

    separator: of the format. The number of a layer follows a dot, because below a slash the number
    may count anything: each layer is an RNN of its own there."""
    spec = spec_in(layout, **SIZES[size])
    shapes = rl.describe(spec, layout)
    is_vector = len(shapes) == 1
    if any(name[0].isdigit() for name in shapes):
        separator = "."
    options = {"layout": layout, "spec": spec, "prefix": CHANGED} if is_vector else {}
    random = np.random.default_rng(7)
    tensors = {
        f"{path}{separator}{name}": random.standard_normal(shape).astype("f4")
        for path in ([CHANGED] if is_vector else [CHANGED, KEPT])
        for name, shape in shapes.items()
    }
    return Source(spec, layout, separator, tensors | HEAD, options)


# ----------------------------------------------------------------------------- the foreign writers


def write_torch(path, tensors):
    import torch

    torch.save({name: torch.from_numpy(array.copy()) for name, array in tensors.items()}, path)


def write_pickle(path, tensors):
    path.write_bytes(pickle.dumps(tensors, 4))


def write_msgpack(path, tensors):
    path.write_bytes(serialization.msgpack_serialize(dict(tensors)))


def write_params(path, tensors):
    arrays = [nd(array.shape, data=array.tobytes()) for array in tensors.values()]
    path.write_bytes(params(*arrays, names=tuple(tensors)))


def write_checkpoint(path, tensors):
    import tensorflow as tf

    tf.raw_ops.SaveV2(
        prefix=str(path.with_suffix("")),
        tensor_names=[*tensors],
        tensors=[*tensors.values()],
        shape_and_slices=[""] * len(tensors),
    )


def write_parts(path, tensors):
    """Write every second tensor in the second part."""
    stem = path.name.removesuffix(".index.json")
    parts = {f"{stem}-{k}.safetensors": dict([*tensors.items()][k::2]) for k in (0, 1)}
    for name, part in parts.items():
        safetensors.numpy.save_file(part, path.with_name(name))
    places = {tensor: name for name, part in parts.items() for tensor in part}
    path.write_text(json.dumps({"metadata": {}, "weight_map": places}))


def write_json(path, tensors):
    path.write_text(json.dumps({name: array.tolist() for name, array in tensors.items()}))


WRITERS = {
    ".safetensors": lambda path, tensors: safetensors.numpy.save_file(tensors, path),
    ".npz": lambda path, tensors: np.savez(path, **tensors),
    **dict.fromkeys((".pt", ".pth", ".ckpt"), write_torch),
    **dict.fromkeys((".pkl", ".pickle", ".pdparams"), write_pickle),
    ".msgpack": write_msgpack,
    ".params": write_params,
    ".index": write_checkpoint,
    ".index.json": write_parts,
    ".state_dict.json": write_json,
}


def write(folder, suffix, tensors):
    """Write a new file, and return its path: the arrays of a former file may still be mapped."""
    path = folder / f"{len([*folder.iterdir()])}{suffix}"
    WRITERS[suffix](path, tensors)
    return path
