"""Run commands and Python programs in which only the given variables lead to a cuDNN."""

import json
import os
import subprocess
import sys

from commands import run

import rnnlayout as rl

VARIABLES = ["RNNLAYOUT_CUDNN", "CONDA_PREFIX", "CUDNN_PATH", "CUDNN_HOME", "CUDA_PATH",
             "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"]  # fmt: skip
PACKAGE = os.path.dirname(os.path.dirname(rl.__file__))


def environment(**variables):
    clean = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    return clean | {key: str(value) for key, value in variables.items()}


def rnnlayout(*arguments, **variables):
    """Run a command. Returns exit code, standard output, standard error."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rnnlayout", *arguments], text=True, capture_output=True,
        check=False, env=environment(**variables),
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def doctor(**variables):
    """Return (exit code, the JSON of doctor)."""
    code, out, err = rnnlayout("doctor", "--json", **variables)
    assert err == ""
    return code, json.loads(out)


def python(program, **variables):
    """Return what a Python program prints."""
    return run([sys.executable, "-P", "-c", program], env=environment(**variables))
