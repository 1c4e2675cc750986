"""torch's own files, in both forms, with torch as the oracle: read, written, and back."""

import dataclasses
import re
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from files.outputs import bits
from marks import in_turn, pairwise
from oracles.frameworks import seeded, torch_module
from oracles.some import normal_weights
from torch.nn.utils import parametrizations, prune

import rnnlayout as rl
from rnnlayout._files.formats.torch import checkpoint as format_module
from rnnlayout._files.tensor_sets import layerwise
from rnnlayout._files.tensor_sets.file_limits import LIMITS
from rnnlayout._files.write_into import convert_into
from rnnlayout._model.dtypes import narrow_values

pytestmark = pytest.mark.filterwarnings("ignore")  # torch deprecates some of what old files have

I, H, P = 11, 8, 7  # noqa: E741
FORMS = {"zip": True, "old": False}
every_form = pytest.mark.parametrize("form", FORMS)


def save(path, value, form="zip"):
    torch.save(value, path, _use_new_zipfile_serialization=FORMS[form])
    return path


def hint(spec):
    return {"cell": spec.cell} if spec.cell.startswith("rnn") else {}


def assert_same(found, state, prefix=""):
    """Assert the same names, order and bits."""
    names = [name for name in state if name.startswith(prefix)]
    assert [prefix + name for name in found] == names
    for name, array in found.items():
        assert array.shape == tuple(state[prefix + name].shape)
        assert array.tobytes() == bits(state[prefix + name])


# ------------------------------------------------------------------------------ there and back


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_what_we_save(dtype, tmp_path):
    """torch reads it in its safe mode, and a module loads exactly these tensors."""
    path, module = tmp_path / "m.pt", torch.nn.LSTM(I, H, 3, bidirectional=True, proj_size=P)
    rl.save(path, rl.Weights(module.to(dtype)))
    state = torch.load(path, weights_only=True)
    assert_equal(dict(state), dict(module.state_dict()))
    assert_same(*rl.load(path).values(), state)


def test_layer_by_layer(tmp_path, monkeypatch):
    """As of large ones: memory is reused."""
    monkeypatch.setattr(layerwise, "SMALL_NBYTES", 0)
    model = torch.nn.ModuleDict({"a": torch.nn.LSTM(I, H, 3), "b": torch.nn.GRU(I, H, 4)})
    first, *others = (save(tmp_path / f"{k}.pt", model.state_dict()) for k in range(4))
    sources = (first, first, others[1])
    for to, source, new in zip(("keras", "cudnn", "torch"), sources, others, strict=True):
        rl.convert_file(source, new, to=to, force=True)
        assert dict(rl.load(new)) == {name: w.to(to) for name, w in rl.load(first).items()}
    assert_equal(dict(model.state_dict()), dict(torch.load(others[2], weights_only=True)))


def test_a_cell_of_linear_layers_is_not_read_but_named(tmp_path):
    """Its weight_ih is a module; the other RNNs are read."""
    linears = {"weight_ih": torch.nn.Linear(I, 4 * H), "weight_hh": torch.nn.Linear(H, 4 * H)}
    own = {f"own.{name}": one for name, one in torch.nn.ModuleDict(linears).state_dict().items()}
    enc = {f"enc.{name}": one for name, one in torch.nn.GRU(I, H).state_dict().items()}
    found = rl.load(save(tmp_path / "a.pt", own | enc))
    assert list(found) == ["enc"] and not found.refused and list(found.others) == list(own)
    assert found.notes == [
        f"own.weight_{side} is a module (own.weight_{side}.weight), not a weight: it is not read as"
        f" an RNN; to read it as one, rename its tensors to own.weight_{side} and own.bias_{side}"
        for side in ("ih", "hh")
    ]
    with pytest.raises(rl.FileError, match=r"no recurrent layer found; own\.weight_ih is a module"):
        rl.load(save(tmp_path / "c.pt", own))
    names = ("own.weight_ih", "own.bias_ih", "own.weight_hh", "own.bias_hh")
    renamed = dict(zip(names, own.values(), strict=True))
    assert rl.load(save(tmp_path / "d.pt", renamed))["own"].layout == rl.layout("torch-cell")


