"""convert, run, identify, diagnose and map: what they print, and what they write."""

import io
import json
import os
import re
import struct
import threading

import numpy as np
import pytest
import torch
from cli.files import GRU, LSTM, NEAR, SPEC, X, with_gates
from oracles.frameworks import KERAS_NOISE, keras
from oracles.some import normal_weights, prefixed, same_bits
from safetensors.numpy import load_file, save_file
from svgs import check

import rnnlayout as rl

# -------------------------------------------------------------------------------------- convert


def test_convert_says_what_it_does_and_does_it(rnnlayout, folder):
    before, told = sorted(os.listdir()), "enc: rounds: 8 sums of two non-zero biases\n"
    command = "convert enc.npz keras.safetensors --to keras"
    dry = told + "keras.safetensors: nothing written\n"
    assert rnnlayout(f"{command} --dry-run") == (0, "", dry) and sorted(os.listdir()) == before
    assert rnnlayout(command) == (0, "", told + "keras.safetensors: written\n")
    found, others = load_file("keras.safetensors"), dict(np.load("enc.npz"))
    wanted = prefixed("enc", rl.convert(LSTM, to="keras"))
    wanted |= {name: others[name] for name in ("embedding", "out")}
    assert found.keys() == wanted.keys() and same_bits({k: found[k] for k in wanted}, wanted)
    code, out, err = rnnlayout("convert enc.npz flat.bin --to cudnn --prefix=enc")
    assert (code, out) == (0, "")
    assert err == "enc: exact\nleft out: embedding, out\nflat.bin: written\n"
    assert (folder / "flat.bin").read_bytes() == rl.pack(LSTM).tobytes()


def test_a_row_in_a_file_is_a_layout(rnnlayout, folder):
    row = {"gates": {"lstm": "ogfi"}, "tensors": {
        "a": "W (I, G*H)", "b": "R (H, G*H)", "c": "bW (G*H)", "d": "bR (G*H)",
    }}  # fmt: skip
    (folder / "mine.json").write_text(json.dumps(row))
    mine = normal_weights(rl.layout(row), rl.Spec("lstm", 5, 3))
    np.savez("mine.npz", **prefixed("enc", mine))
    assert rnnlayout("convert mine.npz torch.safetensors --layout mine.json --to torch")[0] == 0
    module = load_file("torch.safetensors")
    gates = [np.split(mine["a"], 4, axis=1)["ogfi".index(gate)] for gate in "ifgo"]
    assert np.array_equal(module["enc.weight_ih_l0"], np.hstack(gates).T)
    assert rnnlayout("convert torch.safetensors back.npz --layout torch --to mine.json")[0] == 0
    back = rl.load("back.npz")["enc"]
    assert back.layout == rl.layout(row) and same_bits(dict(back), mine)
    (folder / "wrong.json").write_text('{"gates": {"lstm": "ogfx"}}')
    for name, text in (
        ("wrong.json", "wrong.json: gates.lstm: 'ogfx', need the letters ifgo"),
        ("none.json", "none.json: No such file"),
    ):
        code, out, err = rnnlayout(f"inspect mine.npz --layout {name}")
        assert (code, out) == (2, "") and text in err


@pytest.mark.parametrize("count, more", [(10, ""), (13, " and 3 more")])
def test_ten_names_of_what_is_left_out(rnnlayout, folder, count, more):
    others = [f"other{k:02}" for k in range(count)]
    np.savez("many.npz", **prefixed("enc", LSTM), **dict.fromkeys(others, np.arange(5)))
    code, _, err = rnnlayout("convert many.npz flat.bin --to cudnn --prefix=enc")
    assert code == 0 and f"\nleft out: {', '.join(others[:10])}{more}\n" in err


