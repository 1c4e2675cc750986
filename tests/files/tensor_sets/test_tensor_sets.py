"""load, save and convert_file on files of named tensors: .safetensors, .npz, and flat ones.

Oracles: the package safetensors, np.load, torch's own state_dict, rl.convert() for the values.
"""

import json
import os
import random
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from commands import TESTS, run
from files.outputs import bits
from oracles import some

import rnnlayout as rl
from rnnlayout._files.tensor_sets import layerwise

TENSOR_SETS = (".safetensors", ".npz")
RNNS = {"encoder", "decoder", "cells.0", "cells.1"}
OTHERS = {"embedding.weight", "out.weight", "out.bias", "dropout.mask", "steps", "half",
          "eighth"}  # fmt: skip


def weights(layout, spec, seed=0):
    layout = rl.layout(layout) if isinstance(layout, str) else layout
    return rl.Weights(some.random_weights(layout, spec, seed), spec, layout)


def torch_lstm(spec=rl.Spec("lstm", 5, 3, 2)):  # noqa: B008
    return rl.Weights(some.normal_weights(rl.layout("torch"), spec))


@pytest.fixture
def state():
    """A typical state_dict: several RNNs, with other tensors between them."""
    nn = torch.nn
    parts = {
        "embedding": nn.Embedding(5, 3), "encoder": nn.LSTM(3, 4, 2, bidirectional=True),
        "decoder": nn.GRU(8, 6), "out": nn.Linear(4, 2),
        "cells": nn.ModuleList([nn.LSTMCell(3, 4), nn.LSTMCell(4, 2)]),
    }  # fmt: skip
    return nn.ModuleDict(parts).state_dict() | {
        "dropout.mask": torch.tensor([1, 0, 7], dtype=torch.uint8),
        "steps": torch.tensor(12),
        "half": torch.randn(3, 5).to(torch.bfloat16),
        "eighth": torch.randn(7).to(torch.float8_e4m3fn),
    }


@pytest.fixture
def path(tmp_path, state):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(state, path, metadata={"format": "pt", "who": "Ä"})
    return path


def header(path):
    raw = path.read_bytes()
    found = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    found.pop("__metadata__", None)
    return found


# --------------------------------------------------------------------------------------- new files


@pytest.mark.parametrize("suffix", TENSOR_SETS)
def test_the_bytes_are_the_same_every_time_and_later_releases_read_them(suffix, tmp_path):
    """Never write the files of tests/data again: they are the promise."""
    written = {
        "encoder": weights("torch", rl.Spec("lstm", 5, 3, 2, bidirectional=True, proj_size=2)),
        "decoder": weights("cudnn", rl.Spec("gru", 4, 3, bias="recurrent", dtype="bfloat16")),
    }
    assert list(rl.load(TESTS / f"data/written-0.1{suffix}").items()) == list(written.items())
    for name in "xy":
        rl.save(tmp_path / f"{name}{suffix}", written)
    assert (tmp_path / f"x{suffix}").read_bytes() == (tmp_path / f"y{suffix}").read_bytes()


def test_every_tensor_is_aligned_and_read_without_a_copy(tmp_path):
    """Six bytes are first by name, and last in the file."""
    path = tmp_path / "a.safetensors"
    small = weights("cudnn", rl.Spec("rnn_tanh", 2, 1, bias="none", dtype="float16"))
    rl.save(path, {"a": small, "b": weights("keras", rl.Spec("gru", 5, 3, dtype="float64"))})
    assert next(iter(header(path))) == "a.weight_space"
    assert header(path)["b.kernel"]["data_offsets"][0] == 0
    kernel = rl.load(path)["b"]["kernel"]
    assert kernel.flags.aligned and not kernel.flags.owndata and not kernel.flags.writeable


# ------------------------------------------------------------------------------------- conversions


@pytest.mark.parametrize("suffix", TENSOR_SETS)
@pytest.mark.parametrize("to", ["cudnn", "keras", "torch-cell", "onnx"])
def test_rnns_are_replaced_and_the_rest_stays_bit_for_bit(to, suffix, path, state, tmp_path):
    if suffix == ".npz":  # which cannot store float8
        del state["eighth"]
        safetensors.torch.save_file(state, path)
    dst = tmp_path / f"new{suffix}"
    done = rl.convert_file(path, dst, to=to)
    assert set(done.reports) == RNNS and done.left_out == ()
    assert {report.grade for report in done.reports.values()} <= {"exact", "rounds"}
    found = rl.load(dst)
    assert set(found) == RNNS and set(found.others) == OTHERS & set(state)
    for name, w in found.items():
        under = {k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(name)}
        under.pop("dropout_mask", None)
        wanted = rl.convert(under, to=to)
        assert some.same_bits(w.tensors, wanted if to == "cudnn" else dict(wanted)), name
    if suffix == ".npz":
        with np.load(dst) as read:
            kept = {name: torch.from_numpy(read[name]) for name in found.others}
        kept["half"] = kept["half"].view(torch.bfloat16)
    else:
        kept = safetensors.torch.load_file(dst)
        with safetensors.safe_open(dst, "numpy") as opened:
            assert opened.metadata().items() >= {("format", "pt"), ("who", "Ä")}
    for name in found.others:
        assert kept[name].dtype == state[name].dtype and kept[name].shape == state[name].shape
        assert bits(kept[name]) == bits(state[name])