CHECKPOINTS = {
    "a state_dict": lambda state: state,
    "a dict": dict,
    "a checkpoint": lambda state: {"epoch": 3, "state_dict": state, "none": None},
    "a checkpoint of dicts": lambda state: {"model": {"state": dict(state)}},
}


@pytest.mark.parametrize("kind, form", in_turn(CHECKPOINTS, FORMS))
def test_a_checkpoint_keeps_what_its_weight_spaces_are(kind, form, tmp_path):
    """cuDNN's weight space does not show its spec: the new file records it."""
    state = torch.nn.ModuleDict({"enc": torch.nn.GRU(I, H, 2)}).state_dict()
    checkpoint = CHECKPOINTS[kind](state)
    a, b, c = (tmp_path / name for name in ("a.pt", "b.pt", "c.pt"))
    save(a, checkpoint, form)
    rl.convert_file(a, b, to="cudnn")
    ((name, weights),) = rl.load(b).items()
    assert weights == rl.load(a)[name].to("cudnn")
    rl.convert_file(b, c, to="torch")
    again = torch.load(c, weights_only=True)
    assert list(again) == list(checkpoint) and again.get("epoch") == checkpoint.get("epoch")
    assert_same(rl.load(c)[name], state, "enc.")


@every_form
def test_views_and_shared_storages(form, tmp_path):
    """Tensors that share a storage, start inside it, are transposed or expanded."""
    base = torch.randn(4 * H, I + 3)
    state = {
        "weight_ih": base[:, 1 : I + 1],
        "weight_hh": torch.randn(H, 4 * H).T,
        "bias_ih": base[:, I + 2],
        "bias_hh": torch.ones(1).expand(4 * H),
    }
    (weights,) = rl.load(save(tmp_path / "m.pt", state, form)).values()
    assert_same(weights, state)


NOT_DENSE = {  # how a weight is stored -> what the error says
    "to_sparse": r"is a sparse tensor, .*: make it dense in torch, x\.to_dense\(\)",
    "to_sparse_csr": r"is a sparse tensor, .*: make it dense in torch, x\.to_dense\(\)",
    "quantize": r"is a quantized tensor, .*: make it floats in torch, x\.dequantize\(\)",
    "cfloat": "dtype complex64, .*: no layout has complex weights",
    "chalf": "is a complex tensor, .*: no layout has complex weights",
    "conj": "is a complex tensor, .*: no layout has complex weights",
    "negative": r"is a negative view, .*: make it plain in torch, x\.resolve_neg\(\)",
    "nested": r"is a nested tensor, .*: save the tensors of its x\.unbind\(\) instead",
    "meta": "is a tensor on the meta device, .*: it has a shape but no values",
    "short": "dtype int16, .*: quantized weights must be dequantized",
}
STORE = {
    "quantize": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint32),
    "conj": lambda x: x.cfloat().conj(),
    "negative": torch._neg_view,
    "nested": lambda x: torch.nested.nested_tensor([x]),
    "meta": lambda x: x.to("meta"),
}


@pytest.mark.parametrize("kind", NOT_DENSE)
def test_a_weight_that_is_not_a_dense_tensor_of_floats(kind, tmp_path):
    """Each of these was "quantized weights must be dequantized"."""
    state = torch.nn.LSTM(I, H).state_dict()
    stored = STORE.get(kind, lambda x: getattr(x, kind)())(state["weight_hh_l0"])
    path = save(tmp_path / "m.pt", {**state, "weight_hh_l0": stored})
    with pytest.raises((rl.FileError, rl.LayoutError)) as caught:
        rl.load(path)
    assert re.search(NOT_DENSE[kind], str(caught.value)), caught.value
    assert ("quantized" in str(caught.value)) == (kind in ("quantize", "short"))


