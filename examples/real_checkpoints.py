"""Convert two published checkpoints and check that the networks stay the same.

    python examples/real_checkpoints.py [--offline] [WORD]

1. textgenrnn 2.0.0 (MIT): two stacked CuDNNLSTM layers in an .hdf5 file from 2018 that Keras 3
   cannot read. They are converted to a Keras LSTM, a PyTorch LSTM and cuDNN's weight space.
2. g2p-en 2.1.0 (Apache-2.0): two GRUs in PyTorch's layout. They are converted to cuDNN's weight
   space and pronounce WORD, run by rnnlayout.RNN from there.

Both are compared with a plain NumPy recurrence in double (recurrence.py). The script needs h5py,
but no framework. It downloads the packages (checkpoints.py); if that fails, or with --offline, it
uses the one layer in examples/data.
Exit code: 0 if the outputs agree, 1 if they do not.
"""

import argparse
import io
import os
import sys

import h5py
import numpy as np
from checkpoints import G2P, SMALL, TEXTGENRNN, Unavailable, fetch
from recurrence import (
    gru_step,
    lstm,
    lstm_shift,
    merged_bias_errors,
    read_cudnn,
    read_cudnn_lstm,
    read_keras,
    read_torch,
)

import rnnlayout as rl

STEPS = 16
TOLERANCE = """\
  (The limit is 0 if every bit is preserved. Keras has one bias where CuDNNLSTM has two: a sum that
  does not fit float32 is off by at most half an ulp, and the derivative of the output with respect
  to the bias gives the effect on the output. The limit adds the effects of all sums.)
"""


def main(word, offline):
    if offline:
        os.environ["RNNLAYOUT_OFFLINE"] = "1"
    print(f"rnnlayout {rl.__version__}\n")
    failed = textgenrnn() + g2p(word)
    print(f"\n{failed} comparisons FAILED" if failed else "\nall outputs agree")
    return 1 if failed else 0


def verdict(name, difference, tolerance, note):
    right = difference <= tolerance
    sign = "<=" if right else "> "
    print(f"  {name:6} largest difference {difference:<7.2g} {sign} {tolerance:<7.2g} {note}")
    return not right


# ---------------------------------------------------------------- CuDNNLSTM -> Keras, torch, cuDNN


def open_textgenrnn():
    """Return the HDF5 file and its origin: the package, or else examples/data."""
    try:
        return h5py.File(io.BytesIO(fetch(TEXTGENRNN)), "r"), f"package {TEXTGENRNN[0]}"
    except Unavailable as why:
        return h5py.File(SMALL, "r"), f"examples/data/{SMALL.name}, the first layer only ({why})"


def read_layers(file):
    """Return {name in the file: array} of each recurrent layer, in order."""
    layers = [file[name] for name in sorted(file) if name.startswith("rnn_") and len(file[name])]
    names = [[name.decode() for name in layer.attrs["weight_names"]] for layer in layers]
    return [{n: layer[n][()] for n in given} for layer, given in zip(layers, names, strict=True)]


def textgenrnn():
    file, where = open_textgenrnn()
    layers = read_layers(file)
    print(f"textgenrnn: CuDNNLSTM weights written by Keras {file.attrs['keras_version']}")
    print(f"  from {where}")

    weights = rl.stack(rl.Weights(layer, layout="keras-cudnn") for layer in layers)
    flat, torch, keras = (
        weights.pack(exact=True),
        weights.to("torch", exact=True),
        weights.to("keras"),
    )
    print(f"  {weights.spec}\n")

    # the three results must equal the file's own arrays, read without rnnlayout
    own = read_cudnn_lstm([list(layer.values()) for layer in layers])
    per_layer = np.split(np.arange(len(keras)), weights.spec.num_layers)
    arrays = list(keras.values())
    forms = {
        "cuDNN": read_cudnn(flat, weights.spec),
        "torch": read_torch(torch, "ifgo"),
        "Keras": read_keras([[arrays[k] for k in ks] for ks in per_layer], "ifgo"),
    }
    x = np.random.default_rng(2018).standard_normal((STEPS, 1, weights.spec.input_size))
    y = lstm(own, x)
    rounded = merged_bias_errors(own)
    sums = keras.report.rounded_sums
    notes = {
        "cuDNN": f"exact: {flat.size} numbers copied",
        "torch": f"exact: {len(torch)} tensors",
        "Keras": f"rounds: {len(rounded)} of {sums} sums of two biases do not fit float32",
    }
    tolerance = {"cuDNN": 0, "torch": 0, "Keras": lstm_shift(own, x, rounded).max()}
    print(f"  outputs of {STEPS} steps in double, compared with the file's own arrays:")
    failed = sum(
        verdict(name, abs(lstm(form, x) - y).max(), tolerance[name], notes[name])
        for name, form in forms.items()
    )
    print(TOLERANCE)
    return failed


