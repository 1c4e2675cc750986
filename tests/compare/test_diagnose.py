"""diagnose: the mistakes that were made are named, and undone; what may be given, in its own names,
and the line that repairs it."""

from importlib import import_module

import numpy as np
import pytest
import torch
from compare import mistake_machine as machine
from compare.diagnoses import BOTH, LSTM, lost, rules, swapped_in, weights

import rnnlayout as rl
from rnnlayout._files.formats.registry import read_tensor_set


def check(verdicts, least):
    """At least this share is named exactly, all are restored, none is wrong with confidence."""
    verdicts = list(verdicts)
    bad = [one for one in verdicts if not one.exactly]
    assert len(bad) <= (1 - least) * len(verdicts), bad
    assert [one for one in verdicts if one.restored is False] == []
    assert [one for one in verdicts if one.wrong] == []
    return len(verdicts)


def test_the_right_buffer_packs_as_cudnn_does():
    """Of the machine: with no mistake it makes what pack() makes."""
    for spec in machine.CELLS:
        like = weights(spec.replace(bias="none" if spec.bias == "none" else "double"))
        made = machine.right(spec, like)
        assert made.size == spec.num_params
        if spec.bias in ("double", "none"):
            assert made.tobytes() == rl.pack(like, spec).tobytes()
        found = rl.diagnose(made, like=made, spec=spec)
        assert found and rules(found) == [] and str(found).startswith("the buffer is right")


FEW_CELLS = [machine.CELLS[k] for k in (1, 6, 10)]


@pytest.mark.parametrize("spec", FEW_CELLS, ids=str)
def test_every_single_mistake_is_named(spec):
    assert check(machine.singles([spec]), 1) >= 40


@pytest.mark.long
def test_every_single_mistake_of_the_other_cells_is_named():
    others = [spec for spec in machine.CELLS if spec not in FEW_CELLS]
    assert check(machine.singles(others), 1) > 400


def test_pairs_and_triples_are_named():
    check(machine.several(30, seed=1), 0.96)  # one may be wrong: the sweep below has the limit


@pytest.mark.long
def test_many_pairs_and_triples_are_named():
    assert check(machine.several(), 0.99) == machine.COMBINED


def test_a_mapped_file_of_bytes_was_not_read_without_its_description(tmp_path):
    """diagnose() asked for spec= of flat, but not with mmap=False."""
    like, path = weights(LSTM), tmp_path / "packed.bin"
    wrong = rl.pack(swapped_in(like))
    path.write_bytes(wrong.tobytes())
    texts = [rl.diagnose(path, like=like, mmap=mmap).text for mmap in (True, False)]
    assert texts[0] == texts[1] == rl.diagnose(wrong, like=like).text


def test_the_dtype_of_a_buffer_of_another_length_is_named():
    """Beside the length, it was not."""
    buffer = np.random.default_rng(0).normal(size=rl.pack(weights(LSTM)).size + 99).astype("f2")
    text = rl.diagnose(buffer, like=weights(LSTM)).text
    assert "99 too many" in text and "the values are float16, expected float32" in text


def test_a_rounded_matrix_of_8_values_is_searched_for():
    """Fewer values are near to others by chance."""
    like = weights(rl.Spec("lstm", 2, 1))
    W, rest = np.split(rl.pack(like).astype("f2").astype("f4"), [8])
    found = rl.diagnose(np.concatenate([W.reshape(4, 2).T.ravel(), rest]), like=like)
    assert found.text.startswith("all matrices are transposed, all gates together; the values are")


def test_tensors_with_a_projection_are_restored():
    like = weights(rl.Spec("lstm", 8, 6, 2, proj_size=3))
    done = like | {"weight_hr_l0": like["weight_hr_l0"][::-1]}
    found = rl.diagnose(done, like=like)
    assert found.text == "the projections of layer 0 are in reverse order of rows" and found.sure
    assert {name: x.tobytes() for name, x in found.fixed.items()} == {
        name: x.tobytes() for name, x in like.items()
    }


