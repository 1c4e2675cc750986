"""Run a few lines of Python on fakes/device.py, in a process of their own."""

import os
import subprocess
import sys

from commands import TESTS

FAKE_EXIT = 86  # of a process that broke a rule
BEGIN = (
    "import ctypes, os, sys, threading; from ctypes import c_int\n"
    "from fakes.device import *; folder = sys.argv[1]\n"
)
LSTM = "d = Device(folder); f = d.forward({}).zeros()\n"


def process(folder, code, **environment):
    return subprocess.run(
        [sys.executable, "-c", BEGIN + code, folder],
        cwd=TESTS, env=os.environ | environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def said(folder, code, **environment):
    """Return what the code prints; its process must end well."""
    done = process(folder, code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