def test_a_weight_of_an_unknown_computation_has_no_empty_note(tmp_path):
    """The notes were ['', '', '', '']."""
    model = torch.nn.ModuleDict({"enc": torch.nn.LSTM(I, H), "dec": torch.nn.LSTM(I, H)})
    for name in ("weight_ih_l0", "weight_hh_l0"):
        parametrizations.orthogonal(model["dec"], name)
    found = rl.load(save(tmp_path / "m.pt", model.state_dict()))
    assert [*found] == ["enc"] and [*found.refused] == ["dec"] and not found.notes


# -------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(
    "wrapper, form",
    in_turn(["", "module.", "_orig_mod.", "module._orig_mod."], FORMS),
)
def test_a_checkpoint_of_a_wrapped_module(wrapper, form, tmp_path):
    state = torch.nn.ModuleDict({"rnn": torch.nn.GRU(I, H), "head": torch.nn.Linear(H, 3)})
    wrapped = {wrapper + name: value for name, value in state.state_dict().items()}
    path = save(tmp_path / "m.pt", {"epoch": 3, "state_dict": wrapped, "best": [0.5, "x"]}, form)
    assert list(rl.load(path)) == ["state_dict.rnn"]
    for prefix in ("", f"{wrapper}rnn", "rnn.", f"{wrapper}rnn."):
        found = rl.load(path, prefix=prefix and f"state_dict.{prefix}")
        assert_same(*found.values(), state["rnn"].state_dict())


def training(form):
    """Return a checkpoint with many kinds of objects, as far as torch reads them from this form."""
    torch.manual_seed(1)
    model = torch.nn.ModuleDict({
        "embed": torch.nn.Embedding(20, I), "rnn": torch.nn.LSTM(I, H, 2),
        "norm": torch.nn.BatchNorm1d(H), "head": torch.nn.Linear(H, 20),
    }).bfloat16()  # fmt: skip
    model["tied"] = torch.nn.Linear(I, 20, bias=False).bfloat16()
    model["tied"].weight = model["embed"].weight
    optimizer = torch.optim.Adam(model.parameters())
    x = model["embed"](torch.arange(20)[:, None])
    model["head"](model["norm"](model["rnn"](x)[0][:, 0])).float().sum().backward()
    optimizer.step()
    return {
        "epoch": 7,
        "model_state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "size": torch.Size([2, 3]),
        "dtype": torch.float16,
        "best": 0.25,
        "history": [1, (2.5, None, True), {"a": "b", 3: b"raw"}],
        "seen": {1, 2},
        "sparse": torch.eye(3).to_sparse(),
        **({"f8": torch.ones(3).to(torch.float8_e4m3fn)} if form == "zip" else {}),
    }


def assert_equal(a, b, path=""):
    """Assert the same types, values and order; tensors bit for bit."""
    assert type(a) is type(b), path
    if isinstance(a, dict):
        assert list(a) == list(b), path
        for key in a:
            assert_equal(a[key], b[key], f"{path}.{key}")
        assert_equal(*(getattr(x, "_metadata", None) for x in (a, b)), path)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_equal(x, y, f"{path}.{k}")
    elif isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.layout) == (b.dtype, b.shape, b.layout), path
        if a.layout == torch.sparse_coo:
            assert torch.equal(a.to_dense(), b.to_dense()), path
        else:
            assert a.stride() == b.stride() and bits(a) == bits(b), path
    else:
        assert a == b, path


