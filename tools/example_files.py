"""Write the files in examples/data that the README and the examples use.

    python tools/example_files.py        needs tf_keras and h5py, downloads textgenrnn's weights

old.h5: a whole model of Keras 2 with a CuDNNLSTM, which Keras 3 rejects. Its weights are random.
by-hand.npz: a script made PyTorch's tensors of them. It transposed the recurrent matrix gate by
    gate: it is square, so no shape shows the mistake.
packed.npy: another script made cuDNN's weight space. It transposed all matrices, as Keras stores
    them, and put the output gate before the candidate, which is nearly ONNX's order.
textgenrnn_rnn1.hdf5: layer rnn_1 of the published textgenrnn weights. The names, attributes and
    bytes of the three arrays are unchanged; the other layers are left out.
"""

import io
import sys
from pathlib import Path

import h5py
import numpy as np
from tf_keras import Sequential, layers
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

import rnnlayout as rl

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
DATA = EXAMPLES / "data"
sys.path.insert(0, str(EXAMPLES))
import checkpoints  # noqa: E402


def cut_checkpoint(layer="rnn_1"):
    whole = h5py.File(io.BytesIO(checkpoints.fetch(checkpoints.TEXTGENRNN)), "r")
    names = whole[layer].attrs["weight_names"]
    with h5py.File(checkpoints.SMALL, "w") as small:
        for key in ("backend", "keras_version"):
            small.attrs[key] = whole.attrs[key]
        small.attrs["layer_names"] = [layer.encode()]
        group = small.create_group(layer)
        group.attrs["weight_names"] = names
        for name in map(bytes.decode, names):
            group.create_dataset(name, data=whole[layer][name][()], track_times=False)


def output_before_candidate(tensor):
    i, f, g, o = np.split(tensor, 4)
    return np.concatenate([i, f, o, g])


def main():
    rng = np.random.default_rng(2018)
    model = Sequential([layers.Input((None, 8)), CuDNNLSTM(24, name="lstm"), layers.Dense(2)])
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.get_weights()])
    model.save(DATA / "old.h5", include_optimizer=False)

    tensors = rl.convert(rl.load(DATA / "old.h5"), to="torch")
    turned = [gate.T for gate in np.split(tensors["weight_hh_l0"], 4)]
    np.savez(DATA / "by-hand.npz", **tensors | {"weight_hh_l0": np.concatenate(turned)})
    packed = [output_before_candidate(tensor).T.ravel() for tensor in tensors.values()]
    np.save(DATA / "packed.npy", np.concatenate(packed))
    cut_checkpoint()


if __name__ == "__main__":
    main()