def test_convert_into_a_model(rnnlayout, folder):
    """Each RNN gets the layout that it has in the model; the rest is unchanged."""
    model = prefixed("dec", rl.convert(LSTM, to="keras")) | prefixed("gru", GRU)
    model |= {"embedding": np.arange(5)}
    save_file(model, "model.safetensors")
    new = prefixed("dec", rl.convert(normal_weights("torch", SPEC, 5), to="onnx"))
    np.savez("new.npz", **new, **prefixed("more", LSTM))
    command = "convert new.npz out.safetensors --into model.safetensors"
    told = (
        "dec: rounds: 8 sums of two non-zero biases\n"
        "note: the file lacks Keras's config: activation tanh, recurrent activation sigmoid,"
        " go_backwards=False, no mask assumed; for others pass --activation,"
        " --recurrent-activation or set weights.config in Python\n"
        "note: the file does not record time_major: x of its Keras layers is taken as (N, T, I);"
        " with time_major=True run them with batch_first=False in Python\n"
        "note: gru of model.safetensors is unchanged\nleft out: more\n"
    )
    assert rnnlayout(f"{command} --dry-run")[2] == f"{told}out.safetensors: nothing written\n"
    assert rnnlayout(command) == (0, "", f"{told}out.safetensors: written\n")
    found = load_file("out.safetensors")
    wanted = rl.convert({k.removeprefix("dec."): v for k, v in new.items()}, to="keras")
    assert found.keys() == model.keys()
    assert all(same_bits(found[k], wanted.get(k.removeprefix("dec."), model[k])) for k in model)


class Screen(io.StringIO):
    """A terminal, and whether progress was shown on it."""

    def __init__(self):
        super().__init__()
        self.shown = threading.Event()

    def isatty(self):
        return True

    def write(self, text):
        super().write(text)
        if text.startswith("\r"):
            self.shown.set()


@pytest.mark.parametrize(
    "command", [
        "convert enc.npz o.onnx --to onnx --force", "inspect enc.npz", "verify enc.npz enc.npz",
        "diagnose enc.npz --like enc.npz",
    ],
)  # fmt: skip
def test_progress_is_for_who_waits(folder, monkeypatch, command):
    from rnnlayout._cli import main as _cli, terminal
    from rnnlayout._files.tensor_sets.file_limits import InputFile

    opened = InputFile.__init__

    def open_slowly(*arguments):
        screen.shown.wait(30)  # seconds, if it is never shown
        opened(*arguments)

    monkeypatch.setattr("sys.stderr", screen := Screen())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal, "_AFTER", 1000)
    assert _cli.main(command.split()) == 0 and not screen.shown.is_set()
    monkeypatch.setattr("sys.stderr", screen := Screen())
    monkeypatch.setattr(terminal, "_AFTER", 0)
    monkeypatch.setattr(terminal, "_EVERY", 1000)  # the line is written once
    monkeypatch.setattr(InputFile, "__init__", open_slowly)
    assert _cli.main(command.split()) == 0
    line = re.match(rf"\r({command.split()[0]} +\d+ s)\r( +)\r", screen.getvalue())
    assert len(line[1]) == len(line[2])


def test_progress_of_a_conversion_is_in_bytes(folder, monkeypatch):
    from rnnlayout._cli import main as _cli, terminal

    line = terminal.ProgressLine("convert")
    line.report(412_000_000, 958_000_000)
    assert str(line) == "convert  43 %  412 of 958 MB"
    monkeypatch.setattr("sys.stderr", Screen())
    monkeypatch.setenv("TERM", "xterm")
    reports = []
    monkeypatch.setattr(terminal.ProgressLine, "report", lambda line, *sizes: reports.append(sizes))
    assert _cli.main(["convert", "enc.npz", "o.safetensors", "--to", "onnx", "--force"]) == 0
    done, total = reports[-1]
    assert done == total > 0


# ------------------------------------------------------------------------------------------ run

RUN = "run lstm.npz --input x.npy --output new.npy --force"