# ------------------------------------------------------------------- PyTorch GRU -> cuDNN, a word

GRAPHEMES = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
# fmt: off
PHONEMES = [
    "<pad>", "<unk>", "<s>", "</s>", "AA0", "AA1", "AA2", "AE0", "AE1", "AE2", "AH0", "AH1", "AH2",
    "AO0", "AO1", "AO2", "AW0", "AW1", "AW2", "AY0", "AY1", "AY2", "B", "CH", "D", "DH", "EH0",
    "EH1", "EH2", "ER0", "ER1", "ER2", "EY0", "EY1", "EY2", "F", "G", "HH", "IH0", "IH1", "IH2",
    "IY0", "IY1", "IY2", "JH", "K", "L", "M", "N", "NG", "OW0", "OW1", "OW2", "OY0", "OY1", "OY2",
    "P", "R", "S", "SH", "T", "TH", "UH0", "UH1", "UH2", "UW", "UW0", "UW1", "UW2", "V", "W", "Y",
    "Z", "ZH",
]
# fmt: on

# The pronunciation that the package's own page shows for a word that is in no dictionary.
KNOWN = {"activationist": "AE2 K T IH0 V EY1 SH AH0 N IH0 S T"}


def torch_names(arrays, part):
    """Return the GRU of the encoder (part "enc") or decoder ("dec") under PyTorch's names."""
    names = {
        "w_ih": "weight_ih_l0",
        "w_hh": "weight_hh_l0",
        "b_ih": "bias_ih_l0",
        "b_hh": "bias_hh_l0",
    }
    return {name: arrays[f"{part}_{own}"] for own, name in names.items()}


def pronounce(word, arrays, encoder, decoder):
    """Run the model of g2p-en on the letters of a word.

    encoder, decoder: the two GRUs, each a function of x and h that returns the next h.
    Returns the most likely phonemes and the last state.
    """
    h = np.zeros((1, 256), "f4")
    for letter in [*word, "</s>"]:
        known = letter if letter in GRAPHEMES else "<unk>"
        h = encoder(arrays["enc_emb"][[GRAPHEMES.index(known)]], h)
    phonemes, last = [], PHONEMES.index("<s>")
    while len(phonemes) < 20:
        h = decoder(arrays["dec_emb"][[last]], h)
        last = int((h @ arrays["fc_w"].T + arrays["fc_b"]).argmax())
        if PHONEMES[last] == "</s>":
            break
        phonemes.append(PHONEMES[last])
    return " ".join(phonemes), h


def g2p(word):
    try:
        arrays = dict(np.load(io.BytesIO(fetch(G2P)), allow_pickle=False))
    except Unavailable as why:
        print(f"g2p-en: left out, its package is not available ({why})")
        return 0
    print(f"g2p-en: GRU encoder and decoder in PyTorch's layout\n  from package {G2P[0]}")
    ours, slow = [], []
    for part, name in (("enc", "encoder"), ("dec", "decoder")):
        tensors = torch_names(arrays, part)
        spec = rl.infer_spec(tensors)
        flat = rl.pack(tensors, exact=True)
        rnn, (layer,) = rl.RNN(flat, spec), read_torch(tensors, "rzn")
        ours.append(lambda x, h, rnn=rnn: rnn.step(x, h[None])[0])
        slow.append(lambda x, h, layer=layer: gru_step(layer, x, h.astype("f8")))
        print(f"  {name}: {spec}; exact: {flat.size} numbers copied")
    failed = 0
    for one in dict.fromkeys([*KNOWN, word.lower()]):
        found, h = pronounce(one, arrays, *ours)
        reference, h_reference = pronounce(one, arrays, *slow)
        wanted = KNOWN.get(one, reference)
        right = found == wanted == reference
        note = "as on the package's page" if one in KNOWN else ""
        note = note if right else f"WRONG, expected {wanted}"
        print(f"  {one!r} by rnnlayout.RNN: {found}  {note}".rstrip())
        failed += not right
        # float32 sums of 512 products, each at most as large as the sum, compared with double
        note = "from the recurrence's state"
        failed += verdict("state", abs(h - h_reference).max(), 512 * 2.0**-24, note)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Convert two published checkpoints.")
    parser.add_argument("word", nargs="?", default="unpickle", help="the word to pronounce")
    parser.add_argument(
        "--offline", action="store_true", help="use only the layer in examples/data"
    )
    args = parser.parse_args()
    sys.exit(main(args.word, args.offline))
