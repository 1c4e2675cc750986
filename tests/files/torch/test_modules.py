"""Whole modules, TorchScript and torch.export: torch writes the file and computes the outputs."""

import collections
import functools
import tarfile

import pytest
import torch
from commands import TESTS
from files.outputs import assert_computes, bits
from marks import pairwise
from oracles.frameworks import inputs, run_torch, seeded, torch_cell, torch_module
from oracles.nets import NESTED, Net
from oracles.reference import GATES
from torch.export.pt2_archive._package import package_pt2
from torch.nn.utils import parametrizations, prune

import rnnlayout as rl

pytestmark = pytest.mark.filterwarnings("ignore")  # torch deprecates half of what is used here

T, N, I, H = 5, 3, 11, 8  # noqa: E741
OPTIONS = {
    "plain": {}, "both ways": {"bidirectional": True}, "two layers": {"num_layers": 2},
    "two layers both ways": {"num_layers": 2, "bidirectional": True}, "no biases": {"bias": "none"},
    "projected": {"proj_size": 5},
}  # fmt: skip


def save_exported(model, path, x):
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (x,)), path)


OLD = {"_use_new_zipfile_serialization": False}
SAVERS = {  # of a model, a path, an input
    "state_dict": (lambda model, path, x: torch.save(model.state_dict(), path), ".pt"),
    "old state_dict": (lambda model, path, x: torch.save(model.state_dict(), path, **OLD), ".pth"),
    "zip": (lambda model, path, x: torch.save(model, path), ".pt"),
    "old": (lambda model, path, x: torch.save(model, path, **OLD), ".pt"),
    "protocol 1": (lambda model, path, x: torch.save(model, path, pickle_protocol=1), ".pt"),
    "old, protocol 1": (
        lambda model, path, x: torch.save(model, path, pickle_protocol=1, **OLD), ".pth"),
    "protocol 5, in a dict": (lambda model, path, x: torch.save(
        {"epoch": 3, "model": model}, path, pickle_protocol=5), ".ckpt"),
    "script": (lambda model, path, x: torch.jit.save(torch.jit.script(model), path), ".pt"),
    "trace": (lambda model, path, x: torch.jit.save(torch.jit.trace(model, x), path), ".pt"),
    "export": (save_exported, ".pt2"),
}  # fmt: skip
MODULES = [name for name in SAVERS if "state_dict" not in name]


def hints(saver, cell):
    """Return what a state_dict does not say."""
    return {"cell": cell} if "state_dict" in saver and cell.startswith("rnn") else {}


def written(path, model, saver, x=None):
    """Return the file, and what precedes the names of state_dict() in it."""
    write, suffix = SAVERS[saver]
    path = path.with_name(path.name + suffix)
    write(model.eval(), path, torch.zeros(T, N, I) if x is None else x)
    return path, "model." if suffix == ".ckpt" else ""


def assert_same_tensors(found, state, prefix):
    """Assert that all tensors of state_dict() are in the file, with the same names and bits."""
    ours = {
        ("" if entry in ("lstm", "gru", "rnn") else f"{entry}.") + name: array.tobytes()
        for entry, one in found.items()
        for name, array in one.items()
    }
    theirs = {prefix + name: bits(tensor) for name, tensor in state.items()}
    assert {name: theirs[name] for name in theirs if name in ours} == ours
    assert set(found.others) == theirs.keys() - ours.keys()


@pytest.mark.parametrize("saver, cell, option, nested, batch_first", pairwise(
    SAVERS, GATES, OPTIONS, NESTED, [False, True],
    fits=lambda saver, cell, option, *_: option != "projected" or cell == "lstm",
))  # fmt: skip
def test_every_saver(saver, cell, option, nested, batch_first, tmp_path):
    spec = rl.Spec(cell, I, H, **OPTIONS[option])
    module = torch_module(spec, seeded(saver, cell, option))
    module.batch_first = batch_first
    model = NESTED[nested](module)
    path, prefix = written(tmp_path / "m", model, saver)
    found = rl.load(path, **hints(saver, cell))
    (weights,) = found.values()
    assert weights.spec == spec and weights.layout == rl.layout("torch")
    assert weights.batch_first == (None if "state_dict" in saver else batch_first)
    assert_same_tensors(found, model.state_dict(), prefix)
    assert weights.pack().tobytes() == rl.pack(module).tobytes()
    module.batch_first, given = False, inputs(seeded(saver, cell, option), spec)
    assert_computes(weights, run_torch(module, *given), *given)


