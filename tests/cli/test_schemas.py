"""What every command that reads a file has: --no-mmap and --json. The output of --json follows
schemas that do not change."""

import hashlib
import json
import mmap
from importlib.metadata import version
from importlib.resources import files

import jsonschema
import numpy as np
import pytest
from oracles.frameworks import onnx_model
from oracles.some import normal_weights

import rnnlayout as rl

SCHEMAS = {path.name: path for path in (files("rnnlayout") / "schemas").iterdir()}
# Programs rely on these schemas. A change that breaks one is a new number in a new file; added keys
# change only the digest.
PINNED = {
    "doctor-2.json": "fefe0883eb74",
    "inspect-2.json": "ed90af1542e0",
    "convert-1.json": "e781bf4724a6",
    "run-1.json": "d35d77e714c8",
    "layouts-1.json": "6723d29ae8a6",
    "verify-1.json": "d0e41153a374",
    "diagnose-1.json": "1c81e62725c9",
    "identify-1.json": "4792b2ad7461",
}


def closed(schema):
    """Return the schema with all keys forbidden that it does not name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return {key: closed(part) for key, part in schema.items()} | more


@pytest.fixture
def check(rnnlayout):
    """Run a command with --json and return its output, checked against the schema."""

    def run(*arguments, codes=(0,)):
        code, out, err = rnnlayout(*arguments, "--json")
        assert code in codes and err == ""
        told = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        name, _, version = told["schema"].removeprefix("rnnlayout.").partition("/")
        schema = json.loads(SCHEMAS[f"{name}-{version}.json"].read_text())
        jsonschema.Draft202012Validator(closed(schema)).validate(told)
        return told

    return run


def saved(path, *rnns):
    np.savez(path, **{f"{n}.{key}": value for n, rnn in enumerate(rnns)
                      for key, value in rnn.items()})  # fmt: skip
    return path


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name):
    schema = json.loads(SCHEMAS[name].read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"]["const"] == f"rnnlayout.{name[:-7]}/{name[-6]}"


def test_schemas_are_pinned():
    found = {
        name: hashlib.sha256(path.read_bytes()).hexdigest()[:12] for name, path in SCHEMAS.items()
    }
    assert found == PINNED


COMMANDS = {
    "inspect": ["inspect", "a.safetensors"],
    "convert": ["convert", "a.safetensors", "new.npz", "--to", "onnx"],
    "convert, into": ["convert", "a.safetensors", "new.msgpack", "--into", "a.msgpack"],
    "verify": ["verify", "a.safetensors", "a.msgpack"],
    "diagnose": ["diagnose", "flat.npy", "--like", "a.safetensors"],
    "diagnose, .bin": ["diagnose", "flat.bin", "--like", "a.safetensors"],
    "diagnose, tensors": ["diagnose", "a.msgpack", "--like", "a.safetensors"],
    "identify": ["identify", "a.safetensors", "--input", "x.npy", "--output", "y.npy"],
    "identify, .npy": ["identify", "flat.npy", "--input", "x.npy", "--output", "y.npy"],
    "map": ["map", "a.safetensors", "--to", "onnx"],
    "run": ["run", "a.safetensors", "--input", "x.npy", "--output", "new.npy"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_maps_no_file_if_told_so(command, rnnlayout, check, tmp_path, monkeypatch):
    weights = rl.Weights(normal_weights("torch", rl.Spec("lstm", 5, 3)))
    for suffix in (".safetensors", ".msgpack"):
        rl.save(tmp_path / f"a{suffix}", {"lstm": weights})
    for suffix in (".npy", ".bin"):
        rl.save(tmp_path / f"flat{suffix}", weights)
    x = np.random.default_rng(0).standard_normal((6, 2, 5)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", weights.rnn()(x)[0])
    mapped = []

    class Map(mmap.mmap):
        def __new__(cls, *arguments, **more):
            mapped.append(arguments)
            return super().__new__(cls, *arguments, **more)

    monkeypatch.setattr(mmap, "mmap", Map)
    monkeypatch.chdir(tmp_path)
    code, _, words = rnnlayout(*command, "--no-mmap")
    assert (code, mapped) == (0, []), words
    for made in tmp_path.glob("new*"):
        made.unlink()
    if command[0] == "map":
        assert rnnlayout(*command)[0] == 0
    else:
        check(*command)
    assert mapped


def test_doctor_and_layouts(check):
    told = check("doctor")
    assert {one["name"]: one["version"] for one in told["packages"]}["onnx"] == version("onnx")
    gpu = told["gpu"]
    assert [bool(gpu[key]) for key in ("why_not", "hint")] == [not gpu["usable"]] * 2
    assert [info["name"] for info in check("layouts")["layouts"]] == list(rl.layouts())


def test_inspect(check, tmp_path):
    specs = [
        rl.Spec("lstm", 3, 2, 2, True),
        rl.Spec("gru", 3, 2, bias="none", dtype="float64"),
        rl.Spec("lstm", 3, 4, proj_size=2),
    ]
    path = saved(tmp_path / "m.npz", *(normal_weights("torch", s) for s in specs))
    (told,) = check("inspect", path)["files"]
    assert [rl.Spec.from_dict(entry["spec"]) for entry in told["entries"]] == specs
    assert [entry["biases"] for entry in told["entries"]] == [["bW", "bR"], [], ["bW", "bR"]]
    peeping = rl.Spec("lstm", 3, 2, peepholes=True)
    path = saved(tmp_path / "p.npz", normal_weights("onnx", peeping))
    ((entry,),) = [file["entries"] for file in check("inspect", path)["files"]]
    assert rl.Spec.from_dict(entry["spec"]) == peeping and entry["peepholes"]
    assert told["entries"][1]["tensors"] == [
        {"name": "weight_ih_l0", "shape": [6, 3]}, {"name": "weight_hh_l0", "shape": [6, 2]}
    ]  # fmt: skip
    assert [entry["num_params"] for entry in told["entries"]] == [s.num_params for s in specs]


def test_inspect_of_an_infinite_setting(check, tmp_path):
    """JSON has no infinity."""
    spec = rl.Spec("lstm", 3, 2)
    model = onnx_model(normal_weights("onnx", spec), spec, clip=np.inf)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    (told,) = check("inspect", tmp_path / "m.onnx")["files"]
    assert told["entries"][0]["config"] == {"clip": "inf"}


def test_inspect_of_what_is_refused(check, rnnlayout, tmp_path):
    good = normal_weights("torch", rl.Spec("lstm", 3, 2))
    bad = {**good, "weight_hh_l0": good["weight_hh_l0"][:, :1]}
    path = saved(tmp_path / "m.npz", good, bad)
    (told,) = check("inspect", path)["files"]
    assert [entry["name"] for entry in told["entries"]] == ["0"]
    assert [(entry["name"], entry["error"]) for entry in told["refused"]] == [("1", "LayoutError")]
    assert "weight_hh_l0" in told["refused"][0]["reason"]
    code, out, err = rnnlayout("inspect", path)
    assert (code, err) == (0, "") and "\n\n1\n  refused  1: weight_hh_l0: shape" in out


def test_verify(check, tmp_path):
    good = normal_weights("torch", rl.Spec("lstm", 3, 2))
    other = {**good, "bias_ih_l0": np.full(8, np.inf, "f4")}
    a, b = saved(tmp_path / "a.npz", good, good), saved(tmp_path / "b.npz", good, other, good)
    assert check("verify", a, a)["equal"]
    told = check("verify", a, b, codes=(1,))
    assert [pair["equal"] for pair in told["pairs"]] == [True, False]
    assert told["only_b"] == ["2"] and told["pairs"][1]["blocks"][0]["largest"] == "inf"


def test_diagnose(check, tmp_path):
    like = normal_weights("torch", rl.Spec("lstm", 3, 2))
    np.savez(tmp_path / "like.npz", **like)
    right = rl.pack(like)
    np.save(tmp_path / "right.npy", right)
    i, f, rest = np.split(right, [6, 12])
    np.save(tmp_path / "wrong.npy", np.concatenate([f, i, rest]))
    np.save(tmp_path / "other.npy", right[::-1] ** 2)
    told = check("diagnose", tmp_path / "right.npy", "--like", tmp_path / "like.npz")
    assert told["right"] and told["mistakes"] == []
    fixed = tmp_path / "fixed.npy"
    told = check("diagnose", tmp_path / "wrong.npy", "--like", tmp_path / "like.npz",
                 "--fix", fixed, codes=(1,))  # fmt: skip
    (one,) = told["mistakes"]
    assert one["where"] == [{"layer": 0, "direction": 0, "role": "W"}] and told["sure"]
    assert np.load(fixed).tobytes() == right.tobytes() and told["fixed"] == str(fixed)
    told = check("diagnose", tmp_path / "other.npy", "--like", tmp_path / "like.npz", codes=(1,))
    assert not told["same"]


def test_identify(check, tmp_path):
    weights = normal_weights("torch", rl.Spec("lstm", 3, 2))
    np.savez(tmp_path / "m.npz", *weights.values())
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype("f4")
    y, _ = rl.forward(x, weights)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "other.npy", y[::-1] ** 2)
    files = [tmp_path / "m.npz", "--input", tmp_path / "x.npy", "--output"]
    told = check("identify", *files, tmp_path / "y.npy", "--save", tmp_path / "new.npz")
    assert told["found"] and told["tied"] == 1 and told["saved"] == str(tmp_path / "new.npz")
    (one,) = told["candidates"]
    assert "torch" in one["layouts"] and rl.Spec.from_dict(one["spec"]) == rl.Spec("lstm", 3, 2)
    told = check("identify", *files, tmp_path / "other.npy", codes=(1,))
    assert not told["found"] and told["saved"] is None and told["candidates"][0]["error"] > 0.01


def test_convert(check, tmp_path):
    source = saved(tmp_path / "m.npz", normal_weights("torch", rl.Spec("lstm", 3, 2)))
    target = tmp_path / "new.onnx"
    for more in (["--dry-run"], []):
        told = check("convert", source, target, "--to", "onnx", *more)
        assert told["written"] == target.exists() == (not more)
    exact = {"grade": "exact", "reason": "", "rounded_sums": 0, "settings": ""}
    assert told["converted"] == [{"name": "0", **exact}]
    told = check("convert", source, tmp_path / "new.npz", "--to", "keras")
    assert told["converted"][0]["rounded_sums"] == 8


def test_run(check, tmp_path):
    spec = rl.Spec("gru", 3, 2)
    source = saved(tmp_path / "m.npz", normal_weights("torch", spec))
    np.save(tmp_path / "x.npy", np.ones((5, 1, 3), "f4"))
    told = check("run", source, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert rl.Spec.from_dict(told["spec"]) == spec and told["shape"] == [5, 1, 2]
    assert told["device"] == "cpu" and told["states"] is None and (tmp_path / "y.npy").exists()
