"""diagnose: the mistakes that were made are named, and undone."""

import re
import warnings

import numpy as np
import pytest
import torch
from compare import mistake_machine as machine
from marks import sample
from oracles.some import normal_weights

import rnnlayout as rl

LSTM = rl.Spec("lstm", 5, 3)


def weights(spec=LSTM, seed=0):
    return normal_weights(rl.layout("torch"), spec, seed)


def rules(found):
    return [one.rule for one in found.mistakes]


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


@pytest.mark.parametrize("spec", [machine.CELLS[1], machine.CELLS[6]], ids=str)
def test_every_single_mistake_is_named(spec):
    assert check(machine.singles([spec]), 1) >= 40


@pytest.mark.long
def test_every_single_mistake_of_all_cells_is_named():
    assert check(machine.singles(), 1) > 600


def test_pairs_and_triples_are_named():
    check(machine.several(30, seed=1), 0.96)  # one may be wrong: the sweep below has the limit


@pytest.mark.long
def test_many_pairs_and_triples_are_named():
    assert check(machine.several(), 0.99) == machine.COMBINED


def sums(flat):
    """Return the sums of the two biases, and all else."""
    tensors = rl.unpack(flat, LSTM, to="torch")
    return tensors["bias_ih_l0"] + tensors["bias_hh_l0"], tensors["weight_hh_l0"]