@pytest.mark.parametrize("saver, cell", pairwise(SAVERS, GATES))
def test_cells(saver, cell, tmp_path):
    spec = rl.Spec(cell, I, H)
    module = torch_cell(spec, seeded(cell))
    path, _ = written(tmp_path / "m", module, saver, torch.zeros(N, I))
    told = hints(saver, cell)
    if saver == "trace" and cell.startswith("rnn"):  # tanh or relu is asked for
        assert list(rl.load(path).undecided) == ["rnn"]
        told = {"cell": cell}
    (weights,) = rl.load(path, **told).values()
    assert weights.spec == spec and weights.layout == rl.layout("torch-cell")
    assert weights.pack().tobytes() == rl.pack(module).tobytes()


class Decoder(torch.nn.Module):
    """Two RNNs with masked scores: their infinity is in the program."""

    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.RNN(I, H, nonlinearity="relu", batch_first=True)
        self.gru = torch.nn.GRU(I, H, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0].masked_fill(x[..., :1] > 0, -torch.inf) + self.gru(x)[0]


def test_what_a_program_of_torch_export_says(tmp_path):
    """batch_first, and tanh or relu; nothing if the calls of RNNs are decomposed."""
    model, path = Decoder(), tmp_path / "m.pt2"
    program = torch.export.export(model, (torch.zeros(N, T, I),))
    torch.export.save(program, path)
    found = rl.load(path)
    assert found["rnn"].spec.cell == "rnn_relu"
    assert [one.batch_first for one in found.values()] == [True, True]
    torch.export.save(program.run_decompositions(), path)
    found = rl.load(path, cell="rnn_relu")
    assert [one.batch_first for one in found.values()] == [None, None]


def test_the_dtypes_of_torch_export_are_those_of_torch():
    from torch._export.serde.serialize import _TORCH_TO_SERIALIZE_DTYPE

    from rnnlayout._files.formats.torch.exported import _DTYPES

    theirs = {kind.value: str(dtype) for dtype, kind in _TORCH_TO_SERIALIZE_DTYPE.items()}
    assert {kind: f"torch.{name}" for kind, name in _DTYPES.items()} == {
        kind: name for kind, name in theirs.items() if name != "torch.complex32"
    }


class Shared(torch.nn.Module):
    """Two names for one module, and one tensor in two modules."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.GRU(I, H), torch.nn.GRU(I, H)
        self.c = torch.nn.Sequential(self.a)
        self.b.weight_hh_l0 = self.a.weight_hh_l0

    def forward(self, x):
        return self.a(x)[0] + self.b(x)[0] + self.c(x)[0]


@pytest.mark.parametrize("saver", MODULES)
def test_shared_modules_and_tensors(saver, tmp_path):
    model = Shared()
    path, prefix = written(tmp_path / "m", model, saver)
    found = rl.load(path)
    # torch.export and tracing know a module that is used twice by its first name
    assert set(found) == {prefix + name.rpartition(".")[0] for name in model.state_dict()}
    assert_same_tensors(found, model.state_dict(), prefix)


def test_buffers_that_state_dict_lacks(tmp_path):
    model = Net(torch.nn.GRU(I, H))
    model.register_buffer("kept", torch.ones(2))
    model.register_buffer("steps", torch.ones(3), persistent=False)
    for protocol in (1, 2, 4):  # each writes a set in another way
        torch.save(model, tmp_path / "m.pt", pickle_protocol=protocol)
        found = rl.load(tmp_path / "m.pt")
        assert set(found.others) == {"kept", "before.weight", "before.bias"}


# ------------------------------------------------------------------------------- computed weights


OF = "weight_hh_l0"
weight_norm = functools.partial(torch.nn.utils.weight_norm, name=OF)
new_weight_norm = functools.partial(parametrizations.weight_norm, name=OF)
pruned = functools.partial(prune.l1_unstructured, name=OF, amount=0.5)
WRAPPED = [
    (weight_norm, "zip"), (weight_norm, "trace"), (new_weight_norm, "export"),
    (new_weight_norm, "trace"), (pruned, "old"), (torch.nn.DataParallel, "zip"),
    (torch.compile, "zip"),
]  # fmt: skip


@pytest.mark.parametrize("wrap, saver", WRAPPED)
def test_computed_weights_and_wrappers(wrap, saver, tmp_path):
    module = torch_module(rl.Spec("lstm", I, H), seeded(saver))
    module.batch_first = True
    model = wrap(module)
    path, _ = written(tmp_path / "m", model, saver, torch.zeros(N, T, I))
    (weights,) = rl.load(path).values()
    assert weights.batch_first
    assert weights.pack().tobytes() == rl.pack(model.state_dict()).tobytes()


# ------------------------------------------------------------------------------ the user's classes


class Mine(torch.nn.LSTM):
    """Its forward() may compute anything."""

    def forward(self, x):
        return super().forward(x)[0] * 2


class MineRNN(torch.nn.RNN):
    """A class that changes nothing: the file does not show that."""


class Own(torch.nn.Module):
    """A cell of the user's own that names its parameters as torch does."""

    def __init__(self):
        super().__init__()
        self.weight_ih = torch.nn.Parameter(torch.randn(4 * H, I))
        self.weight_hh = torch.nn.Parameter(torch.randn(4 * H, H))

    def forward(self, x):
        return x @ self.weight_ih.T