def test_run_says_what_it_runs_and_saves_its_results(rnnlayout, folder):
    y, (h_n, c_n) = rl.forward(X, LSTM)
    code, out, err = rnnlayout(f"{RUN} --states s.npz")
    assert (code, out, err) == (0, "", f"lstm: {SPEC}, on cpu: y (5, 4, 2)\n")
    assert np.array_equal(np.load("new.npy"), y)
    states = np.load("s.npz")
    assert np.array_equal(states["h_n"], h_n) and np.array_equal(states["c_n"], c_n)
    np.save("x.npy", X.swapaxes(0, 1).astype(">f4"))
    y, _ = rl.forward(X, LSTM, lengths=[5, 0, 3, 1])
    more = "--batch-first --lengths 5,0,3,1 --device auto --only lstm"
    assert rnnlayout(f"{RUN} {more}")[0] == 0
    assert np.array_equal(np.load("new.npy"), y.swapaxes(0, 1))


def test_masks(rnnlayout, folder):
    x = X.copy()
    x[1:3, 1] = x[0, 0] = 7
    mask = (x != 7).any(-1)
    np.save("x.npy", x)
    np.save("m.npy", mask)
    y, _ = rl.forward(x, LSTM, mask=mask)
    for option in ("--mask m.npy", "--mask-value 7"):
        assert rnnlayout(f"{RUN} {option} --time-first")[0] == 0
        assert np.array_equal(np.load("new.npy"), y) and not y[1:3, 1].any()
    code, _, err = rnnlayout(f"{RUN} --mask m.npy --mask-value 7")
    assert code == 2 and "not allowed with" in err
    code, _, err = rnnlayout(f"{RUN} --mask m.npy --lengths 5,5,5,5")
    assert code == 3 and "omit --lengths" in err
    weights = rl.Weights(LSTM).to("keras")
    weights.config = {"mask": "Embedding(mask_zero=True)"}
    rl.save("masked.npz", weights)
    line = "used with    mask 'Embedding(mask_zero=True)'\n"
    assert line in rnnlayout("inspect masked.npz")[1]


@pytest.mark.filterwarnings("default:the source")
def test_run_names_what_is_assumed_in_one_line(rnnlayout, folder):
    _, _, err = rnnlayout(RUN)
    warning, _ = err.splitlines()
    assert warning.startswith("warning: lstm: the source does not record the order of the axes")
    assert "--time-first" in warning and "--batch-first" in warning
    for option in ("--time-first", "--batch-first"):
        np.save("x.npy", X if option == "--time-first" else X.swapaxes(0, 1))
        assert rnnlayout(f"{RUN} {option}")[2].startswith("lstm: lstm")
    np.savez("keras.npz", **rl.convert(LSTM, to="keras"))
    _, _, err = rnnlayout(RUN.replace("lstm.npz", "keras.npz") + " --batch-first --activation tanh")
    warning, _ = err.splitlines()  # and no note beside the warning
    assert "record recurrent activation sigmoid, go_backwards=False, no mask, which" in warning


def test_run_says_what_inspect_says(rnnlayout, folder):
    """The settings that it applied, and the notes of the file."""
    model = torch.nn.utils.parametrizations.weight_norm(torch.nn.GRU(3, 2), "weight_hh_l0")
    torch.save(model.state_dict(), "m.pt")
    code, _, err = rnnlayout(RUN.replace("lstm.npz", "m.pt"))
    assert code == 0 and "\nnote: weight_hh_l0: weight norm" in err
    weights = rl.Weights(normal_weights("torch", SPEC.replace(bidirectional=True)))
    weights.config = {"go_backwards": True, "merge_mode": "sum"}
    rl.save("m.npz", weights)
    code, _, err = rnnlayout(RUN.replace("lstm.npz", "m.npz"))
    assert code == 0 and err.endswith("lstm: used with go_backwards=True, merge_mode='sum'\n")


