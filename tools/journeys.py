"""Count what a reader passes on the way of some first calls: files, functions, depth, calls.

    python tools/journeys.py [--show]

Only the package's Python functions count, each once, without lambdas, comprehensions and classes'
bodies. Each journey runs in a process of its own, because the second call is shorter. Needs torch,
onnx and h5py. --show also prints the deepest chain of calls.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import rnnlayout as rl

PACKAGE = str(Path(rl.__file__).parent)
FUNCTION = 0x1  # CO_OPTIMIZED: not the body of a class


def journey_functions(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the journeys by what they are."""
    module = torch.nn.LSTM(3, 4)
    state_dict, (old, model) = module.state_dict(), (folder / "old.h5", folder / "lstm.onnx")
    if not model.exists():  # in the first process
        weights = rl.Weights(state_dict)
        rl.save(old, weights.to("keras-cudnn"))
        rl.save(model, weights)

    def run_model() -> Any:
        rnn = rl.load(model)["lstm"].rnn()
        return rnn(np.zeros((5, 2, 3), "f4"), lengths=[5, 3])

    return {
        "pack(nn.LSTM)": lambda: rl.pack(module),
        'convert(state_dict, to="keras")': lambda: rl.convert(state_dict, to="keras"),
        "convert_file of an old .h5": lambda: rl.convert_file(old, folder / "new.h5", to="keras"),
        "load .onnx, rnn(), call it with lengths": run_model,
        "the modules that rl.load imports": lambda: rl.load,
    }


class Tracer:
    """Counts the calls of the package's functions. Pass its see() to sys.setprofile()."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.calls = 0
        self.chain: list[str] = []
        self.deepest: list[str] = []

    def see(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_own = code.co_filename.startswith(PACKAGE) and code.co_flags & FUNCTION
        if event not in ("call", "return") or not is_own or code.co_name.startswith("<"):
            return
        if event == "return":
            self.chain.pop()
            return
        file = os.path.relpath(code.co_filename, PACKAGE)
        self.functions.add((file, code.co_qualname))
        self.calls += 1
        self.chain.append(f"{file}:{code.co_qualname}")
        if len(self.chain) > len(self.deepest):
            self.deepest = self.chain.copy()


def print_journey(name: str, call: Callable[[], Any], show: bool) -> None:
    tracer = Tracer()
    sys.setprofile(tracer.see)
    try:
        call()
    finally:
        sys.setprofile(None)
    files = {file for file, _ in tracer.functions}
    loaded = sum(module.split(".")[0] == "rnnlayout" for module in sys.modules)
    print(f"{name}: {len(files)} files, {len(tracer.functions)} functions,"
          f" depth {len(tracer.deepest)}, {tracer.calls} calls; {loaded} modules")  # fmt: skip
    if show:
        print("", *tracer.deepest, sep="\n    ")


def main() -> None:
    if len(sys.argv) > 2:  # one journey
        folder, name, *show = sys.argv[1:]
        print_journey(name, journey_functions(Path(folder))[name], bool(show))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in journey_functions(Path(folder)):
            subprocess.run([sys.executable, __file__, folder, name, *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
