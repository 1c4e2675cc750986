"""Files for programs in C: .bin with its JSON, and .h, compiled and run."""

import json
import re
import shutil
import zlib

import pytest
from commands import run
from oracles import some

import rnnlayout as rl
from rnnlayout._model.weights import changed_weights

CUDNN = rl.layout("cudnn")
SPECS = {
    "float32": rl.Spec("lstm", 5, 3, 2, bidirectional=True, proj_size=2),
    "float64": rl.Spec("gru", 5, 3, bias="recurrent", dtype="float64"),
    "bfloat16": rl.Spec("rnn_relu", 5, 3, bias="none", dtype="bfloat16"),
}


def random_rnn(spec):
    return rl.Weights(some.random_weights(CUDNN, spec), spec)


# Prints the sizes, all bits, and the place of each region.
PROGRAM = """
#include "weights.h"
#include <stdio.h>
#include <string.h>
int main(void)
{
    const struct rnnlayout_region *at;
    printf("%d %d %d %s\\n", A_INPUT_SIZE, A_HIDDEN_SIZE, A_NUM_LAYERS * A_NUM_DIRECTIONS, A_CELL);
    fwrite(&a, sizeof a, 1, fopen("a.out.bin", "wb"));
    for (int p = 0; p < A_NUM_LAYERS * A_NUM_DIRECTIONS; p++)
        for (int id = 0; id <= 8; id++)
            for (int bias = 0; bias < 2; bias++)
                if (a_find(p, id, bias, &at))
                    printf("%d %d %d %ld %ld %ld\\n", p, id, bias,
                           (long)((const char *)a_find(p, id, bias, NULL) - (const char *)&a),
                           (long)at->rows, (long)at->cols);
    return a_find(99, 0, 0, NULL) != NULL || rnn_0___find(0, 0, 0, NULL) != rnn_0__.weights;
}
"""


@pytest.mark.parametrize("dtype", SPECS)
@pytest.mark.parametrize("compiler, suffix", [("cc", "c"), ("c++", "cpp")])
def test_a_header_compiles_and_has_every_bit(compiler, suffix, dtype, tmp_path):
    if not shutil.which(compiler):
        compiler = "cc"
    spec = SPECS[dtype]
    a, other = random_rnn(spec), random_rnn(SPECS["float32"])
    rl.save(tmp_path / "weights.h", {"a": a, "0/é": other})
    (tmp_path / f"main.{suffix}").write_text(PROGRAM)
    run([compiler, "-Wall", "-Wextra", "-pedantic", "-Werror", f"main.{suffix}", "-o", "main"],
        cwd=tmp_path)  # fmt: skip
    first, *lines = run(["./main"], cwd=tmp_path).splitlines()
    assert first.split() == [
        "5", "3", str(spec.num_layers * spec.num_directions), spec.cell
    ]  # fmt: skip
    assert (tmp_path / "a.out.bin").read_bytes() == a["weight_space"].tobytes()
    wanted = {
        (row["pseudo_layer"], row["lin_layer_id"], int(row["role"][0] == "b"), row["offset"],
         row["rows"], row["cols"])
        for row in rl.regions(spec)
    }  # fmt: skip
    assert {tuple(map(int, line.split())) for line in lines} == wanted
    assert len(lines) == len(wanted)


SETTINGS = """
#include "a.h"
#include <stdio.h>
int main(void)
{
    const double h[] = A_CONFIG_INITIAL_H;
    printf("%d %d %s %g %s %zu %g %g", A_BATCH_FIRST, A_CONFIG_GO_BACKWARDS, A_CONFIG_MERGE_MODE,
           A_CONFIG_CLIP, A_CONFIG_NAME, sizeof h / sizeof *h, h[0], h[5]);
#ifdef B_BATCH_FIRST
    return 1;
#endif
    return 0;
}
"""


def test_a_header_has_constants_for_the_settings(tmp_path):
    a = random_rnn(rl.Spec("gru", 5, 3, bidirectional=True))
    b = rl.Weights(a)
    a = changed_weights(a, batch_first=True)
    a.config = {"go_backwards": True, "merge_mode": "sum", "clip": 0.25, "name": '"é\\n',
                "initial_h": [[[0.5, 1.0, 2.0]], [[3.0, 4.0, -5.0]]]}  # fmt: skip
    rl.save(tmp_path / "a.h", {"a": a, "b": b})
    (tmp_path / "main.c").write_text(SETTINGS)
    run(["cc", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wno-unused-function", "main.c", "-o",
         "main"], cwd=tmp_path)  # fmt: skip
    assert run(["./main"], cwd=tmp_path) == '1 1 sum 0.25 "é\\n 6 0.5 -5'
    (tmp_path / "a.h").unlink()
    b.config = {"of_a_later_release": {"a": 1}}
    with pytest.raises(
        rl.LossyError, match=r"of_a_later_release=.*cannot be written as a constant"
    ):
        rl.save(tmp_path / "a.h", b)
    assert not (tmp_path / "a.h").exists()


@pytest.mark.parametrize("config", [
    {"*\\\n/\nint evil = 1; //": True}, {"go_backwards": True, "name": "*/ int evil; /*"},
])  # fmt: skip
def test_a_setting_is_in_a_comment_that_it_cannot_end(config, tmp_path):
    """C joins lines that end with a backslash before it looks for comments."""
    weights = random_rnn(SPECS["float64"])
    weights.config = config
    rl.save(tmp_path / "a.h", weights)
    assert "int evil" not in run(["cc", "-E", "-P", tmp_path / "a.h"])
    says = "used with go_backwards=True" in (tmp_path / "a.h").read_text()
    assert says == ("go_backwards" in config)


