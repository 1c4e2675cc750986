"""Where cuDNN and MIOpen have each block: the answers of the real cuDNN, and MIOpen's own formulas.

The formulas are written down from src/rnn.cpp of ROCm/MIOpen, commit 7c5ba05:
RNNDescriptor::paramsOffsetCalculation, biasOffsetCalculation.
"""

import pytest
from model.recorded import RECORDED, spec_of
from oracles.some import normal_weights, same_bits

import rnnlayout as rl
from rnnlayout import _native

ANSWERS_FOR = ("cudnn", "miopen")


@pytest.mark.parametrize("answer", RECORDED, ids=lambda a: "-".join(map(str, a["config"].values())))
def test_regions_are_those_of_the_real_cudnn(answer):
    spec = spec_of(answer["config"])
    theirs = {}
    for pseudo_layer, number, matrix, matrix_dims, bias, bias_dims in answer["params"]:
        theirs[pseudo_layer, number, "matrix"] = matrix, matrix_dims
        theirs[pseudo_layer, number, "bias"] = bias, bias_dims
    ours = {
        (p, number, "bias" if role[0] == "b" else "matrix"): (start, [1, rows, cols])
        for p, _, _, number, role, _, start, rows, cols in rl.regions(spec).tolist()
    }
    ends = [start + rows * cols * (spec.nbytes // spec.num_params)
            for *_, start, rows, cols in rl.regions(spec).tolist()]  # fmt: skip
    assert rl.regions(spec)["offset"].tolist() == [0, *ends[:-1]] and ends[-1] == spec.nbytes
    assert ours == {piece: place for piece, place in theirs.items() if place[0] is not None}
    assert spec.nbytes == answer["bytes"]
    assert rl.describe(spec, "cudnn") == {"weight_space": (spec.num_params,)}


# ---------------------------------------------------------------------------------------- MIOpen

# A paramID is a gate, in MIOpen's order; as torch orders its own gates before it calls MIOpen
# (permute_wei_for_miopen).
MIOPEN_GATES = {"lstm": "ifog", "gru": "zrn", "rnn_tanh": "h", "rnn_relu": "h"}


def miopen_matrix_offset(spec, layer, number):
    """layer: 2 * layer + direction if there are two directions. number: W of each gate, then R."""
    n, H, I = len(MIOPEN_GATES[spec.cell]), spec.hidden_size, spec.input_size  # noqa: E741
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


def miopen_bias_offset(spec, layer, number):
    n, H = len(MIOPEN_GATES[spec.cell]), spec.hidden_size
    if spec.bidirectional:
        jump = H * 2 * n * (layer // 2) * 2 + (number >= n) * H * n
        return jump + (layer % 2) * n * H + H * number
    return H * 2 * n * layer + H * number


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", MIOPEN_GATES)
def test_the_offsets_are_those_of_miopen(cell, both):
    spec = rl.Spec(cell, 5, 3, 3, both)
    D, n, matrices = 1 + both, len(MIOPEN_GATES[cell]), 0
    for layer in range(3):
        width = 5 if layer == 0 else 3 * D
        matrices += D * n * 3 * (width + 3)
    blocks = _native.blocks(rl.layout("miopen"), spec, _native.HAS_BIAS)
    assert len(blocks) == 3 * D * n * 4
    for (layer, direction, role, _, gate), (_, at, _, cols, row_stride, col_stride, _) in blocks:
        number = MIOPEN_GATES[cell].index(gate) + n * (role in ("R", "bR"))
        pseudo = D * layer + direction
        if role.startswith("b"):
            assert at == matrices + miopen_bias_offset(spec, pseudo, number)
        else:
            assert at == miopen_matrix_offset(spec, pseudo, number), (layer, direction, role, gate)
            assert (row_stride, col_stride) == (cols, 1)
    assert rl.describe(spec, "miopen") == {"weights": (matrices + 3 * D * n * 2 * 3,)}


def test_a_vector_of_miopen_needs_its_spec():
    spec = rl.Spec("gru", 5, 3, 2, True)
    torch = normal_weights("torch", spec)
    weights = rl.convert(torch, to="miopen", exact=True)
    for source in (dict(weights), [weights["weights"]], weights["weights"]):
        with pytest.raises(rl.SpecError, match=r"miopen is one flat vector.* pass spec="):
            rl.convert(source, layout="miopen", to="torch")
        back = rl.convert(source, spec, layout="miopen", to="torch", exact=True)
        assert same_bits(dict(back), torch)
    with pytest.raises(rl.LossyError, match="miopen has no projection"):
        rl.describe(rl.Spec("lstm", 5, 3, proj_size=2), "miopen")


@pytest.mark.parametrize("both, bias", [(False, "none"), (True, "double")])
def test_layers_of_a_vector_of_miopen(both, bias, tmp_path, monkeypatch):
    """A layer alone, a stack of layers and a conversion layer by layer are torch's, converted."""
    spec = rl.Spec("lstm", 5, 3, 3, both, bias=bias)
    torch = rl.Weights(normal_weights("torch", spec))
    weights = torch.to("miopen", exact=True)
    parts = weights.split()
    assert parts == [part.to("miopen", exact=True) for part in torch.split()]
    assert rl.stack(parts) == weights
    monkeypatch.setattr("rnnlayout._files.tensor_sets.layerwise.SMALL_NBYTES", 0)
    new = tmp_path / "torch.npz", tmp_path / "miopen.npz", tmp_path / "again.npz"
    rl.save(new[0], torch)
    rl.convert_file(*new[:2], to="miopen")
    rl.convert_file(*new[1:], to="torch")
    assert [*rl.load(new[1]).values()] == [weights] and [*rl.load(new[2]).values()] == [torch]
