"""cuDNN's weight space, compared with the answers of the real library."""

import numpy as np
import pytest
from model.recorded import RECORDED, spec_of

import rnnlayout as rl

ANSWERS_FOR = ("cudnn",)


def test_there_are_140_answers():
    assert len(RECORDED) == 140


@pytest.mark.parametrize("answer", RECORDED, ids=lambda a: "-".join(map(str, a["config"].values())))
def test_regions_are_those_of_the_real_cudnn(answer):
    spec = spec_of(answer["config"])
    theirs = {}
    for pseudo_layer, number, matrix, matrix_dims, bias, bias_dims in answer["params"]:
        if matrix is not None:
            theirs[pseudo_layer, number, "matrix"] = (matrix, matrix_dims)
        if bias is not None:
            theirs[pseudo_layer, number, "bias"] = (bias, bias_dims)
    ours = {
        (
            int(r["pseudo_layer"]),
            int(r["lin_layer_id"]),
            "bias" if r["role"][0] == "b" else "matrix",
        ): (int(r["offset"]), [1, int(r["rows"]), int(r["cols"])])
        for r in rl.regions(spec)
    }
    assert ours == theirs
    assert spec.nbytes == answer["bytes"]
    assert rl.describe(spec, "cudnn") == {"weight_space": (spec.num_params,)}


def test_regions_are_in_address_order_and_without_gaps():
    for answer in RECORDED:
        spec = spec_of(answer["config"])
        regions = rl.regions(spec)
        itemsize = spec.nbytes // spec.num_params
        ends = regions["offset"] + regions["rows"] * regions["cols"] * itemsize
        assert np.array_equal(regions["offset"], np.concatenate([[0], ends[:-1]]))
        assert ends[-1] == spec.nbytes


def test_a_version_of_cudnn_changes_no_offset():
    spec = rl.Spec("lstm", 3, 5, 2, proj_size=2)
    for version in (7, 8, 9):
        assert rl.describe(spec, rl.layout("cudnn", version=version)) == rl.describe(spec, "cudnn")
