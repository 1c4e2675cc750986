"""Write the files in examples/data that the README converts and compares.

    python tools/example_files.py        needs tf_keras

old.h5: a whole model of Keras 2 with a CuDNNLSTM, which Keras 3 rejects. Its weights are random.
by-hand.npz: a script made PyTorch's tensors of them. It transposed the recurrent matrix gate by
    gate: it is square, so no shape shows the mistake.
packed.npy: another script made cuDNN's weight space. It transposed all matrices, as Keras stores
    them, and put the output gate before the candidate, which is nearly ONNX's order.
"""

from pathlib import Path

import numpy as np
from tf_keras import Sequential, layers
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

import rnnlayout as rl

DATA = Path(__file__).resolve().parent.parent / "examples" / "data"


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


if __name__ == "__main__":
    main()
