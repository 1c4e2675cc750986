"""What the page on the command line shows is what the commands print."""

import re
import subprocess
import sys

import numpy as np
from conftest import ROOT

import rnnlayout as rl

CONSOLE = re.compile(r"^```console\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def test_the_page(tmp_path):
    """One shell runs it all: each command, and what stands below it."""
    lstm = {name: np.ones(shape, "f4")
            for name, shape in rl.describe("torch", rl.Spec("lstm", 3, 2)).items()}  # fmt: skip
    np.savez(tmp_path / "lstm.npz", **lstm)
    lstm["weight_hh_l0"][2, 1] = 2
    np.savez(tmp_path / "other.npz", **lstm)
    blocks = CONSOLE.findall((ROOT / "docs" / "command-line.md").read_text())
    shown = "".join(blocks)
    commands = [line[2:] for line in shown.splitlines() if line.startswith("$ ")]
    assert len(blocks) == 3 and len(commands) == 5
    script = [f'rnnlayout() {{ "{sys.executable}" -P -m rnnlayout "$@"; }}']
    for command in commands:
        script += [f"echo '$ {command}'", command]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], text=True, check=True, cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.stdout == shown
