"""TorchScript in memory: it is read as the file that torch.jit.save() writes; torch computes."""

import pytest
import torch
from files.outputs import assert_computes
from marks import pairwise
from oracles.frameworks import inputs, run_torch, seeded, torch_cell, torch_module
from oracles.nets import NESTED
from oracles.reference import GATES
from torch.nn.utils import parametrizations

import rnnlayout as rl

pytestmark = pytest.mark.filterwarnings("ignore")  # torch deprecates TorchScript

T, N, I, H = 5, 3, 11, 8  # noqa: E741
OPTIONS = {
    "plain": {}, "both ways": {"bidirectional": True}, "two layers": {"num_layers": 2},
    "no biases": {"bias": "none"}, "projected": {"proj_size": 5},
}  # fmt: skip


def traced(model, x):
    return torch.jit.trace(model, x)


def scripted(model, x):
    return torch.jit.script(model)


def loaded(program, path):
    torch.jit.save(program, path)
    return torch.jit.load(path)


MAKERS = {
    "traced": lambda model, x, path: traced(model, x),
    "traced and loaded": lambda model, x, path: loaded(traced(model, x), path),
    "scripted": lambda model, x, path: scripted(model, x),
    "scripted and loaded": lambda model, x, path: loaded(scripted(model, x), path),
    "traced inside scripted": lambda model, x, path: scripted(
        torch.nn.Sequential(traced(model, x)), x
    ),
}


@pytest.mark.parametrize("maker, cell, option, nested, batch_first", pairwise(
    MAKERS, GATES, OPTIONS, NESTED, [False, True],
    fits=lambda maker, cell, option, *_: option != "projected" or cell == "lstm",
))  # fmt: skip
def test_a_program_is_batch_first_as_its_rnn(maker, cell, option, nested, batch_first, tmp_path):
    """batch_first=True of a traced module was lost, and a loaded script was refused."""
    spec = rl.Spec(cell, I, H, **OPTIONS[option])
    module = torch_module(spec, seeded(maker, cell, option))
    module.batch_first = batch_first
    model = NESTED[nested](module).eval()
    program = MAKERS[maker](model, torch.zeros(T, N, I), tmp_path / "m.pt")
    weights = rl.Weights(program)
    assert weights.spec == spec and weights.batch_first is batch_first
    assert weights.pack().tobytes() == rl.pack(module).tobytes()
    torch.jit.save(program, tmp_path / "n.pt")
    assert [weights] == [*rl.load(tmp_path / "n.pt").values()]
    module.batch_first, arguments = False, inputs(seeded(maker, cell, option), spec)
    assert_computes(weights, run_torch(module, *arguments), *arguments)


@pytest.mark.parametrize("batch_first", [False, True])
def test_an_rnn_object_takes_x_as_the_program(batch_first):
    model = torch.nn.Sequential(torch.nn.LSTM(I, H, bidirectional=True, batch_first=batch_first))
    x = torch.randn(N, T, I)
    program = traced(model.eval(), x)
    y, *_ = rl.RNN(program)(x.numpy())
    expected = program(x)[0].detach()
    # sums of less than 32 products of numbers near 1, in float32, in another order
    torch.testing.assert_close(torch.from_numpy(y), expected, atol=32 * 2**-24, rtol=1e-5)


@pytest.mark.parametrize("maker, cell", pairwise(MAKERS, GATES))
def test_a_cell_in_a_program(maker, cell, tmp_path):
    module = torch_cell(rl.Spec(cell, I, H), seeded(cell))
    program = MAKERS[maker](module, torch.zeros(N, I), tmp_path / "m.pt")
    options = {}
    if "traced" in maker and cell.startswith("rnn"):
        with pytest.raises(rl.SpecError, match="tanh or relu"):
            rl.Weights(program)
        options = {"cell": cell}
    assert rl.Weights(program, **options) == rl.Weights(module)


class Calls(torch.nn.Module):
    """An RNN that is called with each of these settings of batch_first, or with packed x."""

    def __init__(self, *settings):
        super().__init__()
        self.rnn, self.settings = torch.nn.GRU(I, H), settings

    def forward(self, x):
        y = torch.zeros(())
        for batch_first in self.settings:
            self.rnn.batch_first = batch_first
            y = y + self.rnn(x)[0].sum()
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([T] * N))
        return y + self.rnn(packed)[0].data.sum()


@pytest.mark.parametrize("settings, expected", [
    ([], None), ([False, True], None), ([True, False], None), ([True, True], True), ([False], False)
])  # fmt: skip
def test_several_calls_of_one_rnn(settings, expected, tmp_path):
    """The last call decided, also if another call has the other axes."""
    program = traced(Calls(*settings), torch.zeros(T, N, I))
    assert rl.Weights(program).batch_first is expected
    torch.jit.save(program, tmp_path / "m.pt")
    (weights,) = rl.load(tmp_path / "m.pt").values()
    assert weights.batch_first is expected


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.LSTM(I, H, batch_first=True), torch.nn.RNN(I, H)

    def forward(self, x):
        return self.a(x)[0], self.b(x)[0]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_prefix_chooses_among_the_rnns_of_a_program(maker, tmp_path):
    model = Two()
    program = MAKERS[maker](model, torch.zeros(T, N, I), tmp_path / "m.pt")
    start = "0." if "inside" in maker else ""
    for name, rnn in (("a", model.a), ("b", model.b)):
        weights = rl.Weights(program, prefix=start + name)
        assert weights == rl.Weights(rnn) and weights.batch_first is rnn.batch_first