def test_settings_have_names_of_their_own_in_c(tmp_path):
    w = random_rnn(SPECS["float32"])
    plain = rl.Weights(w)
    w.config = {"a-b": 1, "a_b": 2}
    with pytest.raises(rl.LayoutError, match=r"'a-b' and 'a_b' of 'x' .* X_CONFIG_A_B in C"):
        rl.save(tmp_path / "a.h", {"x": w})
    w.config = {"num_params": 1}
    with pytest.raises(rl.LayoutError, match="the same name in C"):
        rl.save(tmp_path / "a.h", {"x": w, "x.config": plain})
    assert not (tmp_path / "a.h").exists()


@pytest.mark.parametrize("dtype", SPECS)
def test_bin_is_the_bytes_and_json_the_spec(dtype, tmp_path):
    spec, path = SPECS[dtype], tmp_path / "a.bin"
    w = random_rnn(spec)
    rl.save(path, w)
    assert path.read_bytes() == w["weight_space"].tobytes()
    told = json.loads((tmp_path / "a.bin.json").read_text())
    rows = [tuple(region.values()) for region in told.pop("regions")]
    assert rows == rl.regions(spec).tolist()
    crc32 = f"{zlib.crc32(path.read_bytes()):08x}"
    assert told == {**spec.to_dict(), "layout": "cudnn", "nbytes": spec.nbytes, "crc32": crc32}
    found = rl.load(path)[spec.cell.removesuffix("_relu")]
    assert found.spec == spec and found["weight_space"].tobytes() == path.read_bytes()


@pytest.mark.parametrize("key, value, text", [
    ("layout", "torch", "layout is 'torch', and a .bin file has cudnn"),
    ("nbytes", 8, f"nbytes is 8, and the spec has {SPECS['float32'].nbytes}"),
    ("regions", [], "regions are not those of the spec: the"),
    ("regions", lambda rows: [rows[0] | {"gate": "f"}, *rows[1:]], "regions are not those"),
    ("regions", lambda rows: [rows[1], rows[0], *rows[2:]], "regions are not those"),
    ("go_backwards", True, "unknown field 'go_backwards'"),
])  # fmt: skip
def test_a_json_that_contradicts_its_bin(key, value, text, tmp_path):
    """layout, nbytes and regions were not compared."""
    rl.save(tmp_path / "a.bin", random_rnn(SPECS["float32"]))
    path = tmp_path / "a.bin.json"
    description = json.loads(path.read_text())
    description[key] = value(description["regions"]) if callable(value) else value
    path.write_text(json.dumps(description))
    with pytest.raises(rl.FileError, match=rf"^{re.escape(str(path))}: {re.escape(text)}"):
        rl.load(tmp_path / "a.bin")


def test_a_bin_and_the_json_of_another_bin(tmp_path):
    """Of two programs that wrote the same files at the same time, with other biases: the .bin of
    one and the .bin.json of the other were read, 29 of 300 times. The repairs of the error work."""
    path, spec = tmp_path / "a.bin", rl.Spec("lstm", 5, 3, bias="input")
    first, second = (some.random_weights(CUDNN, spec, seed=seed) for seed in (0, 1))
    rl.save(tmp_path / "b.bin", rl.Weights(second, spec.replace(bias="recurrent")))
    rl.save(path, rl.Weights(first, spec))
    description = (tmp_path / "b.bin.json").replace(tmp_path / "a.bin.json")
    for mmap in (True, False):
        with pytest.raises(rl.FileError, match=r"a\.bin\.json describes another a\.bin, with CRC"):
            rl.load(path, mmap=mmap)
    content = json.loads(description.read_text())
    del content["crc32"]
    description.write_text(json.dumps(content))
    assert some.same_bits(rl.load(path)["lstm"].tensors, first)
    rl.save(path, rl.Weights(first, spec))
    assert rl.load(path)["lstm"].spec == spec


def test_a_crc_does_not_protect(tmp_path):
    """Whoever changes the .bin can record the CRC of the changed one."""
    path, spec = tmp_path / "a.bin", rl.Spec("lstm", 5, 3)
    rl.save(path, rl.Weights(some.random_weights(CUDNN, spec, seed=0), spec))
    changed = some.random_weights(CUDNN, spec, seed=1)
    path.write_bytes(changed.tobytes())
    description = tmp_path / "a.bin.json"
    content = json.loads(description.read_text())
    content["crc32"] = f"{zlib.crc32(path.read_bytes()):08x}"
    description.write_text(json.dumps(content))
    assert some.same_bits(rl.load(path)["lstm"].tensors, changed)


def test_json_with_the_spec_alone(tmp_path):
    """A spec that a program wrote itself: lstm.bin with lstm.json, Spec.to_dict() alone."""
    spec = SPECS["float32"]
    flat = some.random_weights(CUDNN, spec)
    flat.tofile(tmp_path / "lstm.bin")
    with pytest.raises(rl.SpecError, match=r"neither lstm.bin.json nor lstm.json beside it"):
        rl.load(tmp_path / "lstm.bin")
    assert rl.load(tmp_path / "lstm.bin", spec, layout="cudnn")["lstm"].spec == spec
    (tmp_path / "lstm.json").write_text(json.dumps(spec.to_dict()))
    assert some.same_bits(rl.load(tmp_path / "lstm.bin")["lstm"].tensors, flat)
    (tmp_path / "lstm.json").write_text(json.dumps({**spec.to_dict(), "hidden_size": 4}))
    with pytest.raises(rl.LayoutError, match="elements"):
        rl.load(tmp_path / "lstm.bin")