def test_only_networks_of_few_layers_are_drawn_with_layers_in_another_order():
    """Each layer would be drawn where it is, so the picture would grow."""
    for layers in (12, 13):
        spec = rl.Spec("lstm", 3, 3, layers)
        like = weights(spec)
        matrices, biases = np.split(rl.pack(like), [layers * 72])
        turned = np.concatenate([matrices.reshape(layers, -1)[::-1].ravel(), biases])
        found = rl.diagnose(turned, like=like)
        assert found.sure and ("as given" in found.picture().svg) == (layers == 12)


DEEP = rl.Spec("gru", 4, 3, 40)  # 80 matrices


def test_a_search_ends_when_many_matrices_are_absent():
    """Two files of 12 KB took 8 seconds: each matrix was looked for everywhere."""
    like, other = weights(DEEP), rl.pack(weights(DEEP, seed=1))
    absent = 16 + other.nbytes // 4096
    text = f"none of {absent} matrices was found in any form that is searched for, and none of the "
    found = rl.diagnose(other, like=like)
    assert found.text == f"{text}other {80 - absent} in its place" and not found.sure
    right = rl.pack(like)
    for at in (slice(0, 36), slice(-36 - 720, -720)):  # W of layer 0, R of layer 39; 720 biases
        mixed = other.copy()
        mixed[at] = right[at]
        found = rl.diagnose(mixed, like=like)
        (mistake,) = (one for one in found.mistakes if one.rule == "not searched")
        assert (
            f"{len(mistake.where)} further matrices were searched for only in the" in mistake.text
        )
        assert len(mistake.where) == 79 - absent and not found.sure


def test_a_deep_network_is_searched_for_whole_if_it_is_there():
    like = weights(DEEP)
    turned = {name: a.T.copy() if a.ndim == 2 else a for name, a in like.items()}
    buffer = np.concatenate([a.reshape(-1) for a in turned.values() if a.ndim == 2])
    found = rl.diagnose(np.concatenate([buffer, rl.pack(like)[-720:]]), like=like)
    assert found.sure and found.text == "all matrices are transposed, all gates together"
    assert np.array_equal(found.fixed, rl.pack(like))


def test_weights_that_were_packed_twice_are_named():
    like = weights(BOTH)
    forward = {name: like[name.removesuffix("_reverse")] for name in like}
    found = rl.diagnose(rl.pack(forward), like=like)
    assert set(rules(found)) == {"not found", "biases not found"} and not found.sure
    assert {place[1] for one in found.mistakes for place in one.where} == {1}
    assert (
        "layer 1 backward, recurrent matrix is not in the buffer: in its place is layer 1 forward,"
        " recurrent matrix a second time" in found.text
    )
    assert not any("backward" in line for line in found.evidence)
    # but not one that was moved: layers 1 and 2 were exchanged, and one of them is another
    spec = rl.Spec("lstm", 3, 3, 3)
    like = weights(spec)
    moved = like | {"weight_hh_l1": like["weight_hh_l2"],
                    "weight_hh_l2": weights(spec, 9)["weight_hh_l2"]}  # fmt: skip
    found = rl.diagnose(rl.pack(moved), like=like)
    assert "in its place is layer 2, recurrent matrix" in found.text
    assert "a second time" not in found.text and not found.sure


@pytest.mark.parametrize(
    "spec, name, title",
    [
        (LSTM, "weight_ih_l0", "gate f of layer 0, input matrix"),
        (LSTM, "weight_hh_l0", "gate f of layer 0, recurrent matrix"),
        (BOTH, "weight_hh_l1", "gate z of layer 1 forward, recurrent matrix"),
    ],
)
def test_a_stale_gate_is_named(spec, name, title):
    """It was the whole matrix, or none of the matrices: the other gates are right, in place."""
    like, H = weights(spec), spec.hidden_size
    stale = {key: x.copy() for key, x in like.items()}
    stale[name][H : 2 * H] = weights(spec, 5)[name][H : 2 * H]
    found = rl.diagnose(rl.pack(stale), like=like)
    assert found.text == f"{title} is not in the buffer" and not found.sure
    assert found.lost == [title] and len(found.gaps) == 1
    stale[name][H : 2 * H] = like[name][:H]
    found = rl.diagnose(rl.pack(stale), like=like)
    first = {"lstm": "i", "gru": "r"}[spec.cell]
    assert found.text.endswith(f": in its place is gate {first} a second time")


