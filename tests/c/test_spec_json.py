"""rnl_spec_from_json() reads what Python's reader of the JSON beside a .bin reads, and no more."""

import ctypes
import json
import random
import re
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_size_t, create_string_buffer
from dataclasses import fields
from itertools import product

import numpy as np
import pytest
from commands import ROOT
from oracles import some
from oracles.settings import BOTH, ONE, case_id, changing_cases, neutral_cases

import rnnlayout as rl

ABI = (ROOT / "cmake" / "abi.txt").read_text()
NAMES = {  # the order of the enums in rnnlayout.h
    "cell": ("lstm", "gru", "rnn_tanh", "rnn_relu"),
    "bias": ("double", "input", "recurrent", "none"),
    "reset": ("after", "before"),
    "recurrent_activation": ("sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"),
    "activation": ("tanh", "relu"),
    "dtype": ("float16", "bfloat16", "float32", "float64"),
}


def place(struct, field):
    """Return the place of a field in a struct of the header, or with "size" its size."""
    at = "size" if field == "size" else f"{field} at"
    return int(re.search(rf"^struct {struct} {at} (\d+)$", ABI, re.MULTILINE)[1])


class Reader:
    """The function of the C library."""

    def __init__(self, library):
        self._call = library.rnl_spec_from_json
        self._call.argtypes = [c_char_p, c_size_t, *[ctypes.c_void_p] * 3]
        self._sizes = [place(f"rnl_{name}", "size") for name in ("spec", "rnn_options", "error")]

    def __call__(self, text):
        """Return (Spec, clip or None), or (the status, the message) as an exception."""
        raw = text if isinstance(text, bytes) else text.encode()
        spec, options, err = map(create_string_buffer, self._sizes)
        if status := self._call(raw, len(raw), byref(spec), byref(options), byref(err)):
            text = err.raw[place("rnl_error", "text") :].partition(b"\0")[0].decode("ascii")
            raise (rl.SpecError if status == 1 else rl.LossyError)(text)
        return self._spec(spec), self._clip(options)

    def _spec(self, raw):
        found = {}
        for field in fields(rl.Spec):
            at = place("rnl_spec", field.name)
            kind = c_int64 if field.name.endswith(("_size", "_layers")) else c_int
            found[field.name] = kind.from_buffer(raw, at).value
            if field.name in NAMES:
                found[field.name] = NAMES[field.name][found[field.name]]
        return rl.Spec(**found)

    def _clip(self, raw):
        if not c_int.from_buffer(raw, place("rnl_rnn_options", "clips")).value:
            return None
        names = ("clip_low", "clip_high")
        return tuple(c_double.from_buffer(raw, place("rnl_rnn_options", n)).value for n in names)


@pytest.fixture(scope="module")
def read(c_build):
    library = ctypes.CDLL(str(c_build("release") / "librnnlayout.so"))
    library.rnl_version.restype = c_char_p
    assert library.rnl_version().decode() == rl.__version__
    return Reader(library)


def specs():
    """Yield valid specs: all names, then sizes at their limits."""
    for values in product(*NAMES.values()):
        named = dict(zip(NAMES, values, strict=True))
        try:
            yield rl.Spec(input_size=5, hidden_size=7, **named)
        except rl.SpecError:
            continue
    yield rl.Spec("lstm", 2**40, 3, 65536, bidirectional=True, proj_size=2, peepholes=True)
    yield rl.Spec("gru", 4, 4, skip_input=True)


def test_it_reads_every_spec_as_python_does(read):
    equal = [read(json.dumps(spec.to_dict())) == (spec, None) for spec in specs()]
    assert all(equal) and len(equal) > 200


def test_it_reads_what_save_writes(read, tmp_path):
    spec = rl.Spec("lstm", 5, 3, 2, bidirectional=True, proj_size=2, dtype="bfloat16")
    weights = rl.Weights(some.random_weights("cudnn", spec), spec)
    weights.config = {"cell_clip": 0.1, "stateful": True, "direction": "bidirectional"}
    rl.save(tmp_path / "a.bin", {'é"\\': weights})
    text = (tmp_path / "a.bin.json").read_bytes()
    assert read(text) == (spec, (-0.1, 0.1)) == read(b"\xef\xbb\xbf" + text)


