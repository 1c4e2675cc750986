"""Where MIOpen has each block: its own formulas, written down from src/rnn.cpp of ROCm/MIOpen
(RNNDescriptor::paramsOffsetCalculation, biasOffsetCalculation, commit 7c5ba05), once more."""

import numpy as np
import pytest

import rnnlayout as rl
from rnnlayout import _native

ANSWERS_FOR = ("miopen",)

# A paramID is a gate, in MIOpen's order; as torch orders its own gates before it calls MIOpen
# (permute_wei_for_miopen).
GATES = {"lstm": "ifog", "gru": "zrn", "rnn_tanh": "h", "rnn_relu": "h"}


def matrix_offset(spec, layer, number):
    """layer: 2 * layer + direction if there are two directions. number: W of each gate, then R."""
    n, H, I = len(GATES[spec.cell]), spec.hidden_size, spec.input_size  # noqa: E741
    if spec.bidirectional:
        if layer <= 1:
            if number >= n:
                return I * H * n * 2 + (layer == 1) * n * H * H + H * H * (number - n)
            return (layer == 1) * n * I * H + I * H * number
        jump = (I * H + H * H) * n * 2 + (H * H * 2 + H * H) * n * (layer // 2 - 1) * 2
        if number >= n:
            return jump + H * H * 2 * n * 2 + (layer % 2) * n * H * H + H * H * (number - n)
        return jump + (layer % 2) * n * 2 * H * H + 2 * H * H * number
    if layer == 0:
        return I * H * n + H * H * (number - n) if number >= n else I * H * number
    return (I * H + H * H) * n + H * H * 2 * n * (layer - 1) + H * H * number


def bias_offset(spec, layer, number):
    n, H = len(GATES[spec.cell]), spec.hidden_size
    if spec.bidirectional:
        jump = H * 2 * n * (layer // 2) * 2 + (number >= n) * H * n
        return jump + (layer % 2) * n * H + H * number
    return H * 2 * n * layer + H * number


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", GATES)
def test_the_offsets_are_those_of_miopen(cell, both):
    spec = rl.Spec(cell, 5, 3, 3, both)
    D, n, matrices = 1 + both, len(GATES[cell]), 0
    for layer in range(3):
        width = 5 if layer == 0 else 3 * D
        matrices += D * n * 3 * (width + 3)
    blocks = _native.blocks(rl.layout("miopen"), spec, _native.HAS_BIAS)
    assert len(blocks) == 3 * D * n * 4
    for (layer, direction, role, _, gate), (_, at, _, cols, row_stride, col_stride, _) in blocks:
        number = GATES[cell].index(gate) + n * (role in ("R", "bR"))
        pseudo = D * layer + direction
        if role.startswith("b"):
            assert at == matrices + bias_offset(spec, pseudo, number)
        else:
            assert at == matrix_offset(spec, pseudo, number), (layer, direction, role, gate)
            assert (row_stride, col_stride) == (cols, 1)
    assert rl.describe(spec, "miopen") == {"weights": (matrices + 3 * D * n * 2 * 3,)}


def test_a_vector_needs_its_spec():
    spec = rl.Spec("gru", 5, 3, 2, True)
    rng = np.random.default_rng(1)
    torch = {name: rng.normal(size=shape).astype("f4")
             for name, shape in rl.describe(spec, "torch").items()}  # fmt: skip
    weights = rl.convert(torch, to="miopen", exact=True)
    for source in (dict(weights), [weights["weights"]], weights["weights"]):
        with pytest.raises(rl.SpecError, match=r"miopen is one flat vector.* pass spec="):
            rl.convert(source, layout="miopen", to="torch")
        back = rl.convert(source, spec, layout="miopen", to="torch", exact=True)
        assert all(back[name].tobytes() == torch[name].tobytes() for name in torch)
    with pytest.raises(rl.LossyError, match="miopen has no projection"):
        rl.describe(rl.Spec("lstm", 5, 3, proj_size=2), "miopen")


@pytest.mark.parametrize("bias", ["double", "none"])
@pytest.mark.parametrize("both", [False, True])
def test_layers_of_the_vector(both, bias, tmp_path):
    """A layer alone, a stack of layers and a conversion layer by layer are torch's, converted."""
    spec = rl.Spec("lstm", 5, 3, 3, both, bias=bias)
    rng = np.random.default_rng(2)
    torch = rl.Weights({name: rng.normal(size=shape).astype("f4")
                        for name, shape in rl.describe(spec, "torch").items()})  # fmt: skip
    weights = torch.to("miopen", exact=True)
    parts = weights.split()
    for k, part in enumerate(parts):
        expected = torch.split()[k].to("miopen", exact=True)
        assert part.spec == expected.spec
        assert part["weights"].tobytes() == expected["weights"].tobytes()
    again = rl.stack(parts)
    assert again.spec == spec and again["weights"].tobytes() == weights["weights"].tobytes()
    rl.save(tmp_path / "a.safetensors", weights)
    (loaded,) = rl.load(tmp_path / "a.safetensors").values()
    assert loaded.layout == rl.layout("miopen") and loaded.spec == spec
    assert loaded["weights"].tobytes() == weights["weights"].tobytes()


def test_a_large_rnn_is_converted_layer_by_layer(tmp_path, monkeypatch):
    monkeypatch.setattr("rnnlayout._files.tensor_sets.layerwise.SMALL_NBYTES", 0)
    for bias in ("double", "none"):
        spec = rl.Spec("gru", 5, 3, 3, True, bias=bias)
        rng = np.random.default_rng(3)
        keras = rl.Weights({name: rng.normal(size=shape).astype("f4") for name, shape in
                            rl.describe(spec, "torch").items()}).to("keras")  # fmt: skip
        rl.save(tmp_path / f"{bias}.npz", keras)
        rl.convert_file(tmp_path / f"{bias}.npz", tmp_path / f"{bias}-miopen.npz", to="miopen")
        (made,) = rl.load(tmp_path / f"{bias}-miopen.npz").values()
        assert made["weights"].tobytes() == keras.to("miopen")["weights"].tobytes()
        rl.convert_file(tmp_path / f"{bias}-miopen.npz", tmp_path / f"{bias}-again.npz", to="keras")
        (back,) = rl.load(tmp_path / f"{bias}-again.npz").values()
        assert all(back[name].tobytes() == keras[name].tobytes() for name in keras.tensors)
