"""Compare what Keras models compute, and what their HDF5 files contain."""

import json

import h5py
import keras
import numpy as np
import pytest
from files.hostile.hdf5 import with_config

import rnnlayout as rl

# Both sides compute in float32. A sum in a gate has at most 8 + 5 + 2 terms below 1, so it errs by
# at most 15 units in the last place on each side. A state passes at most 8 steps of 3 layers. A
# gate passes on at most a quarter of the error of 5 units and 8 inputs with weights of 0.4, which
# is 13 * 0.4 / 4 = 1.3 times the error, and averages of the states do not increase it.
TOLERANCE = 2 * 15 * 2.0**-24 * 8 * 3 * 1.3
# For Keras 2's hard_sigmoid each term has one more rounding on one side, that of its weight. Inputs
# are 4 times as large, and so are the roundings. The slope, 0.2, is less than a quarter.
ONE_MORE = 4 * TOLERANCE * 16 / 15


def flat(outputs):
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [np.asarray(keras.ops.convert_to_numpy(out)) for out in outputs]


def computes(model, x, y, tolerance=TOLERANCE):
    """Assert that the model gives the outputs y, a list."""
    got = model(x)
    assert isinstance(got, (list, tuple)) == (len(y) > 1)
    for a, b in zip(flat(got), y, strict=True):
        assert a.shape == b.shape
        assert np.abs(b).max() > 100 * tolerance
        assert np.abs(a - b).max() <= tolerance


def same_arrays(weights, arrays):
    """Are the tensors of Weights these arrays, in this order?"""
    ours = list(weights.values())
    return len(ours) == len(arrays) and all(map(np.array_equal, ours, arrays))


def layer_of(config, k):
    return config["config"]["layers"][k]


def refused(limited, source, error, why, **more):
    """Assert that a conversion is refused, within the limits, and writes nothing."""
    new = source.with_name(f"new{source.suffix}")
    with limited(), pytest.raises(error, match=why):
        rl.convert_file(source, new, **{"to": "keras"} | more)
    assert not new.exists()


def charset(attribute):
    kind = h5py.check_string_dtype(attribute.dtype)
    return kind and kind.encoding


def tree(path):
    """Return every object of an HDF5 file: its attributes; of a dataset its form and values too."""
    found = {}

    def look(name, item):
        attrs = {
            key: (np.asarray(value).tolist(), charset(item.attrs.get_id(key)))
            for key, value in item.attrs.items()
        }
        data = ()
        if isinstance(item, h5py.Dataset):
            values = b"" if item.shape is None else item[()].tobytes()
            data = (item.shape, item.dtype, item.maxshape, item.chunks, item.compression, values)
        found[name] = (attrs, *data)

    with h5py.File(path, "r") as file:
        look("", file)
        file.visititems(look)
    return found


def changed(source, folder, change):
    """Copy a model, an .h5 file or an archive, to a folder, and change its config there. change:
    a function that does so in place, or a text to replace it."""

    def new(text):
        if isinstance(change, str):
            return change
        config = json.loads(text)
        change(config)
        return json.dumps(config)

    path = folder / f"changed{source.suffix}"
    path.write_bytes(with_config(source.read_bytes(), new))
    return path
