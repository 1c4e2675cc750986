"""Commands that are refused: their exit code, their words, and nothing is written."""

import pickle

import numpy as np
import pytest
from cli.files import GRU, LSTM, X
from oracles.some import prefixed
from safetensors.numpy import save_file

TEXT = "'gru, input_size 5, hidden_size 3'"
CONVERT = "convert enc.npz out.npz"
RUN = "run lstm.npz --input x.npy --output new.npy"
IDENTIFY = "identify lstm.npz --input x.npy --output y.npy"
REFUSED = {
    f"{CONVERT} --to keras --exact": (4, "would be rounded"),
    f"{CONVERT} --to cudnn --dtype float16 --exact": (4, "float16"),
    f"{CONVERT} --to keras-cudnn --prefix nix": (3, "nix"),
    f"{CONVERT} --into nix.npz": (3, "nix.npz does not exist"),
    f"{CONVERT} --into gru.npz": (3, "two different RNNs"),
    f"{CONVERT} --into many.npz": (3, "pair them with --map enc=a"),
    f"{CONVERT} --into many.npz --map enc=c": (3, "b has no RNN 'c': it has a, b"),
    f"{CONVERT} --into model.pkl": (3, "weights cannot be put into a .pkl file"),
    f"{CONVERT} --to torch --only end": (3, "'end'; did you mean 'enc'? --only takes enc"),
    f"{CONVERT} --into lstm.safetensors": (3, "needs the same suffix, .safetensors"),
    f"{RUN} --device cuda:99": (5, "cuda:99"),
    f"{RUN} --device gpu": (2, "device is 'gpu', need 'cpu', 'cuda', 'cuda:N' or 'auto'"),
    f"{RUN} --lengths 9,9,9,9": (3, "lengths"),
    f"{RUN} --only gru": (3, "no RNN is named 'gru': --only takes lstm"),
    f"{RUN} --output y.npz": (2, "y.npz: the name must end in .npy"),
    f"{RUN} --states s.npy": (2, "s.npy: the name must end in .npz"),
    f"{RUN} --input nix.npy": (3, "nix.npy does not exist"),
    f"{RUN} --input object.npy": (3, "Python objects"),
    f"{RUN} --input short.npy": (3, "cut short"),
    f"{RUN} --input complex.npy": (3, "x is complex64"),
    f"{IDENTIFY} --save new.txt": (2, "unknown format"),
    f"{IDENTIFY} --save y.npy --state y.npy --force": (3, "is the input"),
    f"{IDENTIFY} --state y.npy y.npy y.npy": (2, "--state takes one file, or two"),
    IDENTIFY.replace("lstm", "two") + " --prefix c": (3, "no tensors are under 'c'"),
    IDENTIFY.replace("lstm.npz", "flat.npy") + " --prefix c": (3, "omit --prefix"),
    IDENTIFY.replace("lstm", "none"): (3, "does not exist"),
    "diagnose flat.npy --like lstm.npz --fix out.txt": (2, "unknown format"),
    "map gru": (2, "'gru' is not a file; as a spec: 'gru': need the form \"lstm, "),
    "map 'gru, input_size 5, hiden_size 3'": (2, "did you mean 'hidden_size'? Need, once"),
    f"map {TEXT} --layout haiku": (4, "haiku has no reset-after GRU"),
    f"map {TEXT} --to haiku": (4, "haiku has no reset-after GRU"),
    f"map {TEXT} --width 100": (2, "'100': need a number from 240 to 4000"),
    "map nothing.pt": (3, "nothing.pt does not exist"),
    "map 'nothing, here.pt'": (2, "is not a file"),
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused(rnnlayout, folder, command):
    np.savez("gru.npz", **GRU)
    np.savez("many.npz", **prefixed("a", LSTM), **prefixed("b", LSTM))
    save_file(LSTM, "lstm.safetensors")
    (folder / "model.pkl").write_bytes(pickle.dumps(LSTM, 4))
    np.save("object.npy", np.array([{}]), allow_pickle=True)
    np.save("complex.npy", np.ones(X.shape, "c8"))
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 4, 3)}
    with open("short.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for more in ("", " --dry-run") if command.startswith("convert") else ("",):
        code, out, err = rnnlayout(command + more)
        assert (code, out) == (REFUSED[command][0], "") and REFUSED[command][1] in err, err
        assert "Traceback" not in err
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