def test_x_is_rounded_only_if_dtype_says_so(rnnlayout, folder):
    for x in (X.astype("f8"), np.asfortranarray(X.astype("f2")), np.arange(60).reshape(5, 4, 3)):
        np.save("x.npy", x)
        assert rnnlayout(RUN)[0] == 0
        assert np.array_equal(np.load("new.npy"), rl.forward(x.astype("f4"), LSTM)[0])
    x = np.nextafter(X.astype("f8"), 10)
    np.save("x.npy", x)
    code, _, err = rnnlayout(RUN)
    assert code == 3 and "cannot represent every value of it" in err
    assert rnnlayout(f"{RUN} {err.strip().rpartition('pass ')[2]}")[0] == 0
    assert np.array_equal(np.load("new.npy"), rl.forward(X, LSTM)[0])
    assert rnnlayout(f"{RUN} --dtype float64")[0] == 0
    double = rl.Weights(LSTM, dtype="float64")
    assert np.array_equal(np.load("new.npy"), rl.forward(x, double)[0])


@KERAS_NOISE
def test_run_applies_the_settings_and_axes_of_the_file(rnnlayout, folder):
    layer = keras.layers.GRU(2, go_backwards=True, return_sequences=True, return_state=True)
    y, h_n = map(keras.ops.convert_to_numpy, layer(X))
    keras.Sequential([keras.layers.Input(X.shape[1:]), layer]).save("m.keras")
    command = f"{RUN.replace('lstm.npz', 'm.keras')} --states s.npz"
    assert rnnlayout(command)[0] == 0  # the file is batch first
    found = np.load("new.npy")
    np.testing.assert_allclose(found, y, **NEAR)
    np.testing.assert_allclose(np.load("s.npz")["h_n"][0], h_n, **NEAR)
    np.save("x.npy", X.swapaxes(0, 1))
    assert rnnlayout(f"{command} --time-first")[0] == 0
    assert np.array_equal(np.load("new.npy").swapaxes(0, 1), found)


# ------------------------------------------------------------------------------------- identify

IDENTIFY = "identify {} --input x.npy --output y.npy"


def test_identify(rnnlayout, folder):
    """Also arrays without names, one RNN of two, a file whose name does not show its format, and
    what begins from a state."""
    np.savez("arrays.npz", *LSTM.values())
    both = prefixed("a", normal_weights("torch", SPEC, 1)) | prefixed("b", LSTM)
    np.savez("both.npz", **both)
    rl.save("m.onnx", rl.Weights(LSTM).to("onnx"))
    for file in ("arrays.npz", "both.npz", "flat.npy", "m.onnx"):
        code, out, err = rnnlayout(IDENTIFY.format(file))
        assert (code, err) == (0, "") and out.startswith("lstm in layout ")
        under = ", under 'b'" if file == "both.npz" else ""
        assert f"sigmoid{under}, x is (T, N, I): agrees with y to" in out
    (folder / "m.onnx").rename("w.pt")
    for format, code in ("", 3), (" --format onnx", 0), (" --format h5", 3):
        found, _, err = rnnlayout(IDENTIFY.format("w.pt") + format)
        assert found == code and ("w.pt" in err) == bool(code)
    (folder / "w.data").write_bytes(b"?")
    assert "if it is one, pass --format" in rnnlayout(IDENTIFY.format("w.data"))[2]
    with pytest.raises(rl.SpecError, match=r"^format is for a file, not for a list: omit format=$"):
        rl.identify([np.ones(3)], np.ones((2, 1)), np.ones((2, 1)), format="npz")

    h, c = np.random.default_rng(0).normal(size=(2, 1, 4, 2)).astype("f4")
    np.save("h.npy", h)
    np.save("c.npy", c)
    np.save("y.npy", rl.forward(X, LSTM, state=(h, c))[0])
    command = IDENTIFY.format("both.npz")
    assert rnnlayout(command)[0] == 1
    assert rnnlayout(f"{command} --state h.npy c.npy")[0] == 0