@every_form
def test_the_rest_of_a_checkpoint_stays(form, tmp_path):
    given = training(form)
    states = given["model_state_dict"]
    rnn = {name: value for name, value in states.items() if name.startswith("rnn.")}
    path = save(tmp_path / "a.pt", given, form)
    rl.convert_file(path, tmp_path / "same.pt", to="torch")
    assert_equal(given, torch.load(tmp_path / "same.pt", weights_only=True))

    done = rl.convert_file(path, tmp_path / "b.pt", to="cudnn")
    assert done.reports["model_state_dict.rnn"].grade == "exact"
    assert any("optimizer" in note for note in done.notes)
    result = torch.load(tmp_path / "b.pt", weights_only=True)
    flat = result["model_state_dict"].pop("rnn.weight_space")
    assert flat.dtype == torch.bfloat16 and bits(flat) == rl.pack(rnn, prefix="rnn").tobytes()
    tied = [result["model_state_dict"][k].data_ptr() for k in ("embed.weight", "tied.weight")]
    assert tied[0] == tied[1]
    for name in rnn:
        del states[name]
    assert_equal(given, dict(result))  # an OrderedDict, which has a place for the record


@pytest.mark.parametrize("suffix, to", [(".npz", "cudnn"), (".onnx", "onnx"), (".pt", "cudnn")])
def test_what_a_checkpoint_has_beside_tensors_is_left_out_by_name(suffix, to, tmp_path):
    adam = {"state": {0: {"step": torch.ones(1)}}, "param_groups": [{"lr": 0.5, "betas": (1, 2)}]}
    state = torch.nn.ModuleDict({"enc": torch.nn.GRU(I, H)}).state_dict()
    checkpoint = {"epoch": 3, "state_dict": state, "optimizer": adam, "none": None, "scale": 1.5}
    path = save(tmp_path / "a.pt", checkpoint)
    done = rl.convert_file(path, tmp_path / f"b{suffix}", to=to)
    values = ["epoch", "optimizer.param_groups.0.lr", "optimizer.param_groups.0.betas.0",
              "optimizer.param_groups.0.betas.1", "none", "scale"]  # fmt: skip
    tensors = ["optimizer.state.0.step"]
    left_out = {".npz": values, ".onnx": tensors + values, ".pt": []}[suffix]
    assert list(done.left_out) == left_out


@pytest.mark.parametrize("kind", [dict, Counter, OrderedDict])
def test_every_dict_has_a_record(kind, tmp_path):
    """A Counter lost its record: nothing then says of which RNN the vector is."""
    state = kind()
    state.update(torch.nn.LSTM(I, H).state_dict())
    path = save(tmp_path / "a.pt", state)
    rl.convert_file(path, tmp_path / "b.pt", to="cudnn")
    assert rl.verify(rl.load(tmp_path / "b.pt")["lstm"], state)


@pytest.mark.parametrize("layout, spec, fields", [
    ("keras", rl.Spec("rnn_relu", I, H), ["cell"]),
    ("onnx", rl.Spec("gru", I, H, reset="before"), ["reset"]),
    ("keras", rl.Spec("lstm", I, H, recurrent_activation="hard_sigmoid"), ["recurrent_activation"]),
])  # fmt: skip
def test_a_plain_dict_records_what_its_tensors_do_not_show(layout, spec, fields, tmp_path):
    """The activation that the caller passed was lost, and the default assumed."""
    tensors = normal_weights(layout, spec)
    path = save(tmp_path / "a.pt", {name: torch.from_numpy(a) for name, a in tensors.items()})
    known = {name: getattr(spec, name) for name in fields}
    rl.convert_file(path, tmp_path / "b.pt", to=layout, layout=layout, **known)
    (found,) = rl.load(tmp_path / "b.pt").values()
    assert found.spec == spec


