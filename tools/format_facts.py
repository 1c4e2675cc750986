"""What each format of files can record, found out by writing and reading files."""

import json
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from files.hostile.good import beside, good  # noqa: E402
from oracles.settings import ONE, changing_cases  # noqa: E402

import rnnlayout as rl  # noqa: E402
from rnnlayout._files.formats import registry as formats  # noqa: E402
from rnnlayout._model.config import SETTINGS  # noqa: E402
from rnnlayout._model.weights import changed_weights  # noqa: E402

PLAIN = rl.Spec("lstm", 3, 2, bidirectional=True)
SPECS = {
    "bias mode": rl.Spec("lstm", 3, 2, bias="input"),
    "`skip_input`": rl.Spec("lstm", 2, 2, skip_input=True),
    "reset": rl.Spec("gru", 3, 2, reset="before"),
    "peepholes": rl.Spec("lstm", 3, 2, peepholes=True),
    "RNN's activation": rl.Spec("rnn_relu", 3, 2),
    "relu": rl.Spec("lstm", 3, 2, activation="relu"),
    "hard sigmoid": rl.Spec("lstm", 3, 2, recurrent_activation="hard_sigmoid"),
    "hard sigmoid of Keras 2": rl.Spec("gru", 3, 2, recurrent_activation="hard_sigmoid_keras2"),
}
# Each setting that changes numbers -> an RNN, and the setting of it.
USED = {
    f"`{key}`": (spec, config)
    for spec, config in changing_cases()
    for key, value in config.items()
    if SETTINGS[key].changes_a_call and value is not None
} | {"others": (ONE, {"another": [1]})}
DTYPES = ("float16", "bfloat16", "float32", "float64")
PACKAGES = ("h5py", "onnx", "torch")
# For each line of its input prints what a child of its own imports to write, or to read, a file.
PROCESS = """
import json, os, sys, rnnlayout as rl
for line in iter(sys.stdin.readline, ""):
    what, path, source, spec = json.loads(line)
    if os.fork() == 0:
        if what == "write":
            rl.save(path, rl.load(source))
        else:
            rl.load(path, rl.Spec.from_dict(spec) if spec else None)
        print(*(name for name in {packages} if name in sys.modules), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(1)
""".replace("{packages}", repr(PACKAGES))


