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
from cli.files import LSTM, SPEC
from oracles.frameworks import onnx_model
from oracles.some import normal_weights, prefixed

import rnnlayout as rl

SCHEMAS = {path.name: path for path in (files("rnnlayout") / "schemas").iterdir()}
# Programs rely on these schemas. A change that breaks one is a new number in a new file; added keys
# change only the digest.
PINNED = {
    "doctor-2.json": "cc307ebb9e2f",
    "inspect-2.json": "ab5a4a4b09f5",
    "convert-1.json": "e781bf4724a6",
    "run-1.json": "d35d77e714c8",
    "layouts-1.json": "6723d29ae8a6",
    "verify-1.json": "38f59c042b41",
    "diagnose-1.json": "1c81e62725c9",
    "identify-1.json": "aeed98f7ac5e",
}


def closed(schema):
    """Return the schema with all keys forbidden that it does not name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return {key: closed(part) for key, part in schema.items()} | more


GOOD = prefixed("good", LSTM)


@pytest.fixture
def folder(folder):
    """Files of the LSTM in more formats, and a y that it does not make."""
    for name in ("a.safetensors", "a.msgpack", "flat.bin"):
        rl.save(name, rl.Weights(LSTM))
    np.save("other.npy", np.load("y.npy")[::-1] ** 2)
    return folder


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


def test_schemas_are_pinned():
    found = {}
    for name, path in SCHEMAS.items():
        schema = json.loads(path.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["properties"]["schema"]["const"] == f"rnnlayout.{name[:-7]}/{name[-6]}"
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    assert found == PINNED


A = "a.safetensors"
CONVERTED = {"name": "lstm", "grade": "exact", "reason": "", "rounded_sums": 0, "settings": ""}
IDENTIFIED = {"found": True, "tied": 1, "saved": None}
COMMANDS = {  # and a part of what they tell
    "inspect": (["inspect", A], {}),
    "convert": (["convert", A, "new.npz", "--to", "onnx"],
                {"written": True, "converted": [CONVERTED]}),
    "convert, into": (["convert", A, "new.msgpack", "--into", "a.msgpack"], {"written": True}),
    "verify": (["verify", A, "a.msgpack"], {"equal": True, "only_b": []}),
    "diagnose": (["diagnose", "flat.npy", "--like", A], {"right": True, "mistakes": []}),
    "diagnose, .bin": (["diagnose", "flat.bin", "--like", A], {"right": True}),
    "diagnose, tensors": (["diagnose", "a.msgpack", "--like", A], {"right": True}),
    "identify": (["identify", A, "--input", "x.npy", "--output", "y.npy"], IDENTIFIED),
    "identify, .npy": (["identify", "flat.npy", "--input", "x.npy", "--output", "y.npy"], {}),
    "map": (["map", A, "--to", "onnx"], {}),
    "run": (["run", A, "--input", "x.npy", "--output", "new.npy"],
            {"shape": [5, 4, 2], "device": "cpu", "states": None}),
}  # fmt: skip


@pytest.mark.parametrize("command, expected", COMMANDS.values(), ids=COMMANDS)
def test_a_command_maps_no_file_if_told_so(
    command, expected, rnnlayout, check, folder, monkeypatch
):
    mapped = []

    class Map(mmap.mmap):
        def __new__(cls, *arguments, **more):
            mapped.append(arguments)
            return super().__new__(cls, *arguments, **more)

    monkeypatch.setattr(mmap, "mmap", Map)
    code, _, words = rnnlayout(*command, "--no-mmap")
    assert (code, mapped) == (0, []), words
    for made in folder.glob("new*"):
        made.unlink()
    if command[0] == "map":
        assert rnnlayout(*command)[0] == 0
    else:
        told = check(*command)
        assert told | expected == told
        assert "spec" not in told or rl.Spec.from_dict(told["spec"]) == SPEC
    assert mapped


def test_doctor_and_layouts(check):
    told = check("doctor")
    assert {one["name"]: one["version"] for one in told["packages"]}["onnx"] == version("onnx")
    gpu = told["gpu"]
    assert [bool(gpu[key]) for key in ("why_not", "hint")] == [not gpu["usable"]] * 2
    assert [info["name"] for info in check("layouts")["layouts"]] == list(rl.layouts())


@pytest.mark.parametrize(
    "spec, biases",
    [(rl.Spec("lstm", 3, 2, 2, True), ["bW", "bR"]), (rl.Spec("lstm", 3, 4, proj_size=2), None),
     (rl.Spec("gru", 3, 2, bias="none", dtype="float64"), []),
     (rl.Spec("lstm", 3, 2, peepholes=True), None)],
)  # fmt: skip
def test_inspect(check, folder, spec, biases):
    weights = normal_weights("onnx" if spec.peepholes else "torch", spec)
    np.savez("m.npz", **weights)
    ((entry,),) = [one["entries"] for one in check("inspect", "m.npz")["files"]]
    assert rl.Spec.from_dict(entry["spec"]) == spec and biases in (None, entry["biases"])
    assert entry["peepholes"] == spec.peepholes
    assert spec.peepholes or entry["num_params"] == spec.num_params
    assert entry["tensors"] == [{"name": n, "shape": [*a.shape]} for n, a in weights.items()]


def test_inspect_of_an_infinite_setting_and_of_what_is_refused(check, rnnlayout, folder):
    """JSON has no infinity."""
    model = onnx_model(normal_weights("onnx", SPEC), SPEC, clip=np.inf)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    (told,) = check("inspect", "m.onnx")["files"]
    assert told["entries"][0]["config"] == {"clip": "inf"}
    bad = prefixed("bad", LSTM | {"weight_hh_l0": LSTM["weight_hh_l0"][:, :1]})
    np.savez("m.npz", **GOOD, **bad)
    (told,) = check("inspect", "m.npz")["files"]
    assert [entry["name"] for entry in told["entries"]] == ["good"]
    (refused,) = told["refused"]
    assert (refused["name"], refused["error"]) == ("bad", "LayoutError")
    assert "weight_hh_l0" in refused["reason"]
    code, out, err = rnnlayout("inspect m.npz")
    assert (code, err) == (0, "") and "\n\nbad\n  refused  bad: weight_hh_l0: shape" in out


def test_verify_and_a_conversion_that_rounds(check, folder):
    other = prefixed("other", LSTM | {"bias_ih_l0": np.full(8, np.inf, "f4")})
    np.savez("a.npz", **GOOD, **prefixed("other", LSTM))
    np.savez("b.npz", **GOOD, **other, **prefixed("more", LSTM))
    told = check("verify", "a.npz", "b.npz", codes=(1,))
    assert [pair["equal"] for pair in told["pairs"]] == [True, False]
    assert told["only_b"] == ["more"] and told["pairs"][1]["blocks"][0]["largest"] == "inf"
    told = check("convert", A, "new.npz", "--to", "keras", "--dry-run")
    assert told["written"] is (folder / "new.npz").exists() is False
    assert told["converted"][0]["rounded_sums"] == 8


def test_diagnose(check, folder):
    right = np.load("flat.npy")
    i, f, rest = np.split(right, [6, 12])
    np.save("wrong.npy", np.concatenate([f, i, rest]))
    told = check("diagnose", "wrong.npy", "--like", A, "--fix", "fixed.npy", codes=(1,))
    (one,) = told["mistakes"]
    assert one["where"] == [{"layer": 0, "direction": 0, "role": "W"}] and told["sure"]
    assert np.load("fixed.npy").tobytes() == right.tobytes() and told["fixed"] == "fixed.npy"
    np.save("wrong.npy", right[::-1] ** 2)
    assert not check("diagnose", "wrong.npy", "--like", A, codes=(1,))["same"]


def test_identify(check, folder):
    np.savez("m.npz", *LSTM.values())
    command = ["identify", "m.npz", "--input", "x.npy", "--output"]
    told = check(*command, "y.npy", "--save", "new.npz")
    (one,) = told["candidates"]
    assert "torch" in one["layouts"] and rl.Spec.from_dict(one["spec"]) == SPEC
    assert told["saved"] == "new.npz"
    told = check(*command, "other.npy", codes=(1,))
    assert not told["found"] and told["saved"] is None and told["candidates"][0]["error"] > 0.01