@every_form
def test_new_weights_into_a_checkpoint_lost_all_but_its_tensors(form, tmp_path):
    """The new file was one flat dict, without epoch and optimizer."""
    given = training(form)
    path = save(tmp_path / "a.pt", given, form)
    new = torch.nn.LSTM(I, H, 2).bfloat16().state_dict()
    save(tmp_path / "new.pt", new)
    done = convert_into(tmp_path / "new.pt", tmp_path / "b.pt", into=path)
    assert any("optimizer" in note for note in done.notes)
    given["model_state_dict"].update({f"rnn.{name}": value for name, value in new.items()})
    assert_equal(given, torch.load(tmp_path / "b.pt", weights_only=True))


def test_progress_of_a_checkpoint(tmp_path, monkeypatch):
    """Of what is converted, and then of what is saved, little at once whatever torch does."""
    monkeypatch.setattr(format_module, "CHUNK_NBYTES", 1000)
    path, told = save(tmp_path / "a.pt", torch.nn.LSTM(I, H, 2).state_dict()), []
    rl.convert_file(path, tmp_path / "b.pt", to="keras", progress=lambda *now: told.append(now))
    result = torch.load(tmp_path / "b.pt", weights_only=True)
    nbytes = sum(tensor.nbytes for tensor in result.values())
    assert told == sorted(told) and told[0] == (0, 2 * nbytes) and told[-1] == (2 * nbytes,) * 2
    saved = [done for done, _ in told[len(result) :]]
    assert saved[0] == nbytes and max(np.diff(saved)) <= 1000


# ------------------------------------------------------------------------- computed weights


NAME = "weight_hh_l0"
COMPUTED = {  # torch changes the module, and returns it
    "pruned": lambda module: prune.random_unstructured(module, NAME, 0.5),
    "old weight norm": lambda module: torch.nn.utils.weight_norm(module, NAME),
    "weight norm": lambda module: parametrizations.weight_norm(module, NAME),
    "of columns": lambda module: parametrizations.weight_norm(module, NAME, dim=1),
    "of all": lambda module: parametrizations.weight_norm(module, NAME, dim=None),
}


@pytest.mark.parametrize("cell, how, dtype", pairwise(
    ["lstm", "rnn_tanh"], COMPUTED, [torch.float32, torch.bfloat16, torch.float64],
), ids=str)  # fmt: skip
def test_computed_weights(cell, how, dtype, tmp_path):
    spec, rounded = rl.Spec(cell, I, H), how != "pruned"
    module = COMPUTED[how](torch_module(spec, seeded(cell, how)).to(dtype))
    with torch.no_grad():
        for parameter in module.parameters():  # off its first value, where g is ||v||
            parameter.mul_(1.5)
    exact = COMPUTED[how](torch_module(spec).double())
    exact.load_state_dict(module.state_dict())
    for fresh in (module, exact):  # the older kinds compute their weight as they run
        fresh(torch.zeros(1, I, dtype=next(fresh.parameters()).dtype))
    path, out = save(tmp_path / "a.pt", module.state_dict()), tmp_path / "b.pt"
    found = rl.load(path, **hint(spec))
    (weights,), (note,) = found.values(), found.notes
    assert NAME in note and ("pruned" in note) != rounded
    for name, array in weights.items():
        if name == NAME and rounded:
            # Ours is the double rounded once. Both are of g and v as stored, in double within a
            # few units, so ours is off by half a unit of the dtype, and what double leaves.
            wanted = getattr(exact, name).detach().numpy()
            off, unit = abs(np.asarray(array, "f8") - wanted), torch.finfo(dtype).eps / 2
            assert (off <= (unit + 2.0**-50) * abs(wanted)).all()
        else:
            assert array.tobytes() == bits(getattr(module, name))

    if rounded:
        with pytest.raises(rl.LossyError, match=NAME):
            rl.convert_file(path, out, to="torch", exact=True, **hint(spec))
    done = rl.convert_file(path, out, to="torch", exact=not rounded, **hint(spec))
    (report,) = done.reports.values()
    grade = "rounds" if rounded else "exact"
    assert weights.to("cudnn").report.grade == report.grade == grade and done.notes == (note,)
    plain = torch_module(spec).to(dtype)
    plain.load_state_dict(torch.load(out, weights_only=True))
    assert [bits(v) for v in plain.state_dict().values()] == [v.tobytes() for v in weights.values()]