CALLS = {  # of an RNN with batch_first=True: its inputs
    "unbatched": lambda: torch.zeros(T, I),
    "with a state": lambda: (torch.zeros(N, T, I), (torch.zeros(1, N, H), torch.zeros(1, N, H))),
    "unbatched, with a state": lambda: (
        torch.zeros(T, I), (torch.zeros(1, H), torch.zeros(1, H))),
}  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda rnn: rnn, lambda rnn: parametrizations.weight_norm(
    rnn, "weight_hh_l0")])  # fmt: skip
@pytest.mark.parametrize("arguments", CALLS.values(), ids=CALLS)
def test_every_form_of_a_call(arguments, wrap, tmp_path):
    module = wrap(torch.nn.LSTM(I, H, batch_first=True))
    program = traced(module, arguments())
    torch.jit.save(program, tmp_path / "m.pt")
    for weights in (rl.Weights(program), *rl.load(tmp_path / "m.pt").values()):
        assert weights.batch_first is True
        assert weights.pack().tobytes() == rl.pack(module.state_dict()).tobytes()


def test_arguments_that_contradict_a_program():
    program = traced(torch.nn.RNN(I, H, nonlinearity="relu"), torch.zeros(T, N, I))
    spec = rl.Spec("rnn_relu", I, H)
    assert rl.Weights(program).spec == rl.Weights(program, spec).spec == spec
    with pytest.raises(rl.SpecError, match=r"cell 'rnn_tanh' contradicts .* 'rnn_relu': omit cell"):
        rl.Weights(program, cell="rnn_tanh")
    with pytest.raises(rl.SpecError, match="cell rnn_tanh and rnn_relu: omit spec"):
        rl.Weights(program, spec.replace(cell="rnn_tanh"))
    with pytest.raises(rl.LayoutError, match="in layout torch, not keras"):
        rl.Weights(program, layout="keras")


@pytest.mark.parametrize("make", [traced, scripted])
@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_a_frozen_program(make, nested):
    model = nested(torch.nn.GRU(I, H, batch_first=True)).eval()
    frozen = torch.jit.freeze(make(model, torch.zeros(N, T, I)))
    if frozen.state_dict():  # a scripted RNN alone keeps its parameters
        assert rl.Weights(frozen) == rl.Weights(model)
        return
    with pytest.raises(rl.LayoutError, match=r"torch.gru\(\) with constants, .* torch.jit.freeze"):
        rl.Weights(frozen)


def test_a_quantized_rnn_in_a_model_or_program():
    """A model with a quantized RNN "contains none"."""
    model = torch.nn.Sequential(torch.nn.LSTM(I, H))
    quantized = torch.ao.quantization.quantize_dynamic(model, {torch.nn.LSTM})
    for source in (quantized, scripted(quantized, None), scripted(quantized[0], None)):
        with pytest.raises(rl.LayoutError, match=r"quantized.dynamic.LSTM stores rounded"):
            rl.Weights(source)


# ---------------------------------------------------------------------------------- forward hooks


def doubled(module, arguments, result):
    return 2 * result[0], result[1]


def doubled_first(module, arguments):
    return (2 * arguments[0],)


def scripted_hook(
    self,
    input: tuple[torch.Tensor, torch.Tensor | None],
    output: torch.Tensor,
):
    return output * 2


def with_hook(register, hook):
    module = torch.nn.LSTM(I, H)
    getattr(module, register)(hook)
    return traced(module, torch.zeros(T, N, I))


def with_scripted_hook():
    cell = torch.nn.RNNCell(I, H)
    cell.register_forward_hook(scripted_hook)
    return torch.jit.script(cell)


HOOKED = {
    "traced": (lambda: with_hook("register_forward_hook", doubled), "torch.mul"),
    "traced before": (lambda: with_hook("register_forward_pre_hook", doubled_first), "torch.mul"),
    "scripted": (with_scripted_hook, "scripted_hook"),
}


@pytest.mark.parametrize("make, name", HOOKED.values(), ids=HOOKED)
def test_a_hook_in_a_program(make, name, tmp_path):
    """It was ignored, live and in the file."""
    program = make()
    with pytest.raises(rl.LayoutError, match=f"has the forward hook {name}, so it may"):
        rl.Weights(program)
    torch.jit.save(program, tmp_path / "m.pt")
    (question,) = rl.load(tmp_path / "m.pt").undecided.values()
    assert f"with the forward hook '{name}'" in str(question)
    if name == "scripted_hook":  # loaded again
        with pytest.raises(rl.LayoutError, match=f"has the forward hook {name}, so it may"):
            rl.Weights(torch.jit.load(tmp_path / "m.pt"))


def test_a_hook_on_a_traced_module():
    program = traced(torch.nn.LSTM(I, H), torch.zeros(T, N, I))
    program.register_forward_hook(doubled)
    with pytest.raises(rl.LayoutError, match="has the forward hook doubled, so it may"):
        rl.Weights(program)