@pytest.mark.parametrize(
    "make, saver",
    [*((Own, saver) for saver in ("zip", "old", "script", "trace", "export")),
     # torch cannot script super()
     *((Mine, saver) for saver in ("zip", "old", "trace", "export"))],
)  # fmt: skip
def test_a_class_of_the_user(make, saver, tmp_path):
    inner = make() if make is Own else make(I, H)
    kind, read_as = make.__name__, "LSTMCell" if make is Own else "LSTM"
    model = torch.nn.Sequential(collections.OrderedDict(enc=inner))
    path, _ = written(tmp_path / "m", model, saver)
    found = rl.load(path)
    assert list(found.undecided) == ["enc"] and not found
    error = str(found.undecided["enc"])
    assert f"as_class={{'{kind}': '{read_as}'}}" in error and f"{kind}'" in error
    assert_same_tensors(rl.load(path, as_class={kind: read_as}), model.state_dict(), "")
    assert list(rl.load(path, as_class={kind: "GRU"}).undecided) == ["enc"]


class LayerNormLSTM(torch.nn.LSTM):
    """A known name: as_class= would not help."""


class PeepholeLSTMCell(Own):
    """A cell that is not one of torch's."""


@pytest.mark.parametrize("make, difference", [
    (lambda: LayerNormLSTM(I, H), "normalizes"), (PeepholeLSTMCell, "peepholes")])  # fmt: skip
def test_a_class_that_computes_something_else(make, difference, tmp_path):
    torch.save(make(), tmp_path / "m.pt")
    with pytest.raises(rl.LayoutError, match=f"is not supported: .*{difference}") as caught:
        rl.load(tmp_path / "m.pt")
    assert "as_class" not in str(caught.value)


def test_what_a_module_says_of_itself(tmp_path):
    """Its arguments; a forward() that is set on it; a size that contradicts its tensors."""
    path = tmp_path / "m.pt"
    torch.save(MineRNN(I, H, nonlinearity="relu", batch_first=True), path)
    weights = rl.load(path, as_class={"MineRNN": "RNN"})["rnn"]
    assert weights.spec.cell == "rnn_relu" and weights.batch_first is True
    model = torch.nn.LSTM(I, H)
    model.forward = torch.tanh
    torch.save(model, path)
    assert list(rl.load(path).undecided) == ["lstm"]
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        model = torch.nn.LSTM(I, H)
        getattr(model, register)(torch.tanh)
        torch.save(model, path)
        ((name, question),) = rl.load(path).undecided.items()
        assert name == "lstm" and "with the forward hook 'torch" in str(question)
        assert rl.load(path, as_class={"LSTM": "LSTM"})["lstm"] == rl.Weights(model.state_dict())
    model = torch.nn.RNN(I, H, 2)
    model.hidden_size = 9
    torch.save(model, path)
    with pytest.raises(rl.LayoutError, match=r"module has hidden_size 9, its.*hidden_size 8"):
        rl.load(path)