def test_an_exact_copy_took_weights_that_were_rounded_before_it(tmp_path):
    module = COMPUTED["weight norm"](torch.nn.LSTM(I, H))
    new = save(tmp_path / "new.pt", module.state_dict())
    old = save(tmp_path / "old.pt", torch.nn.LSTM(I, H).state_dict())
    with pytest.raises(rl.LossyError, match=r"^weight_hh_l0: .* omit exact"):
        convert_into(new, tmp_path / "b.pt", into=old, exact=True)
    assert not (tmp_path / "b.pt").exists()


def test_an_old_file_of_many_small_tensors_was_refused(tmp_path, monkeypatch):
    """Its pickle has 56 steps for each tensor of one element, in 150 bytes of the file."""
    steps = dataclasses.replace(LIMITS["steps"], free=16_000)
    monkeypatch.setitem(LIMITS, "steps", steps)
    state = torch.nn.LSTM(I, H).state_dict()
    state |= {f"scales.{k}": torch.ones(1) for k in range(480)}
    assert list(rl.load(save(tmp_path / "a.pt", state, "old"))) == ["lstm"]


def test_bfloat16_was_rounded_twice():
    """By way of float32, to which a value next to a tie is the tie."""
    lower = np.arange(0, 0x7F7F, 37, dtype="u2")  # the magnitudes of bfloat16, but the largest
    ties = ((lower.astype("u4") << 16) | 0x8000).view("f4").astype("f8")
    for sign, bit in ((1, 0), (-1, 0x8000)):
        above, below = np.nextafter(ties, np.inf), np.nextafter(ties, 0)
        assert np.array_equal(narrow_values(sign * above, "bfloat16"), (lower + 1) | bit)
        assert np.array_equal(narrow_values(sign * below, "bfloat16"), lower | bit)
    special = narrow_values(np.array([np.inf, -np.inf, np.nan, -0.0]), "bfloat16")
    assert [hex(bits) for bits in special] == ["0x7f80", "0xff80", "0x7fc0", "0x8000"]


# ---------------------------------------------------------------------------------- without torch


def test_a_torch_whose_safe_loader_has_holes_is_not_used(tmp_path, monkeypatch):
    path = save(tmp_path / "a.pt", torch.nn.GRU(I, H).state_dict())
    monkeypatch.setattr(torch, "__version__", type(torch.__version__)("2.9.1"))
    assert list(rl.load(path)) == ["gru"]
    with pytest.raises(rl.MissingExtraError, match=r"2\.9\.1.*torch>=2\.10"):
        rl.convert_file(path, tmp_path / "b.pt", to="keras")


def test_torch_loads_only_weights_of_a_harmless_file(tmp_path, monkeypatch):
    """A conversion from .pt to .pt loads the file with torch, but not if our reader refuses it."""
    loads, load = [], torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: loads.append(k) or load(*a, **k))
    a, b, cut = (tmp_path / name for name in ("a.pt", "b.pt", "cut.pt"))
    save(a, torch.nn.LSTM(I, H).state_dict())
    rl.load(a)
    assert loads == []
    rl.convert_file(a, b, to="cudnn")
    assert [options["weights_only"] for options in loads] == [True]
    cut.write_bytes(a.read_bytes()[:-100])
    with pytest.raises(rl.FileError):
        rl.convert_file(cut, b, to="cudnn", force=True)
    monkeypatch.setattr(torch, "__version__", type(torch.__version__)("2.9.1"))
    with pytest.raises(rl.MissingExtraError, match=r'known holes: pip install "torch>=2\.10"'):
        rl.convert_file(a, b, to="cudnn", force=True)
    assert len(loads) == 1