@pytest.mark.parametrize("spec, config", [*neutral_cases()], ids=case_id)
def test_a_setting_that_changes_nothing_is_read_whatever_the_order_of_the_keys(read, spec, config):
    """ "config" was read before the number of directions: that of an ONNX model of two directions
    was accepted for an RNN of one, too."""
    known = spec.to_dict()
    assert read(json.dumps({**known, "config": config})) == (spec, None)
    assert read(json.dumps({"config": config, **known})) == (spec, None)
    assert read(json.dumps({**known, "config": config}, indent=2)) == (spec, None)


@pytest.mark.parametrize("text", ["[[[-0.0, 0e5]]]", "[0.00E-3]", "[[0],[0]]"])
def test_all_zeros_are_a_state_that_changes_nothing(read, text):
    assert read(json.dumps(ONE.to_dict())[:-1] + f', "config": {{"initial_h": {text}}}}}')


OTHER_CONFIGS = [
    (ONE, {}), (ONE, {"cell_clip": 2}), (ONE, {"cell_clip": -1}), (ONE, {"cell_clip": 0}),
    (ONE, {"direction": "bidirectional"}), (BOTH, {"direction": "forward"}),
    (ONE, {"merge_mode": "sum"}), (ONE, {"go_backwards": "false"}), (ONE, {"initial_h": []}),
    (ONE, {"initial_h": [[[0, 1e-3, 0]]]}), (ONE, {"initial_h": "0"}),
    (ONE, {"of_a_later_release": None}),
]  # fmt: skip


MASKS = {"mask", "zero_output_for_mask"}


@pytest.mark.parametrize("spec, config", [*changing_cases(), *OTHER_CONFIGS], ids=case_id)
def test_settings_that_change_the_outputs_are_refused(read, spec, config):
    """Except for the clip, which rnl_rnn_new() takes. Masks are arguments of a call in Python, and
    rnl_rnn_run() has no such argument."""
    weights = rl.Weights(some.normal_weights("cudnn", spec), spec)
    x = np.linspace(-2, 2, 20, dtype="f4").reshape(4, 1, 5)
    text = json.dumps({"config": config, **spec.to_dict()})
    plain, clip = rl.RNN(weights)(x)[0], config.get("cell_clip", 0)
    if clip > 0:
        assert read(text) == (spec, (-clip, clip))
        return
    weights.config = config
    try:
        is_plain = rl.RNN(weights)(x)[0].tobytes() == plain.tobytes()
    except rl.Error:
        is_plain = False
    if is_plain and not MASKS & config.keys():
        assert read(text) == (spec, None)
    else:
        with pytest.raises(rl.Error, match=next(iter(config))):
            read(text)


def python_reads(text):
    """Return the Spec that Python reads, None if it refuses the text."""
    try:
        found = json.loads(text)
        return rl.Spec.from_dict({k: v for k, v in found.items() if k != "regions"})
    except (ValueError, RecursionError, AttributeError, TypeError):
        return None


def test_a_damaged_text_is_read_as_python_reads_it_or_refused(read):
    """Of two equal keys Python's json takes the last one; a file with such keys is refused."""
    spec = rl.Spec("gru", 12, 34, 2, reset="before", recurrent_activation="hard_sigmoid")
    text = json.dumps({**spec.to_dict(), "regions": [{"offset": 0.5e-3, "role": "\n"}, None]})
    rng, agreed = random.Random(1), 0
    for _ in range(20000):
        damaged = list(text)
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(damaged))
            damaged[at] = rng.choice(["", rng.choice('0123456789{}[]",: \\-.truefalsn'),
                                      damaged[at] * 2])  # fmt: skip
        damaged = "".join(damaged)
        wanted = python_reads(damaged)
        try:
            found = read(damaged)[0]
        except rl.SpecError as error:
            found = None
            assert len(str(error)) > 10
        assert found == wanted, damaged
        agreed += found is not None
    assert 1000 < agreed < 19000