def test_new_tensors_stand_where_the_old_ones_stood(path, tmp_path):
    """In another dtype, if it is asked for; progress is told to the last byte."""
    told, dst = [], tmp_path / "b.safetensors"
    rl.convert_file(path, dst, to="cudnn", prefix="encoder", dtype="bfloat16",
                    progress=lambda *now: told.append(now))  # fmt: skip
    before, after = list(header(path)), header(dst)
    old = [name for name in before if name.startswith(("encoder.weight", "encoder.bias"))]
    wanted = [n for n in before if n not in old[1:]]
    assert list(after) == ["encoder.weight_space" if n == old[0] else n for n in wanted]
    w = rl.load(path)["encoder"].pack(dtype=ml_dtypes.bfloat16)
    assert some.same_bits(rl.load(dst)["encoder"].tensors, w)
    total = sum(end - begin for begin, end in (t["data_offsets"] for t in after.values()))
    assert told[0] == (0, total) and told[-1] == (total, total)
    assert told == sorted(told) and len(told) > 4


def test_names_that_are_not_lists_of_names(path, tmp_path):
    def convert(**names):
        rl.convert_file(path, tmp_path / "g.npz", to="torch", **names)

    for only in ("encoder", [], 7, [1], b"encoder"):
        with pytest.raises(rl.FileError, match=r"only is .*, need a list of names"):
            convert(only=only)
    for stack in (["cells.0", "cells.1"], "cells", [[1]], [[]]):
        for call in (convert, lambda stack: rl.verify(path, path, stack=stack)):
            with pytest.raises(rl.FileError, match=r"lists of names: stack=\[\['lower', 'upper'\]"):
                call(stack=stack)
    for call in (convert, lambda prefix: rl.load(path, prefix=prefix)):
        with pytest.raises(rl.LayoutError, match="prefix is a NoneType, need a string"):
            call(prefix=None)


def test_one_without_a_form_stops_all_unless_others_are_picked(path, tmp_path):
    rl.save(path, {"a": weights("keras", rl.Spec("gru", 5, 3, reset="before")), "b": torch_lstm()})
    with pytest.raises(rl.LossyError, match="reset"):
        rl.convert_file(path, tmp_path / "b.safetensors", to="cudnn")
    assert os.listdir(tmp_path) == [path.name]
    done = rl.convert_file(path, tmp_path / "b.safetensors", to="cudnn", prefix="b")
    assert list(done.reports) == ["b"]
    found = rl.load(tmp_path / "b.safetensors").values()
    assert [w.layout.name for w in found] == ["keras", "cudnn"]


# ------------------------------------------------------------------------------------------- large


@pytest.mark.parametrize("to", some.LAYOUTS, ids=str)
def test_layer_by_layer_is_the_same_as_at_once(to, tmp_path, monkeypatch):
    """From each layout an RNN of several layers, another one for each target."""
    src, dst = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    specs = [spec for spec in some.SPECS if spec.num_layers > 1 and some.holds(to, spec)]
    entries, wanted, rng = {}, {}, random.Random(str(to))
    for k, layout in enumerate(some.LAYOUTS):
        held = [spec for spec in specs if some.holds(layout, spec)]
        for spec in rng.sample(held, min(1, len(held))):
            w = rl.Weights(some.normal_weights(layout, spec, k), spec, layout)
            try:
                wanted[f"n{len(entries)}"] = w.to(to)
            except rl.LossyError:
                continue
            entries[f"n{len(entries)}"] = w
    rl.save(src, entries)
    monkeypatch.setattr(layerwise, "SMALL_NBYTES", 0)
    done = rl.convert_file(src, dst, to=to)
    found = rl.load(dst)
    assert list(found) == list(wanted)
    for name, w in wanted.items():
        assert found[name] == w and done.reports[name] == w.report
        assert found[name].split() == w.split()


MEMORY = """
import sys, rnnlayout as rl
def peak():
    return next(int(s.split()[1]) for s in open("/proc/self/status") if s.startswith("VmHWM")) << 10
rl.convert_file(sys.argv[1], sys.argv[2], to="keras")  # what the first call brings in
before = peak()
rl.convert_file(sys.argv[3], sys.argv[4], to="cudnn")
print(peak() - before)
"""


def test_memory_is_that_of_three_layers(tmp_path):
    """One is read, one converted, one written; 32 MB are written before memory is freed."""
    spec = rl.Spec("lstm", 512, 512, 12)
    rl.save(tmp_path / "a.safetensors", torch_lstm())
    rl.save(tmp_path / "b.safetensors", torch_lstm(spec))
    names = [tmp_path / f"{name}.safetensors" for name in "axby"]
    grown = int(run([sys.executable, "-c", MEMORY, *names]))
    assert grown < spec.nbytes / 12 * 3 + (40 << 20), grown
    assert grown < spec.nbytes  # the whole, read and converted, would be twice the file


def test_what_is_only_moved_is_copied_by_the_system(path, tmp_path, monkeypatch):
    """The file is the same if the system copies less than asked, or refuses."""
    taken = []

    def few(src, out, count, at):
        taken.append(os.write(out, os.pread(src, min(count, 7), at)))
        return taken[-1]

    def refused(*_):
        raise OSError(18, "another file system")

    files = [tmp_path / f"{name}.safetensors" for name in "ab"]
    for file, how in zip(files, (few, refused), strict=True):
        monkeypatch.setattr(os, "copy_file_range", how, raising=False)
        rl.convert_file(path, file, to="cudnn")
    assert files[0].read_bytes() == files[1].read_bytes()
    header_nbytes = 8 + int.from_bytes(files[0].read_bytes()[:8], "little")
    assert sum(taken) == files[0].stat().st_size - header_nbytes  # all of it