@pytest.mark.parametrize(
    "rule", ["summed", "summed-recurrent", "sum-twice", "sum-halved", "forget bias +1"]
)
def test_what_is_left_of_summed_biases_is_the_same_function(rule):
    rng = np.random.default_rng(0)
    (one,) = (x for x in machine.single_mistakes(LSTM, rng) if x.rule == rule)
    _, wrong, right = machine.case(LSTM, [one])
    found = rl.diagnose(wrong, like=weights())
    # each value is rounded at most three times, to 24 bits; none is larger than 2 * 3 + 1 < 8
    for a, b in zip(sums(found.fixed), sums(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3 * 8 * 2.0**-24)
    assert rules(found) == [rule] and "cannot be restored" in str(found)


def test_other_weights_are_not_explained():
    found = rl.diagnose(rl.pack(weights(seed=1)), like=weights(seed=2))
    assert not found and not found.same and found.fixed is None and found.mistakes == ()
    assert found.text == "none of the 2 matrices was found in any form that is searched for"
    other = {**weights(seed=1), "weight_ih_l0": weights(seed=2)["weight_ih_l0"]}
    found = rl.diagnose(rl.pack(other), like=weights(seed=2))
    assert not found.sure and "not found" in rules(found)
    assert "layer 0, recurrent matrix is not in the buffer" in found.text


BOTH = rl.Spec("gru", 5, 3, 2, bidirectional=True)


def lost(found):
    (line,) = [x for x in str(found).splitlines() if x.startswith("cannot be restored: ")]
    return line.removeprefix("cannot be restored: ").split("; ")


def test_what_is_lost_is_named():
    like = weights(BOTH)
    other = {**weights(BOTH, seed=1), "weight_ih_l0": like["weight_ih_l0"]}
    assert {"layer 0 forward, recurrent matrix", "layer 1 backward, biases"} <= {
        *lost(rl.diagnose(rl.pack(other), like=like))
    }
    found = rl.diagnose(rl.pack(weights())[:-3], like=weights())
    assert rules(found) == ["too short"] and lost(found) == ["the last 3 values"]
    assert not found.sure and found.fixed is None
    assert found.text == "the buffer has 117 values, expected 120: the last 3 are missing"


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
    bottom = {name: like[name.replace("hh_l1", "hh_l0")] for name in like}
    found = rl.diagnose(rl.pack(bottom), like=like)
    assert "in its place is layer 0 backward, recurrent matrix a second time" in found.text
    assert {place[0] for one in found.mistakes for place in one.where} == {1}


def test_biases_in_an_order_of_their_own_are_found():
    """Both directions of layer 1 were exchanged, each under its own biases' names."""
    like = weights(BOTH)

    def other(name):
        turned = name.removesuffix("_reverse") if "reverse" in name else f"{name}_reverse"
        return turned if "l1" in name else name

    found = rl.diagnose(rl.pack({name: like[other(name)] for name in like}), like=like)
    assert rules(found) == ["order", "bias order"]
    assert found.sure and found.fixed.tobytes() == rl.pack(like).tobytes()


def test_values_that_became_nan_are_counted():
    flat = rl.pack(weights())
    flat[7] = np.nan
    text = rl.diagnose(flat, like=weights()).text
    assert text.startswith(f"1 of {flat.size} values is changed to NaN: were")
    flat[9] += 0.5
    text = rl.diagnose(flat, like=weights()).text
    assert text.startswith(f"2 of {flat.size} values are changed, 1 of them to NaN, by up to 0.5: ")


def test_values_cut_off_to_bfloat16():
    flat = rl.pack(weights())
    bits = flat.view("u4") >> 16
    for made in ((bits << 16).view("f4"), bits.astype("u2").tobytes()):
        found = rl.diagnose(made, like=weights())
        assert "cut to bfloat16" in rules(found) and "changed" not in found.text, found
        assert "what bfloat16 cannot represent" in lost(found)


def test_all_values_negated():
    assert rl.diagnose(-rl.pack(weights()), like=weights()).text == "all gates negated"


def packed_like_the_published_one(module):
    """An LSTM packer as one finds them: transposes, orders gates i f o g, goes layer by layer."""
    parts = []
    for layer in range(2):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            i, f, g, o = np.split(module[f"{name}_l{layer}"], 4)
            parts.append(np.concatenate([i, f, o, g]).T.ravel())
    return np.concatenate(parts)


def test_a_published_packer_with_three_mistakes_is_explained():
    like = weights(rl.Spec("lstm", 5, 3, 2))
    found = rl.diagnose(packed_like_the_published_one(like), like=like)
    assert found.text == (
        "all matrices are transposed, all gates together; gates g and o swapped; the biases of each"
        " layer come next to its matrices, expected: after all matrices"
    )
    assert found.sure and found.fixed.tobytes() == rl.pack(like).tobytes()


@pytest.mark.parametrize("role", ["bias_ih", "bias_hh"])
def test_zero_biases_do_not_mislead(role):
    like = weights(rl.Spec("lstm", 5, 3, 2))
    like |= {name: 0 * array for name, array in like.items() if role in name}
    right = rl.pack(like)
    found = rl.diagnose(right, like=like)
    assert found and found.notes == (
        f"{'bW' if role == 'bias_ih' else 'bR'} of like are zero: they do not show what was done"
        " to them",
    )
    found = rl.diagnose(packed_like_the_published_one(like), like=like)
    assert len(found.mistakes) == 3 and found.sure and found.fixed.tobytes() == right.tobytes()


def test_all_biases_zero_or_one():
    """As initializers make them: the matrices alone show the order of the gates."""
    like = weights(rl.Spec("lstm", 5, 3, 2))
    for value in (0, 1):
        like |= {n: np.full_like(a, value) for n, a in like.items() if "bias" in n}
        found = rl.diagnose(packed_like_the_published_one(like), like=like)
        assert len(found.mistakes) == 3 and found.fixed.tobytes() == rl.pack(like).tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_all_dtypes(dtype):
    spec = rl.Spec("gru", 5, 3, 2, True, dtype=dtype)
    like = weights(spec)
    tensors = {n: np.concatenate(np.split(a, 3)[:2][::-1] + np.split(a, 3)[2:]) for n, a in
               like.items()}  # fmt: skip
    found = rl.diagnose(rl.pack(tensors), like=like)
    assert rules(found) == ["gates zrn"] and found.sure
    assert found.fixed.tobytes() == rl.pack(like).tobytes() and found.fixed.dtype == spec_dtype(
        spec
    )


def spec_dtype(spec):
    return rl.pack(weights(spec)).dtype


def test_tensors_of_another_layout():
    """A Keras LSTM whose gates somebody put in torch's names without reordering i f c o."""
    like = weights()
    kernel = like["weight_ih_l0"].T.reshape(5, 4, 3)[:, [0, 2, 1, 3]].reshape(5, 12)
    keras = {"kernel": kernel, "recurrent_kernel": like["weight_hh_l0"].T,
             "bias": like["bias_ih_l0"] + like["bias_hh_l0"]}  # fmt: skip
    found = rl.diagnose(keras, like=like)
    assert found.text == "gates f and g swapped in the input matrices"
    assert found.evidence == (
        "kernel (layer 0, input matrix): gates i g f o",
        "recurrent_kernel (layer 0, recurrent matrix): gates i f g o",
        "bias (layer 0, biases): gates i f g o",
    )
    assert found.notes == () and found.repair == "keras = rl.convert(like, to='keras')"
    right = eval(found.repair.removeprefix("keras = "), {"rl": rl, "like": like})
    assert list(found.fixed.tensors) == list(right)
    assert all((found.fixed.tensors[name] == right[name]).all() for name in right)
    assert rl.diagnose(rl.convert(like, to="keras"), like=like)


def test_tensors_of_a_file_are_repaired_in_their_layout(tmp_path):
    like = weights()
    swapped = {name: np.roll(array, 3, axis=0) for name, array in like.items()}
    np.savez(tmp_path / "w.npz", **swapped)
    found = rl.diagnose(tmp_path / "w.npz", like=like)
    assert rules(found) == ["gates oifg"]
    found.save(tmp_path / "right.npz")
    assert rl.verify(tmp_path / "right.npz", like)


def test_evidence_has_the_order_of_the_layout_that_was_given():
    """Somebody put torch's gates i f g o where ONNX has i o f g: that was "i g o f"."""
    like = weights()
    onnx = rl.convert(like, to="onnx")
    onnx["W"][0] = like["weight_ih_l0"]
    found = rl.diagnose(onnx, like=like)
    assert found.evidence[0] == "W (layer 0, input matrix): gates i f g o"
    assert found.text == "gates in the order i f g o, expected i o f g in the input matrices"


def swapped_in(tensors, parts=4):
    """Return the input matrices of torch's tensors with gates f and g exchanged."""
    return {name: np.concatenate([np.split(x, parts)[k] for k in (0, 2, 1, 3)])
            if "weight_ih" in name else x for name, x in tensors.items()}  # fmt: skip


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


def test_a_repaired_file_keeps_all_else(tmp_path):
    like = weights()
    bad = {f"enc.rnn.{name}": x for name, x in swapped_in(like).items()}
    np.savez(tmp_path / "m.npz", head=np.ones((2, 3), "f4"), **bad)
    rl.diagnose(tmp_path / "m.npz", like=like).save(tmp_path / "n.npz")
    assert {*np.load(tmp_path / "n.npz")} >= {"head", *bad}
    assert rl.verify(tmp_path / "n.npz", like)
    np.savez(tmp_path / "list.npz", *swapped_in(like).values())  # which does not record its layout
    rl.diagnose(tmp_path / "list.npz", like=like, layout="torch").save(tmp_path / "n.npz")
    assert rl.verify(tmp_path / "n.npz", like, layout="torch")


def test_bytes_files_and_a_header(tmp_path):
    like = weights()
    right = rl.pack(like)
    rl.save(tmp_path / "like.safetensors", rl.Weights(like))
    (tmp_path / "w.bin").write_bytes(right[::-1].tobytes()[::-1])
    np.save(tmp_path / "w.npy", right)
    for flat in (right.tobytes(), tmp_path / "w.npy"):
        assert rl.diagnose(flat, like=tmp_path / "like.safetensors")
    found = rl.diagnose(tmp_path / "w.bin", like=like)
    assert rules(found) == ["byte order"] and found.fixed.tobytes() == right.tobytes()
    found = rl.diagnose(np.concatenate([np.arange(32, dtype="f4"), right]), like=like)
    assert rules(found) == ["extra"] and found.fixed.tobytes() == right.tobytes()
    assert found.text == "the buffer has 152 values, expected 120: 32 too many, in front"
    found = rl.diagnose(np.concatenate([right, np.ones(9, "f4")]), like=like)
    assert rules(found) == ["extra"] and found.fixed.tobytes() == right.tobytes()


@pytest.mark.parametrize("cut", [1, 7, 100, 10**6])
def test_a_buffer_that_is_cut_short_is_not_explained(cut):
    found = rl.diagnose(rl.pack(weights())[:-cut], like=weights())
    assert not found and not found.sure


# Matrices with more values than a search looks at.
OF_ANY_LENGTH = [
    rl.Spec(cell, 9, 7, layers, both, proj)
    for cell, proj in [("lstm", 0), ("lstm", 6), ("gru", 0), ("rnn_tanh", 0), ("rnn_relu", 0)]
    for layers in (1, 2, 3)
    for both in (False, True)
]


def of_other_lengths(right, biases, first, rng):
    """Yield buffers that are cut or padded, and how many values they lack in front and behind.

    biases, first: how many values the biases, and the first matrix, have.
    """
    cuts = {1, biases // 2, biases - 1, biases, biases + 1, biases + first // 2, biases + first}
    for cut in {*cuts, *rng.integers(1, right.size, 4)}:
        yield right[: right.size - cut], 0, cut
        yield right[cut:], cut, 0
    for more in (1, 32, first):
        for fill in (np.zeros(more, "f4"), rng.normal(size=more).astype("f4"), right[:more]):
            yield np.concatenate([right, fill]), 0, -more
            yield np.concatenate([fill, right]), -more, 0


@pytest.mark.parametrize("spec", sample(OF_ANY_LENGTH, 13), ids=str)
def test_a_buffer_of_another_length_is_not_repaired_by_guessing(spec):
    rng = np.random.default_rng(spec.num_params)
    like = normal_weights(rl.layout("torch"), spec, 0)
    right = machine.right(spec, like)
    biases = sum(array.size for name, array in like.items() if "bias" in name)
    one = spec.num_layers * spec.num_directions == 1
    known = {biases: ["biases left out"]} | ({biases // 2: ["one vector"]} if one else {})
    for flat, front, behind in of_other_lengths(right, biases, like["weight_ih_l0"].size, rng):
        found = rl.diagnose(flat, like=like, spec=spec)
        case = f"{front} in front, {behind} behind: {found}"
        if behind in known:
            assert sorted(rules(found)) == known[behind] and found.sure, case
            continue
        assert not found and found.sure == (found.fixed is not None), case
        sizes = f"the buffer has {flat.size} values, expected {right.size}: "
        if (cut := front + behind) < 0:
            where = "in front" if front else "at the end"
            assert found.text in (f"{sizes}{-cut} too many, {where}", f"{sizes}{-cut} too many"), (
                case
            )
            assert found.fixed is None or where in found.text, case
            assert found.fixed is None or found.fixed.tobytes() == right.tobytes(), case
            continue
        missing = f"the {'first' if front else 'last'} {f'{cut} are' if cut > 1 else 'one is'}"
        assert found.text.startswith(f"{sizes}{missing} missing") and not found.sure, case
        matrices = sum("weight" in name for name in like)
        none = f"none of the {matrices} matrices is in it bit for bit"
        assert found.text.split("; ")[1:] == [none] * (not found.evidence), case


def test_a_changed_matrix_is_no_evidence_in_a_cut_buffer():
    flat = rl.pack(weights())[:-5].copy()
    flat[3] += 1
    found = rl.diagnose(flat, like=weights())
    assert found.evidence == ("layer 0, recurrent matrix: elements 60 to 96, gates i f g o",)
    assert lost(found) == ["5 values"] and not found.sure


def test_one_bias_vector_is_explained_only_if_all_its_values_are():
    """More units than a search compares, the last of which is changed."""
    spec = rl.Spec("lstm", 5, 30, 2)
    like = weights(spec)
    parts = [like[f"weight_{x}_l{k}"].ravel() for k in (0, 1) for x in ("ih", "hh")]
    parts += [like[f"bias_ih_l{k}"] + like[f"bias_hh_l{k}"] for k in (0, 1)]
    flat = np.concatenate(parts)
    found = rl.diagnose(flat, like=like)
    assert rules(found) == ["one vector", "summed"] and found.sure
    for k, role in enumerate(("bias_ih", "bias_hh")):
        own = [rl.unpack(found.fixed, spec, to="torch")[f"{role}_l{j}"] for j in (0, 1)]
        np.testing.assert_array_equal(np.concatenate(own), flat[-240:] * (1 - k))
    flat[-1] += 1
    found = rl.diagnose(flat, like=like)
    assert rules(found) == ["too short"] and not found.sure and found.fixed is None
    assert found.text == f"the buffer has {flat.size} values, expected {flat.size + 240}"


def test_bytes_that_are_not_whole_values_are_not_explained():
    right = rl.pack(weights()).tobytes()
    none = "; none of the 2 matrices is in it bit for bit"
    for flat, text in (
        (right[:-1], "119 values and 3 bytes, expected 120: the last one is missing"),
        (right[:8], f"2 values, expected 120: the last 118 are missing{none}"),
        (b"", f"0 values, expected 120{none}"),
    ):
        found = rl.diagnose(flat, like=weights())
        assert found.text == f"the buffer has {text}" and not found.sure and found.fixed is None


@pytest.mark.parametrize("front, behind", [(b"", b"0"), (b"LSTM1\n", b""), (b"", bytes(9))])
def test_bytes_that_are_not_weights_are_counted(front, behind):
    right = rl.pack(weights())
    found = rl.diagnose(front + right.tobytes() + behind, like=weights())
    count = len(front + behind)
    where = "in front" if front else "at the end"
    many = f"{count} byte{'s' * (count > 1)} too many, {where}"
    assert found.text.endswith(f" expected 120: {many}"), found
    assert found.sure and found.fixed.tobytes() == right.tobytes()


def test_a_cut_buffer_of_another_dtype_names_both():
    found = rl.diagnose(rl.pack(weights()).astype("f8")[:-2], like=weights())
    assert found.text == (
        "the buffer has 118 values, expected 120: the last 2 are missing; the values are float64,"
        " expected float32"
    )
    assert not found.sure and found.fixed is None


NOT_FINITE = pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])


def with_some(value, spec, count=1):
    """Return weights whose tensors each have so many of a value."""
    like = weights(spec)
    for array in like.values():
        array.reshape(-1)[:count] = value
    return like


@NOT_FINITE
@pytest.mark.parametrize("count", [1, 4, 1000])
def test_a_right_buffer_that_is_not_finite_is_right(value, count):
    """A NaN was equal to nothing, and next to an infinity everything."""
    for spec in (LSTM, rl.Spec("lstm", 3, 1, 2, True), rl.Spec("gru", 5, 3)):
        like = with_some(value, spec, count)
        found = rl.diagnose(machine.right(spec, like), like=like)
        assert found and str(found).startswith("the buffer is right"), found
        one = rl.diagnose(np.append(machine.right(spec, like), 7).astype("f4"), like=like)
        assert rules(one) == ["extra"] and one.fixed.tobytes() == rl.pack(like).tobytes()


@NOT_FINITE
def test_mistakes_in_weights_that_are_not_finite_are_named(value):
    like = with_some(value, rl.Spec("lstm", 5, 3, 2), 2)
    found = rl.diagnose(packed_like_the_published_one(like), like=like)
    assert len(found.mistakes) == 3 and found.sure and found.fixed.tobytes() == rl.pack(
        like).tobytes()  # fmt: skip


@NOT_FINITE
def test_other_weights_are_not_taken_for_those_with_an_infinity(value):
    like = with_some(value, LSTM)
    assert not rl.diagnose(rl.pack(weights(seed=1)), like=like).same
    other = weights() | {n: a for n, a in weights(seed=1).items() if "bias" in n}
    found = rl.diagnose(rl.pack(other), like=weights() | {n: a for n, a in like.items()
                                                          if "bias" in n})  # fmt: skip
    assert "biases not found" in rules(found) and not found.sure


def test_some_values_of_each_gate_may_have_been_changed():
    spec = rl.Spec("lstm", 5, 2)
    for count in (1, 3, 4):
        tensors = weights(spec)
        tensors["weight_ih_l0"][4, :count] += 0.5
        found = rl.diagnose(rl.pack(tensors), like=weights(spec))
        assert rules(found) == ["changed"] and found.text.startswith(f"{count} of 72 values")


def test_a_matrix_with_one_gate_twice_is_not_found():
    tensors = weights()
    tensors["weight_ih_l0"][3:6] = tensors["weight_ih_l0"][:3]
    found = rl.diagnose(rl.pack(tensors), like=weights())
    assert rules(found) == ["not found"] and lost(found) == ["layer 0, input matrix"]
    assert found.text == (
        "layer 0, input matrix is not in the buffer: in its place are gates i i g o"
    )


def test_a_zero_matrix_is_not_found_in_zeros_in_front():
    like = weights() | {"weight_hh_l0": np.zeros((12, 3), "f4")}
    right = rl.pack(like)
    found = rl.diagnose(np.concatenate([np.zeros(36, "f4"), right]), like=like)
    assert rules(found) == ["extra"] and found.fixed.tobytes() == right.tobytes()


def test_a_matrix_whose_largest_values_are_equal_is_found_elsewhere():
    """More equal ones per gate than are compared: clipped values."""
    spec = rl.Spec("lstm", 5, 8, 2)
    like = weights(spec)
    like["weight_hh_l0"] = np.minimum(abs(like["weight_hh_l0"]), np.float32(0.5))
    assert ((like["weight_hh_l0"] == 0.5).reshape(4, 64).sum(axis=1) > 24).all()
    packer = machine.Packer(spec, like)
    packer.roles = ["R", "W"]
    found = rl.diagnose(packer.pack(), like=like)
    assert rules(found) == ["roles R W"] and found.fixed.tobytes() == rl.pack(like).tobytes()


NO_NEST = [(0, "W"), (1, "R"), (1, "W"), (0, "R"), (2, "W"), (2, "R")]
UP_DOWN = [(2, "W"), (2, "R"), (1, "W"), (1, "R"), (0, "W"), (0, "R")]


@pytest.mark.parametrize(
    "order, other, named",
    [
        (NO_NEST, None, {"order"}),
        (NO_NEST, "weight_hh_l0", {"not found"}),
        (UP_DOWN, None, {"layers 2 1 0", "layers of biases"}),
        (UP_DOWN, "weight_hh_l1", {"layers 2 1 0", "layers of biases", "not found"}),
    ],
)
def test_an_order_is_named_if_it_has_a_rule_or_all_matrices_are_known(order, other, named):
    spec = rl.Spec("lstm", 5, 3, 3)
    like = weights(spec)
    tensors = like | ({other: weights(spec, seed=1)[other]} if other else {})
    names = {"W": "weight_ih", "R": "weight_hh"}
    parts = [tensors[f"{names[role]}_l{layer}"].ravel() for layer, role in order]
    biases = [tensors[f"bias_{x}_l{k}"] for k in range(3) for x in ("ih", "hh")]
    found = rl.diagnose(np.concatenate([*parts, *biases]), like=like)
    assert {*rules(found)} == named and found.sure == (other is None)
    if named == {"order"}:
        said = ", ".join(f"{role} of layer {layer}" for layer, role in order)
        assert found.text == f"the matrices are in the order {said}"
        assert found.fixed.tobytes() == rl.pack(like).tobytes()


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("changed", [0, 1, -1])
def test_only_biases_with_all_the_right_sums_are_split(zero, changed):
    """4 is moved from one to the other: no value is as it was."""
    like = weights()
    for name in ("bias_ih_l0", "bias_hh_l0"):  # 12 bits: the sums are exact
        like[name] = 0 * like[name] if zero else np.round(like[name] * 4096) / np.float32(4096)
    tensors = like | {"bias_ih_l0": like["bias_ih_l0"] + 4, "bias_hh_l0": like["bias_hh_l0"] - 4}
    tensors["bias_hh_l0"][7] += changed
    found = rl.diagnose(rl.pack(tensors), like=like)
    assert rules(found) == (["biases not found"] if changed else ["split"])
    assert found.sure == (not changed)


@pytest.mark.parametrize("joined", ["gate", "row"])
def test_joined_matrices_are_those_of_one_direction(joined):
    """Also if the recurrent matrices of both are equal, as those of a seeded initializer are."""
    spec = rl.Spec("lstm", 5, 3, bidirectional=True)
    like = weights(spec)
    like["weight_hh_l0_reverse"] = like["weight_hh_l0"]
    packer = machine.Packer(spec, like)
    packer.sides, packer.joined = (1, 0), joined
    found = rl.diagnose(packer.pack(), like=like)
    assert {*rules(found)} == {f"joined {joined}", "directions swapped"}
    assert found.fixed.tobytes() == rl.pack(like).tobytes()


def test_a_bias_that_became_infinite_is_not_quantization():
    flat = rl.pack(weights())
    flat[-1] = np.inf
    assert rules(rl.diagnose(flat, like=weights())) == ["changed"]


def test_bytes_that_are_signalling_nans_raise_no_warning():
    flat = np.full(LSTM.num_params, 0x7F800001, "u4").view("f4")
    like = weights(LSTM)
    right = rl.pack(like)
    right[-24:] = flat[-24:]  # casts of these set the flag of an invalid operation
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not rl.diagnose(flat, like=like).same
        assert not rl.diagnose(right, like=like).sure


def test_biases_around_the_matrices_are_not_those_of_each_layer():
    spec = rl.Spec("rnn_tanh", 5, 3, 2)
    like = weights(spec)
    like |= {name: 0 * array + 1 for name, array in like.items() if "bias" in name}
    right = machine.right(spec, like)
    found = rl.diagnose(np.concatenate([right[-3:], right[:-3]]), like=like, spec=spec)
    assert found.text == "the biases are in 2 parts, expected: one, after all matrices"
    assert found.sure and found.fixed.tobytes() == right.tobytes()


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


@pytest.mark.parametrize("value", [0, np.nan, np.inf])
def test_a_buffer_of_one_value_is_other_weights(value):
    assert not rl.diagnose(np.full(LSTM.num_params, value, "f4"), like=weights()).same


def test_zeros_are_zeros():
    like = {name: 0 * array for name, array in weights().items()}
    found = rl.diagnose(rl.pack(like), like=like)
    assert found and "bW and bR of like are zero" in str(found)


def test_peepholes_in_another_order():
    onnx = {**rl.convert(weights(), to="onnx"), "P": np.arange(9, dtype="f4").reshape(1, 9)}
    assert rl.diagnose(onnx, like=onnx)
    found = rl.diagnose({**onnx, "P": np.roll(onnx["P"], 3)}, like=onnx)
    assert [one.where for one in found.mistakes] == [((0, 0, "peephole"),)]
    assert found.evidence[2] == "P (layer 0, peephole): gates f i o"
    with pytest.raises(rl.LayoutError, match="peepholes are not repaired: convert it again"):
        found.save("never-written.npz")


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_values_are_not_explained(seed):
    """Small RNNs of few bits, in which much is equal by chance."""
    spec = rl.Spec("gru", 3, 2, dtype="bfloat16")
    flat = rl.pack(weights(spec, seed))
    assert not rl.diagnose(np.random.default_rng(seed).permutation(flat), like=flat, spec=spec).sure


def test_hints_are_for_like():
    like = [weights()[name] for name in weights()]
    with pytest.raises(rl.Error, match="layout"):
        rl.diagnose(rl.pack(weights()), like=like)
    assert rl.diagnose(rl.pack(weights()), like=like, layout="torch")


def test_the_report():
    like = weights()
    wrong = machine.case(LSTM, [one for one in machine.single_mistakes(
        LSTM, np.random.default_rng(0)) if one.rule == "summed"])[1]  # fmt: skip
    lines = str(rl.diagnose(wrong, like=like)).splitlines()
    assert lines[0] == (
        "the biases are summed (the sum is in bW, and 0 in bR): the same function, as only their"
        " sum matters"
    )
    assert "cannot be restored: how the sums were split between bW and bR" in lines
    assert lines[-1] == "correct: wrong = rl.pack(like)"
    assert re.fullmatch(r"  layer 0, input matrix: elements 0 to 60, gates i f g o", lines[1])


def test_a_matrix_is_no_buffer():
    with pytest.raises(rl.LayoutError, match=r"flat: shape \(2, 3\), need 1-D"):
        rl.diagnose(np.zeros((2, 3), "f4"), like=weights())


def split_by(like, moved):
    """Return the tensors with so much moved from each recurrent bias to its input bias."""
    more = {name: like[name] + moved[name] for name in like if "bias_ih" in name}
    return like | more | {
        name: like[name] - moved[name.replace("hh", "ih")] for name in like if "bias_hh" in name
    }  # fmt: skip


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_biases_that_were_split_at_random_are_that_and_no_more(layers):
    """They were exchanged vectors, or layers in another order."""
    spec = rl.Spec("lstm", 5, 7, layers)
    for seed in range(20):
        like, rng = weights(spec, seed), np.random.default_rng(seed)
        moved = {name: rng.normal(size=28).astype("f4") for name in like}
        for found in (rl.diagnose(rl.pack(split_by(like, moved)), like=like),
                      rl.diagnose(split_by(like, moved), like=like)):  # fmt: skip
            assert rules(found) == ["split"] and found.sure, found


@pytest.mark.parametrize("H", [3, 30, 300])
@pytest.mark.parametrize("off", [0.05, 1e-5])
@pytest.mark.parametrize("units", [1, -1, slice(None)])
def test_split_biases_with_wrong_sums_are_another_function(H, off, units):
    """Also by less than a near match may be off, and in units that the search does not read."""
    like = weights(rl.Spec("lstm", 5, H))
    tensors = split_by(like, {"bias_ih_l0": np.float32(4)})
    tensors["bias_hh_l0"][units] += np.float32(off)
    found = rl.diagnose(rl.pack(tensors), like=like)
    assert not found.sure and "the same function" not in found.text, found
    assert "the same function" not in str(rl.verify(like, tensors))


@pytest.mark.parametrize("unit", [5, -1])
def test_summed_biases_are_compared_in_all_units(unit):
    like = weights(rl.Spec("lstm", 5, 40))
    tensors = like | {"bias_ih_l0": like["bias_ih_l0"] + like["bias_hh_l0"],
                      "bias_hh_l0": 0 * like["bias_hh_l0"]}  # fmt: skip
    assert rules(rl.diagnose(rl.pack(tensors), like=like)) == ["summed"]
    tensors["bias_ih_l0"][unit] += 1
    found = rl.diagnose(rl.pack(tensors), like=like)
    assert rules(found) == ["summed", "changed"] and "1 of 7520 values is changed" in found.text


def test_a_matrix_that_was_moved_is_not_there_a_second_time():
    """The matrices of layers 1 and 2 were exchanged, and one of them is another."""
    spec = rl.Spec("lstm", 3, 3, 3)
    like = weights(spec)
    moved = like | {"weight_hh_l1": like["weight_hh_l2"],
                    "weight_hh_l2": weights(spec, 9)["weight_hh_l2"]}  # fmt: skip
    found = rl.diagnose(rl.pack(moved), like=like)
    assert "in its place is layer 2, recurrent matrix" in found.text
    assert "a second time" not in found.text and not found.sure


@pytest.mark.parametrize("to", ["tf1", "haiku"])
def test_a_forget_bias_that_was_added_and_subtracted_is_a_cause(to):
    """It is rounded: the last bits differ, which was training that went on."""
    like = weights(rl.Spec("lstm", 5, 40))
    tensors = rl.convert(like, to=to)
    found = rl.diagnose(tensors, like=like)
    assert rules(found) == ["forget bias rounded"] and found.sure
    assert lost(found) == ["the last bits of the biases of gate f"]
    assert f"likely cause: {found.text} (explains all 1)" in str(rl.verify(like, tensors))


def test_peepholes_against_none():
    """It raised an IndexError."""
    onnx = {**rl.convert(weights(), to="onnx"), "P": np.arange(9, dtype="f4").reshape(1, 9)}
    plain = {name: array for name, array in onnx.items() if name != "P"}
    assert not rl.diagnose(onnx, like=plain).sure


def test_tensors_are_not_a_buffer():
    like = weights()
    assert rl.diagnose(like, like=like).text == "the tensors are right"
    found = rl.diagnose(like | {"weight_hh_l0": weights(seed=1)["weight_hh_l0"]}, like=like)
    assert found.text == "layer 0, recurrent matrix is not in the tensors"


def test_a_prefix_chooses_an_rnn_of_a_module():
    """It was dropped for everything but dicts and files."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = torch.nn.LSTM(5, 3), torch.nn.LSTM(5, 3)

    model = Model()
    flat = rl.pack(swapped_in(rl.Weights(model, prefix="dec")))
    found = rl.diagnose(flat, like=model, prefix="dec")
    assert found.repair == "flat = rl.pack(rl.Weights(model, prefix='dec'))"
    assert found.sure and (found.fixed == rl.pack(model, prefix="dec")).all()
    assert rl.verify(model, rl.Weights(model.dec), prefix="dec")
