"""diagnose: what happened to the values themselves is said of every value, and of no other."""

import tracemalloc

import numpy as np
import pytest
import torch
from compare.diagnoses import lost, rules, weights
from compare.packed_arrays import Arrays
from compare.wrong_packers import on, random_flat
from compare.wrong_values import DTYPES, as_text, bits_kept, by_groups, fixed_point

import rnnlayout as rl

DEEP = rl.Spec("lstm", 24, 32, 2)
GRU = rl.Spec("gru", 40, 64)


def of_gates(x, axes, levels):
    return by_groups(x.reshape(4, -1, x.shape[1]), axes, levels).reshape(x.shape)


def in_blocks(x, size, levels):
    return by_groups(x.reshape(len(x), -1, size), (2,), levels).reshape(x.shape)


# What is done to each array; what diagnose says of "the values"; what is lost.
CHANGES = {
    "float16": (lambda x: x.astype("f2").astype("f4"), "rounded to float16", "float16"),
    "tf32": (lambda x: bits_kept(x, 13), "rounded to TF32", "TF32"),
    "cut to tf32": (lambda x: bits_kept(x, 13, False), "cut off to TF32, not rounded", "TF32"),
    "cut to bfloat16": (lambda x: bits_kept(x, 16, False), "cut off to bfloat16, not rounded",
                        "bfloat16"),
    "%.4f": (as_text("%.4f"), "rounded to 4 decimals (written as text?)", "4 decimals"),
    "%.6f": (as_text("%.6f"), "rounded to 6 decimals (written as text?)", "6 decimals"),
    "%.4g": (as_text("%.4g"), "rounded to 4 significant digits (written as text?)",
             "4 significant digits"),
    "Q12": (fixed_point(12), "rounded to fixed point with 12 bits after the point",
            "12 bits after the point"),
}  # fmt: skip
# The same of the input matrices alone.
SCHEMES = {
    "int8": (lambda x: by_groups(x, (0, 1), 127), "8 bits, with one scale per matrix"),
    "-128 to 127": (lambda x: by_groups(x, (0, 1), 128), "8 bits, with one scale per matrix"),
    "254 steps": (lambda x: by_groups(x, (0, 1), 126.5, True),
                  "8 bits, with one scale and zero point per matrix"),
    "int6": (lambda x: by_groups(x, (0, 1), 31), "6 bits, with one scale per matrix"),
    "per row": (lambda x: by_groups(x, (1,), 7), "4 bits, with one scale per row"),
    "per column": (lambda x: by_groups(x, (0,), 127), "8 bits, with one scale per column"),
    "per gate": (lambda x: of_gates(x, (1, 2), 127), "8 bits, with one scale per gate"),
    "per block": (lambda x: in_blocks(x, 32, 7), "4 bits, with one scale per 32 values of a row"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_all_values(change):
    make, words, cannot = CHANGES[change]
    # some so small that float16 has fewer bits for them than TF32
    like = {name: x * np.float32(2.0**-12) if change.endswith("tf32") else x
            for name, x in weights(DEEP).items()}  # fmt: skip
    done = {name: make(x) for name, x in like.items()}
    for found in (rl.diagnose(rl.pack(done), like=like), rl.diagnose(done, like=like)):
        assert found.text == f"the values are {words}" and found.sure
        assert lost(found) == [f"what {cannot} cannot represent"]
        assert rl.pack(found.fixed, DEEP).tobytes() == rl.pack(done).tobytes()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_of_quantization(scheme):
    make, words = SCHEMES[scheme]
    like = weights(rl.Spec("lstm", 64, 32, 2))
    done = {name: make(x) if name == "weight_ih_l0" else x for name, x in like.items()}
    found = rl.diagnose(rl.pack(done), like=like)
    assert found.text == f"the input matrices of layer 0 are quantized to {words}" and found.sure
    assert [mistake.where for mistake in found.mistakes] == [((0, 0, "W"),)]


def int8_in_the_dtype(x):
    scale = abs(x).max() / x.dtype.type(127)
    return np.rint(x / scale) * scale


# Of values of 16 bits, which are rounded by more than half a step. What is done to each array.
NARROW = {
    "8 bits, with one scale per gate": lambda x: by_groups(x, (1, 2)[: x.ndim - 1], 127),
    "8 bits, with one scale per matrix": int8_in_the_dtype,
    "8 bits, with one scale and zero point per matrix": lambda x: by_groups(x, None, 127, True),
    "16 bits, with one scale per matrix": lambda x: by_groups(x, None, 32767),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("words", NARROW)
def test_quantized_values_of_16_bits(words, dtype):
    """They were "changed": were the weights trained further, or edited?"""
    spec = rl.Spec("lstm", 20, 16, dtype=dtype)
    like = random_flat(spec, DTYPES[dtype], 0)
    arrays = Arrays(spec, like.copy())
    on("all", NARROW[words])(arrays)
    found = rl.diagnose(arrays.flat(), like=like, spec=spec)
    assert found.text == f"the values are quantized to {words}" and found.sure


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_unit_in_the_last_place_is_not_a_quantization(dtype):
    """Each value of 16 bits is within a unit of some multiple."""
    spec = rl.Spec("lstm", 20, 16, dtype=dtype)
    like = random_flat(spec, DTYPES[dtype], 0)
    units = np.random.default_rng(1).integers(0, 2, like.size, "u2")
    found = rl.diagnose((like.view("u2") + units).view(like.dtype), like=like, spec=spec)
    assert rules(found) == ["changed"]


@pytest.mark.parametrize("change", ["float16", "%.6f", "Q12"])
def test_a_change_in_one_layer_is_said_of_this_layer(change):
    make, words, _ = CHANGES[change]
    like = weights(DEEP)
    done = {name: make(x) if name.endswith("_l1") else x for name, x in like.items()}
    found = rl.diagnose(rl.pack(done), like=like)
    assert found.text == f"all matrices and biases of layer 1 are {words}"
    assert {place[0] for mistake in found.mistakes for place in mistake.where} == {1}


def test_a_value_with_another_cause_is_named():
    """The first 65,536 wrong values were looked at: "rounded to float16" of a weight that is 7."""
    like = weights(rl.Spec("lstm", 24, 256))
    done = {name: x.astype("f2").astype("f4") for name, x in like.items()}
    done["weight_hh_l0"][2 * 256 + 3, 7] = 7
    found = rl.diagnose(rl.pack(done), like=like)
    place = "layer 0, recurrent matrix of gate g at (3, 7)"
    assert rules(found) == ["rounded float16", "changed"]
    start = (
        f"the values are rounded to float16, but for 1 value ({place}); 1 of {found.size} values"
    )
    assert found.text.startswith(f"{start} is changed, by up to ")


def test_quantized_matrices_do_not_explain_biases():
    """It was "quantized to 8 bits", sure, with a bias of 100 and a NaN."""
    like = weights(GRU)
    done = {name: by_groups(x, (0, 1), 127) if "weight" in name else x.copy()
            for name, x in like.items()}  # fmt: skip
    done["bias_ih_l0"][3] = 100
    done["weight_hh_l0"][1, 2] = np.nan
    found = rl.diagnose(rl.pack(done), like=like)
    assert rules(found) == ["quantized", "changed"]
    assert "but for 1 value (layer 0, recurrent matrix of gate r at (1, 2))" in found.text
    assert "2 of" in found.text and "1 of them to NaN" in found.text
    assert "layer 0, biases, bW of gate r[3]" in found.text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_another_dtype_that_rounds_loses_what_it_cannot_represent(dtype):
    """It lost nothing, as it said, and `fixed` differed."""
    like = weights(GRU)
    flat = torch.from_numpy(rl.pack(like)).to(getattr(torch, dtype))
    found = rl.diagnose(flat, like=like)
    assert found.text == f"the values are {dtype}, expected float32"
    assert lost(found) == [f"what {dtype} cannot represent"]
    exact = {name: np.rint(4 * x) / 4 for name, x in like.items()}
    found = rl.diagnose(rl.pack(exact).astype("f2"), like=exact)
    assert found.text == "the values are float16, expected float32" and not found.lost


def test_swapped_bytes_of_rounded_values_are_both_named():
    like = weights(GRU)
    rounded = rl.pack(like).astype("f2").astype("f4")
    found = rl.diagnose(rounded.byteswap(), like=like)
    assert rules(found) == ["byte order", "rounded float16"] and found.lost


def test_float64_by_way_of_float32():
    like = {name: x + np.random.default_rng(1).normal(size=x.shape) / 3
            for name, x in weights(GRU).items()}  # fmt: skip
    assert all(x.dtype == np.float64 for x in like.values())
    done = {name: x.astype("f4").astype("f8") for name, x in like.items()}
    found = rl.diagnose(rl.pack(done), like=like)
    assert found.text == "the values are rounded to float32"
    assert lost(found) == ["what float32 cannot represent"]


@pytest.mark.long
def test_verify_of_trained_weights_takes_at_most_three_times_their_memory():
    """It took 4.2 to 5.75 times the weights: converted, packed, repaired and masked copies."""
    spec, rng = rl.Spec("lstm", 1400, 1400), np.random.default_rng(0)
    flat = rng.standard_normal(spec.num_params, dtype="f4")
    trained = flat + np.float32(1e-3) * rng.standard_normal(flat.size, dtype="f4")
    tracemalloc.start()
    try:
        assert rl.verify(flat, trained, spec=spec).pairs[0].summary.endswith("or edited?")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * flat.nbytes
