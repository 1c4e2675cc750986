"""rnl_spec_from_json() reads what Python's reader of the JSON beside a .bin reads, and no more."""

import ctypes
import json
import mmap
import random
import re
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_size_t, create_string_buffer
from dataclasses import fields
from itertools import product

import numpy as np
import pytest
from commands import ROOT
from oracles import some

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
    """The function of the C library, whose text ends before a page without access rights."""

    ROOM = 1 << 21

    def __init__(self, library):
        self._call = library.rnl_spec_from_json
        self._call.argtypes = [ctypes.c_void_p, c_size_t, *[ctypes.c_void_p] * 3]
        self._sizes = [place(f"rnl_{name}", "size") for name in ("spec", "rnn_options", "error")]
        self._memory = mmap.mmap(-1, self.ROOM + mmap.PAGESIZE)
        self._end = ctypes.addressof(c_int.from_buffer(self._memory)) + self.ROOM
        protect = ctypes.CDLL(None).mprotect
        assert protect(ctypes.c_void_p(self._end), c_size_t(mmap.PAGESIZE), 0) == 0

    def __call__(self, text):
        """Return (Spec, clip or None), or raise what the library reports."""
        raw = text if isinstance(text, bytes) else text.encode()
        at = self._end - len(raw)
        ctypes.memmove(at, raw, len(raw))
        spec, options, err = map(create_string_buffer, self._sizes)
        before = spec.raw, options.raw
        if status := self._call(at, len(raw), byref(spec), byref(options), byref(err)):
            assert (spec.raw, options.raw) == before
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
    found = [read(json.dumps(spec.to_dict())) == (spec, None) for spec in specs()]
    assert all(found) and len(found) > 200


def test_it_reads_what_save_writes(read, tmp_path):
    spec = rl.Spec("lstm", 5, 3, 2, bidirectional=True, proj_size=2, dtype="bfloat16")
    weights = rl.Weights(some.random_weights("cudnn", spec), spec)
    weights.config = {"cell_clip": 0.1, "stateful": True, "direction": "bidirectional"}
    rl.save(tmp_path / "a.bin", {'é"\\': weights})
    text = (tmp_path / "a.bin.json").read_bytes()
    assert read(text) == (spec, (-0.1, 0.1)) == read(b"\xef\xbb\xbf" + text)


CONFIGS = [
    {}, {"stateful": True}, {"time_major": 1}, {"layout": 0}, {"go_backwards": False},
    {"go_backwards": True}, {"direction": "forward"}, {"direction": "reverse"}, {"clip": 1.0},
    {"cell_clip": 0.1}, {"cell_clip": 2}, {"cell_clip": -1}, {"initial_h": [[[1, 2, 3]]]},
    {"of_a_later_release": None},
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_settings_that_change_the_outputs_are_refused(read, config):
    """Except for the clip, which rnl_rnn_new() takes."""
    spec = rl.Spec("lstm", 5, 3)
    weights = rl.Weights(some.normal_weights("cudnn", spec), spec)
    x = np.linspace(-2, 2, 20, dtype="f4").reshape(4, 1, 5)
    text = json.dumps({**spec.to_dict(), "config": config})
    plain, clip = rl.RNN(weights)(x)[0], config.get("cell_clip", 0)
    if clip > 0:
        assert read(text) == (spec, (-clip, clip))
        return
    weights.config = config
    try:
        is_plain = rl.RNN(weights)(x)[0].tobytes() == plain.tobytes()
    except rl.LossyError:
        is_plain = False
    if is_plain:
        assert read(text) == (spec, None)
    else:
        with pytest.raises(rl.Error, match=next(iter(config))):
            read(text)


SPEC = '{"schema":1,"cell":"lstm","input_size":5,"hidden_size":7'
REFUSED = {  # a text -> how the message goes on; SPEC is in front of those that begin with , or }
    "[]": "byte 0 is [, need '{'",
    "{}": "schema is missing",
    '{"schema":1,"cell":"lstm","input_size":5}': "hidden_size is missing",
    '{"schema":2}': f"schema is 2; rnnlayout {rl.__version__} reads 1",
    "} {}": "byte 58 is {, need the end",
    ",}": "need a string",
    ',"schema":1}': "schema occurs twice",
    ',"hidden_size":7}': "hidden_size occurs twice",
    ',"hidden":7}': "unknown field 'hidden'; a spec has cell, input_size",
    ',"num_layers":2.0}': "num_layers is 2.0, need a whole number",
    ',"num_layers":"2"}': 'num_layers is "2", need a whole number',
    ',"num_layers":9223372036854775808}': "need less than 2^63",
    ',"num_layers":-1}': "num_layers is -1, need at least 1",
    ',"num_layers":01}': "need ',' or '}'",
    ',"proj_size":9}': "proj_size is 9, need less than hidden_size 7",
    ',"bidirectional":2}': "bidirectional is 2, need true or false",
    ',"dtype":"f4"}': "dtype is 'f4', need one of: float16, bfloat16",
    ',"dtype":4}': "dtype is 4, need a name",
    ',"entry":"\x01"}': "need the end of a string",
    r',"entry":"\x"}': "after a backslash",
    ',"entry":NaN}': "is N, need a value",
    ',"config":[]}': 'which "config" is',
    ',"config":{"cell_clip":-1}}': "cell_clip that is -1",
    ',"config":{"go_backwards":true}}': "go_backwards true",
    ',"config":{"initial_h":[[[0]]]}}': "initial_h [[[0]]]",
    ',"regions":' + "[" * (1 << 20): "arrays and objects",  # more than a stack has room for
    ',"regions":' + '{"a":' * (1 << 18): "arrays and objects",
}


def test_a_refusal_says_what_is_wrong(read):
    for text, said in REFUSED.items():
        with pytest.raises(rl.Error, match=re.escape(said)):
            read(SPEC * (text[0] in ",}") + text)
    whole = SPEC + r',"entry":"\u0073é\n","nbytes":-1.5e+3,"regions":[null,{}],"peepholes":true}'
    assert read(whole)[0] == rl.Spec("lstm", 5, 7, peepholes=True)
    for end in range(len(whole.encode())):
        with pytest.raises(rl.SpecError):
            read(whole.encode()[:end])


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