def test_what_was_identified_is_saved(rnnlayout, folder):
    y = np.load("y.npy")
    np.save("y.npy", y + 1e-3 * np.random.default_rng(0).random(y.shape, "f4"))
    command = f"{IDENTIFY.format('lstm.npz')} --save new.safetensors"
    code, out, err = rnnlayout(command)
    assert (code, err) == (1, "") and not (folder / "new.safetensors").exists()
    assert "pass --atol, such as 0.01" in out
    code, _, err = rnnlayout(f"{command} --atol 0.01")
    assert code == 0 and err == "new.safetensors: written\n"
    assert [*rl.load("new.safetensors").values()] == [rl.Weights(LSTM)]


# ------------------------------------------------------------------------------------- diagnose


def pasted(rnnlayout, said):
    """Run the command with which a report ends, and return its last words."""
    line = said.splitlines()[-1].removeprefix("correct: rnnlayout ")
    assert rnnlayout(line)[0] == 0
    return line


def test_the_report_and_the_fix(rnnlayout, folder):
    np.save("wrong.npy", rl.pack(with_gates(LSTM, (0, 2, 1, 3))))
    code, said, words = rnnlayout("diagnose wrong.npy --like lstm.npz --fix out.npy")
    assert code == 1 and words == "out.npy: written\n"
    assert said.splitlines()[0] == "gates f and g swapped"
    assert pasted(rnnlayout, said) == "convert lstm.npz right-wrong.npy --to cudnn"
    for right in ("right-wrong.npy", "out.npy"):
        told = rnnlayout(f"diagnose {right} --like lstm.npz")
        assert told == (0, "the buffer is right\n", "")


def test_what_the_fix_lacks_is_said(rnnlayout, folder):
    """Of a sum of two biases, how it was split: a GRU's gate n needs that. Nothing is made of other
    weights."""
    summed = GRU | {"bias_ih_l0": GRU["bias_ih_l0"] + GRU["bias_hh_l0"],
                    "bias_hh_l0": 0 * GRU["bias_hh_l0"]}  # fmt: skip
    np.save("summed.npy", rl.pack(summed))
    code, said, words = rnnlayout("diagnose summed.npy --like two.npz --prefix a --fix out.npy")
    assert code == 1 and "\ncannot be restored: how " in said
    assert words == "out.npy: written, without what cannot be restored\n"
    np.save("other.npy", rl.pack(normal_weights("torch", SPEC, 1)))
    code, said, _ = rnnlayout("diagnose other.npy --like lstm.npz")
    assert code == 1 and said.startswith("none of the 2 matrices was found")
    code, _, words = rnnlayout("diagnose other.npy --like lstm.npz --fix new.npy")
    assert code == 3 and "cannot be repaired" in words and not (folder / "new.npy").exists()


def test_a_file_of_tensors_is_repaired_as_it_was_given(rnnlayout, folder):
    """With its other tensors, under its own names; and the command to paste does the same."""
    tensors = rl.convert(with_gates(LSTM, (0, 2, 1, 3)), to="keras")
    tensors = {**rl.convert(LSTM, to="keras"), "kernel": tensors["kernel"]}
    np.savez("my model.npz", head=np.ones(3, "f4"), **prefixed("enc", tensors))
    code, said, words = rnnlayout("diagnose 'my model.npz' --like lstm.npz --fix out.npz")
    assert code == 1 and words == "out.npz: written\n"
    assert "  kernel (layer 0, input matrix): gates i g f o\n" in said
    pasted(rnnlayout, said)
    for made in ("out.npz", "right-my model.npz"):
        assert {*np.load(made)} >= {"head", "enc.kernel"}
        assert rnnlayout("verify", made, "lstm.npz")[0] == 0


def test_a_file_in_another_dtype_is_not_the_file_to_copy(rnnlayout, folder):
    """The command to paste wrote float16 again."""
    np.savez("half.npz", **{name: x.astype("f2") for name, x in LSTM.items()})
    code, said, _ = rnnlayout("diagnose half.npz --like lstm.npz")
    assert code == 1 and said.startswith("the values are float16, expected float32\n")
    pasted(rnnlayout, said)
    assert rnnlayout("verify right-half.npz lstm.npz")[0] == 0