class Trial:
    """One format, tried in a folder."""

    def __init__(self, suffixes, folder):
        self.suffixes, self.suffix, self.folder = suffixes, suffixes[0], folder
        self.is_read = self.suffix in formats.readable_suffixes()
        self.is_written = self.suffix in formats.writable_suffixes()
        by_suffix = formats.format_to_read if self.is_read else formats.format_to_write
        self.format = by_suffix(Path(f"x{self.suffix}"))
        own = getattr(self.format, "layouts", ())
        known = [name for name in own if name in rl.layouts()]  # a .c converts all to its own
        self.layouts = [rl.layout(name) for name in known or rl.layouts()]
        self.to = rl.layout([*own, *rl.layouts()][0])
        self.path = folder / f"file{self.suffix}"
        both = not self.is_written or self.load(self.weights(PLAIN), spec=PLAIN) is not None
        self.plain = PLAIN if both else PLAIN.replace(bidirectional=False)

    def weights(self, spec=None, layout=None, **used):
        """Return ones, in the first layout that can represent the spec; None if none can."""
        spec = spec or self.plain
        for one in [layout] if layout else self.layouts:
            try:
                shapes = rl.describe(spec, one)
            except rl.LossyError:
                continue
            tensors = {name: np.ones(shape, "f4") for name, shape in shapes.items()}
            flat = tensors["weight_space"] if one.name == "cudnn" else tensors
            weights = rl.Weights(flat, spec.replace(dtype="float32"), one).to(one, dtype=spec.dtype)
            return changed_weights(weights, **used)
        return None

    def load(self, weights, **told):
        """Write an RNN, and return what is read; None if it is refused."""
        try:
            rl.save(self.path, {"name": weights})
            found = rl.load(self.path, **told) if self.is_read else {"name": weights}
        except rl.Error:
            return None
        return rl.stack(found.values())

    def keeps(self, weights, **told):
        again = self.load(weights, **told)
        return again is not None and again == weights

    def _told(self):
        """What load() must be told: the spec, if the format does not record it."""
        return {} if self.load(self.weights()) is not None else {"spec": self.plain}

    # ------------------------------------------------------------------------------- the columns

    def several(self):
        w = self.weights()
        try:
            rl.save(self.path, {"a": w, "b": w})
            return yes(not self.is_read or len(rl.load(self.path)) == 2)
        except rl.Error:
            return "no"

    def spec(self):
        if self._told():
            return "no: `load` needs `spec=`"
        given = {what: self.weights(spec) for what, spec in SPECS.items()}
        lost = [what for what, w in given.items() if w is not None and not self.keeps(w)]
        return f"all but {', '.join(lost)}" if lost else "yes"

    def layout(self):
        told = self._told()
        every = [rl.layout(name) for name in rl.layouts()] if self.is_read else self.layouts
        kept = []
        for layout in every:
            tried = (self.weights(spec, layout) for spec in (self.plain, *SPECS.values()))
            again = self.load(next(filter(None, tried)), **told)
            kept += [layout.name] if again is not None and again.layout == layout else []
        return "any" if len(kept) == len(rl.layouts()) else ", ".join(f"`{name}`" for name in kept)

    def dtypes(self):
        kept = []
        for dtype in DTYPES:
            w = self.weights(self.plain.replace(dtype=dtype))
            kept += [dtype] if self.keeps(w, **({"spec": w.spec} if self._told() else {})) else []
        return "any" if len(kept) == len(DTYPES) else ", ".join(kept)

    def config(self):
        kept = []
        for what, (spec, config) in USED.items():
            told = {"spec": spec} if self._told() else {}
            kept += [what] if self.keeps(self.weights(spec, config=config), **told) else []
        return "any" if len(kept) == len(USED) else ", ".join(kept) or "none"

    def batch_first(self):
        told = self._told()
        if not self.is_read:
            written = []
            for first in (True, False):
                rl.save(self.path, {"name": self.weights(batch_first=first)})
                written.append(self.path.read_bytes())
            return yes(written[0] != written[1])
        found = [self.load(self.weights(batch_first=b), **told).batch_first for b in (True, False)]
        own = {True: "x is (N, T, I)", False: "x is (T, N, I)", None: "no"}
        return "yes" if found == [True, False] else own[found[0]]

    def packages(self, what, process):
        """Return what is imported beside NumPy. what: "read" or "write"; process: of PROCESS."""
        if what == "read" and not self.is_read:
            return "not read"
        if what == "write" and not self.is_written:
            return "NumPy, with `--into`" if self.format.replace else "not written"
        w, source = self.weights(), self.folder / "source.npz"
        rl.save(source, w)
        if what == "read" and self.is_written:
            rl.save(self.path, w)
        elif what == "read":
            self.path.write_bytes(good(self.suffix))
            beside(self.path)
        told = self.plain.to_dict() if self.is_written and self._told() else None
        print(json.dumps([what, str(self.path), str(source), told]), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.path} could not be tried: {what}")
        return ", ".join(answer.split()) or "NumPy"

    def others(self):
        """What a conversion does to the tensors that belong to no RNN."""
        if not self.is_written:
            return "`--into` keeps the model" if self.format.replace else "-"
        if getattr(self.format, "rewrite", None):
            return "the whole model, to a file of this format"
        source = self.folder / "others.npz"
        tensors = self.weights(layout=rl.layout("keras"))
        np.savez(source, other=np.ones(2), **{f"a.{name}": w for name, w in tensors.items()})
        try:
            done = rl.convert_file(source, self.path, to=self.to, force=True)
        except rl.Error:
            return "-"
        if not done.left_out:
            return "kept"
        return "left out; `--into` keeps the model" if self.format.replace else "left out"


def yes(value):
    return "yes" if value else "no"


def trials(folder):
    """Yield a Trial per format; suffixes of one format are one."""
    for suffixes in (list(group) for _, group in groupby(formats.FORMATS, formats.FORMATS.get)):
        yield Trial(suffixes, Path(folder))


def names(trial):
    return ", ".join(f"`{suffix}`" for suffix in trial.suffixes)


def records():
    """Return (head, rows) of the table of what is recorded, by the formats that are written."""
    head = ["format", "several RNNs", "layouts", "dtypes", "spec", "`config`", "`batch_first`"]
    with tempfile.TemporaryDirectory() as folder:
        return head, [
            [names(t), t.several(), t.layout(), t.dtypes(), t.spec(), t.config(), t.batch_first()]
            for t in trials(folder)
            if t.is_written
        ]


def uses():
    """Return (head, rows) of the table of what is needed to read and write, and other tensors."""
    head = ["format", "read with", "written with", "other tensors of a conversion"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([sys.executable, "-c", PROCESS], **pipes) as process,
    ):
        return head, [
            [names(t), t.packages("read", process), t.packages("write", process), t.others()]
            for t in trials(folder)
        ]
