"""diagnose: what may be given, in its own names, and the line that repairs it."""

import numpy as np
import pytest
import torch
from compare.diagnoses import rules, swapped_in, weights

import rnnlayout as rl


def test_evidence_has_the_order_of_the_layout_that_was_given():
    """Somebody put torch's gates i f g o where ONNX has i o f g: that was "i g o f"."""
    like = weights()
    onnx = rl.convert(like, to="onnx")
    onnx["W"][0] = like["weight_ih_l0"]
    found = rl.diagnose(onnx, like=like)
    assert found.evidence[0] == "W (layer 0, input matrix): gates i f g o"
    assert found.text == "gates in the order i f g o, expected i o f g in the input matrices"


def test_the_line_to_paste_works_with_the_callers_names(tmp_path, monkeypatch):
    """Also for sources that need hints, and of the kind that was given."""
    monkeypatch.chdir(tmp_path)
    model = weights(rl.Spec("lstm", 5, 3, 2))
    bad = swapped_in(model)
    buffer, raw, keras = rl.pack(bad), rl.pack(bad).tobytes(), rl.convert(bad, to="keras")
    listed, arrays = list(keras.values()), list(model.values())
    spec = rl.Spec("lstm", 5, 3, 2)
    right = rl.pack(model)
    np.savez("bad.npz", **bad)
    np.savez("model.npz", **{f"enc.{name}": x for name, x in model.items()})
    np.save("bad.npy", buffer)
    cases = {
        "buffer = rl.pack(model)": (rl.diagnose(buffer, like=model), right),
        "raw = rl.pack(model).tobytes()": (rl.diagnose(raw, like=model), right.tobytes()),
        "bad = rl.convert(model, to='torch')": (rl.diagnose(bad, like=model), model),
        "keras = rl.convert(model, to='keras')": (rl.diagnose(keras, like=model), model),
        "listed = list(rl.convert(model, to='keras').values())": (
            rl.diagnose(listed, like=model, layout="keras"), list(rl.convert(model, to="keras")
                                                                   .values())),
        "buffer = rl.pack(rl.Weights(arrays, layout='torch'))": (
            rl.diagnose(buffer, like=arrays, layout="torch"), right),
        f"buffer = rl.pack(rl.Weights(right, spec=rl.{spec!r}))": (
            rl.diagnose(buffer, like=right, spec=spec), right),
        "buffer = rl.pack(rl.load('model.npz', prefix='enc')['enc'])": (
            rl.diagnose(buffer, like="model.npz", prefix="enc"), right),
        "rl.save('right-bad.npz', rl.load('model.npz')['enc'].to('torch'))": (
            rl.diagnose("bad.npz", like="model.npz"), "right-bad.npz"),
        "rl.save('right-bad.npy', rl.Weights(model).to('cudnn'))": (
            rl.diagnose("bad.npy", like=model), "right-bad.npy"),
    }  # fmt: skip
    for line, (found, expected) in cases.items():
        assert found.repair == line and not found
        names = {"rl": rl, "model": model, "arrays": arrays, "right": right}
        exec(line, names)
        made = names.get(line.partition(" = ")[0], expected)
        if isinstance(made, dict) or isinstance(expected, str):
            assert rl.verify(model, made), line
        elif isinstance(made, list):
            assert all((a == b).all() for a, b in zip(made, expected, strict=True))
        else:
            assert bytes(made) == bytes(expected), line


def test_layers_of_a_file_are_those_of_one_rnn(tmp_path):
    """It was "several RNNs: choose one with prefix=", which is for the other file."""
    like = weights(rl.Spec("lstm", 5, 3, 2))
    bad = rl.Weights(swapped_in(like)).to("keras").split()
    file = tmp_path / "two.weights.h5"
    rl.save(file, {f"enc_{k}": layer for k, layer in enumerate(bad)})
    found = rl.diagnose(file, like=like)
    assert found.text == "gates f and g swapped in the input matrices"
    assert "1/kernel (layer 1, input matrix): gates i g f o" in found.evidence
    found = rl.diagnose(like, like=file)
    names = {"rl": rl, "like": None}
    exec(found.repair, names)
    assert rl.verify(names["like"], rl.stack(rl.load(file).values()))
    both = {"enc": rl.Weights(like), "dec": rl.Weights(weights(seed=4))}
    rl.save(tmp_path / "both.npz", both)
    assert rl.diagnose(tmp_path / "both.npz", like={"enc": rl.Weights(like)})
    with pytest.raises(rl.LayoutError, match=r"2 RNNs of like .* need one: choose it with prefix="):
        rl.diagnose(tmp_path / "both.npz", like=both)


def test_a_file_with_one_vector_is_a_buffer(tmp_path):
    like = weights()
    right, bad = rl.pack(like), rl.pack(swapped_in(like))
    np.savez(tmp_path / "v.npz", flat=bad)
    found = rl.diagnose(tmp_path / "v.npz", like=like)
    assert rules(found) == ["gates igfo"] and "elements 0 to 60" in found.evidence[0]
    found.save(tmp_path / "w.npz")
    assert rl.diagnose(tmp_path / "w.npz", like=like)
    assert rl.load(tmp_path / "w.npz")["lstm"].tensors.tobytes() == right.tobytes()


def test_bytes_and_files(tmp_path):
    like = weights()
    right = rl.pack(like)
    rl.save(tmp_path / "like.safetensors", rl.Weights(like))
    (tmp_path / "w.bin").write_bytes(right[::-1].tobytes()[::-1])
    np.save(tmp_path / "w.npy", right)
    for flat in (right.tobytes(), tmp_path / "w.npy"):
        assert rl.diagnose(flat, like=tmp_path / "like.safetensors")
    found = rl.diagnose(tmp_path / "w.bin", like=like)
    assert rules(found) == ["byte order"] and found.fixed.tobytes() == right.tobytes()


def test_peepholes_in_another_order():
    onnx = {**rl.convert(weights(), to="onnx"), "P": np.arange(9, dtype="f4").reshape(1, 9)}
    assert rl.diagnose(onnx, like=onnx)
    found = rl.diagnose({**onnx, "P": np.roll(onnx["P"], 3)}, like=onnx)
    assert [one.where for one in found.mistakes] == [((0, 0, "peephole"),)]
    assert found.evidence[2] == "P (layer 0, peephole): gates f i o"
    with pytest.raises(rl.LayoutError, match="peepholes are not repaired: convert it again"):
        found.save("never-written.npz")
    plain = {name: array for name, array in onnx.items() if name != "P"}
    assert not rl.diagnose(onnx, like=plain).sure  # it raised an IndexError


def test_what_is_refused():
    with pytest.raises(rl.Error, match="layout"):  # of a list
        rl.diagnose(rl.pack(weights()), like=[*weights().values()])
    with pytest.raises(rl.LayoutError, match=r"flat: shape \(2, 3\), need 1-D"):
        rl.diagnose(np.zeros((2, 3), "f4"), like=weights())


def test_a_prefix_chooses_an_rnn_of_a_module():
    """It was dropped for everything but dicts and files."""
    model = torch.nn.Module()
    model.enc, model.dec = torch.nn.LSTM(5, 3), torch.nn.LSTM(5, 3)
    flat = rl.pack(swapped_in(rl.Weights(model, prefix="dec")))
    found = rl.diagnose(flat, like=model, prefix="dec")
    assert found.repair == "flat = rl.pack(rl.Weights(model, prefix='dec'))"
    assert found.sure and (found.fixed == rl.pack(model, prefix="dec")).all()
    assert rl.verify(model, rl.Weights(model.dec), prefix="dec")