# --------------------------------------------------------------------------------------- conversion


@pytest.mark.parametrize("saver", MODULES)
def test_a_copy_as_a_state_dict(saver, tmp_path):
    """A note says that the modules are lost, and what stood beside them."""
    model = Net(torch.nn.LSTM(I, H))
    path, prefix = written(tmp_path / "m", model, saver)
    done = rl.convert_file(path, tmp_path / "n.pt", to="cudnn")
    (made,) = rl.load(tmp_path / "n.pt").values()
    assert made.pack().tobytes() == rl.pack(model.enc).tobytes()
    state = torch.load(tmp_path / "n.pt", weights_only=True)
    assert torch.equal(state[f"{prefix}before.weight"], model.before.weight)
    notes = [note for note in done.notes if "is a state_dict of the modules in m." in note]
    assert len(notes) == (saver != "export")
    assert all(("without 'epoch'" in note) == bool(prefix) for note in notes)


def test_an_archive_of_libtorch(tmp_path):
    """C++'s torch::save(module) records names, but neither classes nor options."""
    path = TESTS / "data/libtorch.pt"
    state = torch.jit.load(path).state_dict()
    found = rl.load(path, cell="rnn_relu")
    assert [*found] == ["enc", "dec"] and len(found.others) == 5
    assert_same_tensors(found, state, "")
    with pytest.raises(rl.UndecidedError, match="tanh or relu"):
        rl.load(path)["dec"]
    rl.convert_file(path, tmp_path / "n.pt", to="torch", cell="rnn_relu")
    assert torch.load(tmp_path / "n.pt", weights_only=True).keys() == state.keys()


# ------------------------------------------------------------------------------ what is not read


@pytest.mark.parametrize("name", ["m.pt", "m", "m.nemo"])
def test_archives_that_are_not_read(name, tmp_path):
    path = tmp_path / name

    def refused(*parts):
        with pytest.raises(rl.FileError) as caught:
            rl.load(path)
        assert all(part in str(caught.value) for part in (str(path), *parts))

    program = torch.jit.script(Net(torch.nn.LSTM(I, H)).eval())
    torch.jit.save(torch.jit.freeze(program), path)
    refused("torch.jit.freeze()", "save the program that it was made from")
    for members, says in (
        (["model_config.yaml", "model_weights.ckpt"], "unpack it (tar -xf"),
        (["sys_info", "pickle", "tensors", "storages"], "written by torch before 0.2: load it"),
    ):
        with tarfile.open(path, mode="w") as file:
            for member in members:
                file.addfile(tarfile.TarInfo(member))
        refused(says)


def test_a_package_of_aotinductor(tmp_path):
    """It was taken as an old program, to be loaded by torch.export.load(), which fails on it."""
    path, program = tmp_path / "m.pt2", tmp_path / "program.pt2"
    (tmp_path / "m.wrapper.so").write_bytes(b"compiled")
    package_pt2(path, aoti_files=[str(tmp_path / "m.wrapper.so")])
    with pytest.raises(RuntimeError):
        torch.export.load(path)
    with pytest.raises(rl.FileError, match="AOTInductor: its weights are in compiled code") as no:
        rl.load(path)
    assert "torch.export.load" not in str(no.value)
    save_exported(torch.nn.LSTM(I, H), program, torch.zeros(T, N, I))
    assert [*rl.load(program)] == ["lstm"]


def test_pytorch_model_bin(tmp_path):
    """Hugging Face's name for a checkpoint of torch: .bin is cuDNN's weight space here."""
    path = tmp_path / "pytorch_model.bin"
    for old in (True, False):
        torch.save(torch.nn.GRU(I, H).state_dict(), path, _use_new_zipfile_serialization=not old)
        assert list(rl.load(path)) == ["gru"]
    for new in ("n.bin", "n.pt"):
        rl.convert_file(path, tmp_path / new, to="cudnn")
        assert rl.verify(path, tmp_path / new)