def test_a_stale_gate_in_the_place_of_another():
    """Gate i was not in the buffer, and in the place of f a second time. It is there once."""
    like = weights()
    done, place = like["weight_ih_l0"].copy(), "layer 0, input matrix"
    done[:3], done[3:6] = weights(seed=5)["weight_ih_l0"][:3], done[:3].copy()
    found = rl.diagnose(rl.pack(like | {"weight_ih_l0": done}), like=like)
    swapped = "gates i and f swapped in the input matrices"
    assert found.text == f"{swapped}; gate f of {place} is not in the buffer"
    assert found.fixed[:15].tobytes() == rl.pack(like)[:15].tobytes()
    done[:3] = like["weight_ih_l0"][6:9]  # gate g
    text = rl.diagnose(rl.pack(like | {"weight_ih_l0": done}), like=like).text
    assert text.endswith("is not in the buffer: in its place is gate g a second time")


def test_the_report():
    rng = np.random.default_rng(0)
    (one,) = (x for x in machine.single_mistakes(LSTM, rng) if x.rule == "summed")
    like, (_, wrong, _) = weights(), machine.case(LSTM, [one])
    lines = str(rl.diagnose(wrong, like=like)).splitlines()
    assert lines[0] == (
        "the biases are summed (the sum is in bW, and 0 in bR): the same function, as only their"
        " sum matters"
    )
    assert "cannot be restored: how the sums were split between bW and bR" in lines
    assert lines[1] == "  layer 0, input matrix: elements 0 to 60, gates i f g o"
    assert lines[-1] == "correct: wrong = rl.pack(like)"


# ----------------------------------------------------- too many or too few values, or bytes


def test_a_changed_matrix_is_no_evidence_in_a_cut_buffer():
    flat = rl.pack(weights())[:-5].copy()
    flat[3] += 1
    found = rl.diagnose(flat, like=weights())
    assert found.evidence == ("layer 0, recurrent matrix: elements 60 to 96, gates i f g o",)
    assert lost(found) == ["5 values"] and not found.sure


def test_bytes_that_are_not_whole_values_are_not_explained():
    right = rl.pack(weights())
    none = "; none of the 2 matrices is in it bit for bit"
    double = "; the values are float64, expected float32"
    for flat, text in (
        (right.tobytes()[:-1], "119 values and 3 bytes, expected 120: the last one is missing"),
        (right.tobytes()[:8], f"2 values, expected 120: the last 118 are missing{none}"),
        (b"", f"0 values, expected 120{none}"),
        (right.astype("f8")[:-2], f"118 values, expected 120: the last 2 are missing{double}"),
    ):
        found = rl.diagnose(flat, like=weights())
        assert found.text == f"the buffer has {text}" and not found.sure and found.fixed is None


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_buffer_that_is_moved_and_cut_is_not_explained_with_certainty(count):
    """As many zeros in front as values are missing at the end: the gates of the biases seemed to be
    in another order, and some values changed."""
    for spec in (LSTM, rl.Spec("lstm", 5, 3, 2, True), rl.Spec("lstm", 3, 1, 2)):
        like = weights(spec)
        right = machine.right(spec, like)
        moved = np.concatenate([np.zeros(count, "f4"), right[:-count]])
        found = rl.diagnose(moved, like=like)
        assert not found and not found.sure, found


# -------------------------------------------------------------------------------- what may be given


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


def test_a_file_was_read_three_times(tmp_path, monkeypatch):
    """Whether flat is a vector was found out by reading the file, which was then read again."""
    right, wrong = tmp_path / "right.npz", tmp_path / "wrong.npz"
    tensors = dict(rl.convert(weights(), to="torch"))
    np.savez(right, **tensors)
    tensors["weight_ih_l0"] = np.roll(tensors["weight_ih_l0"], 3, axis=0)
    np.savez(wrong, **tensors)
    reads = []

    def counted(format, file):
        reads.append(file.path)
        return read_tensor_set(format, file)

    for module in ("rnnlayout._compare.diagnose", "rnnlayout._files.files"):
        monkeypatch.setattr(import_module(module), "read_tensor_set", counted)
    assert rl.diagnose(wrong, like=right).mistakes
    assert sorted(reads) == [right, wrong]


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
