"""Correct files, one per format, from which the hostile ones are made."""

import io
import pickle
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np

import rnnlayout as rl

DATA = Path(__file__).parents[2] / "data"
SPEC = rl.Spec("lstm", 5, 3)
LAYOUTS = {
    ".safetensors": "cudnn", ".npz": "torch", ".npy": "cudnn", ".bin": "cudnn", ".pt": "torch",
    ".old.pt": "torch", ".h5": "keras", ".weights.h5": "keras", ".keras": "keras", ".onnx": "onnx",
    ".pkl": "torch", ".msgpack": "flax-linen",
    ".eqx": "equinox", ".pdparams": "torch",
}  # fmt: skip


def weights(layout):
    rng = np.random.default_rng(7)
    shapes = rl.describe(SPEC, layout).items()
    tensors = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes}
    return rl.Weights(tensors["weight_space"] if layout == "cudnn" else tensors, SPEC, layout)


@cache
def good(suffix):
    """Return the bytes of a correct file of that suffix."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        made = weights(LAYOUTS[suffix])
        if suffix == ".old.pt":
            save_old(path, made)
        elif suffix == ".eqx":
            with open(path, "wb") as file:
                for array in made.values():
                    np.save(file, array)
        elif suffix == ".pdparams":
            path.write_bytes((DATA / "paddle.pdparams").read_bytes())
        elif suffix == ".pkl":
            path.write_bytes(pickle.dumps({**made, "loss": np.float64(0.5)}))
        else:
            rl.save(path, made)
        return path.read_bytes()


def save_old(path, made):
    """Save as torch did before 1.6."""
    import torch

    state = {name: torch.from_numpy(array.copy()) for name, array in made.items()}
    torch.save(state, path, _use_new_zipfile_serialization=False)


def described():
    """Return the JSON that belongs to a .bin file."""
    return SPEC.to_dict()


def members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive(members, compression=zipfile.ZIP_STORED):
    """Return a zip archive of members, given as a dict or as pairs."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as file:
        for name, data in members.items() if isinstance(members, dict) else members:
            file.writestr(name, data)
    return made.getvalue()