def test_hints_are_in_the_command_to_paste(rnnlayout, folder):
    gru = normal_weights("onnx", rl.Spec("gru", 3, 2))
    np.savez("gru.npz", **prefixed("a", gru))
    right = rl.Weights(gru, reset="after").pack()
    np.save("zeros.npy", 0 * right)
    said = rnnlayout("diagnose zeros.npy --like gru.npz --prefix a --reset after")[1]
    assert pasted(rnnlayout, said).endswith("right-zeros.npy --to cudnn --prefix a --reset after")
    assert np.load("right-zeros.npy").tobytes() == right.tobytes()


# ------------------------------------------------------------------------------------------ map

TEXT = str(SPEC)


def test_map_in_letters(rnnlayout, folder, monkeypatch):
    """Of a file, of a spec; colours and width are the terminal's."""
    letters = str(rl.picture(SPEC, "torch")).partition("\n")[2]
    assert rnnlayout("map enc.npz") == (0, f"enc: {TEXT}\n{letters}\n", "")
    for options, layouts in (
        ([], []), (["--layout", "keras"], ["keras"]),
        (["--layout", "keras", "--to", "onnx"], ["keras", "onnx"]),
    ):  # fmt: skip
        drawn = f"{rl.picture(SPEC, *layouts)}\n"
        assert rnnlayout("map", TEXT, *options) == (0, drawn, "")
    assert drawn.endswith(rl.explain(SPEC, "keras", "onnx").partition("\n")[2] + "\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert rnnlayout("map", TEXT)[1] == rl.picture(SPEC).text(79, colours=True) + "\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert rnnlayout("map", TEXT)[1] == f"{rl.picture(SPEC)}\n"


def test_map_writes_files(rnnlayout, folder):
    code, said, told = rnnlayout("map lstm.npz --to cudnn --width 500 --svg a.svg --png a.png")
    assert (code, said, told) == (0, "", "a.svg: written\na.png: written\n")
    assert len(check((folder / "a.svg").read_text()).blocks) == 2 * 16
    assert (folder / "a.png").read_bytes()[16:20] == struct.pack(">I", 1000)


def test_map_names_what_cannot_be_read(rnnlayout, folder):
    """Of a GRU without biases the arrays of ONNX do not show where the reset gate acts."""
    unclear = rl.convert(normal_weights("torch", rl.Spec("gru", 5, 3, bias=False)), to="onnx")
    np.savez("one.npz", **prefixed("a", unclear))
    code, out, err = rnnlayout("map one.npz")
    assert (code, out) == (3, "") and "--reset" in err
    np.savez("both.npz", **prefixed("a", unclear), **prefixed("b", GRU))
    code, out, err = rnnlayout("map both.npz")
    assert code == 0 and out.startswith("b: gru") and "a: not drawn: " in err and "--reset" in err
    assert rnnlayout("map both.npz --reset after")[2] == ""


def test_verify_and_diagnose_draw_the_difference(rnnlayout, folder):
    wrong = LSTM["weight_hh_l0"].copy()
    wrong[2:4] += 1
    np.savez("b.npz", **LSTM | {"weight_hh_l0": wrong})
    for command, words, gates in (
        ("verify lstm.npz b.npz", " differ", "f"),
        ("diagnose b.npy --like lstm.npz", "values are in another place", "fg"),
    ):
        np.save("b.npy", rl.pack(LSTM | {"weight_hh_l0": with_gates(LSTM, (0, 2, 1, 3))
                                         ["weight_hh_l0"]}))  # fmt: skip
        code, _, told = rnnlayout(f"{command} --svg d.svg --force")
        assert (code, told) == (1, "d.svg: written\n")
        blocks = [block.words for block in check((folder / "d.svg").read_text()).blocks]
        wanted = [f"layer 0, R of gate {gate}" for gate in gates]
        assert [title.partition(":")[0] for title in blocks if words in title] == wanted
