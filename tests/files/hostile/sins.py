"""What reading a file must never do, done on purpose: the watch has to notice it."""

import os
import socket
import subprocess
import time

import h5py
import numpy as np
from files.hostile.case import Calls
from files.hostile.limits import MOST_CALLS, MOST_NBYTES, longest


def pickled(path):
    np.save(path, np.array([Calls(os.system, "true")], dtype=object))
    np.load(path, allow_pickle=True)


def linked(path):
    with h5py.File(path, "r") as file:
        return file["there"].shape


def call(path):
    for _ in range(MOST_CALLS):
        os.fspath(path)


def spend(path):
    end = time.process_time() + 2 * longest()  # which a moment later may be another number
    while time.process_time() < end:
        pass


def allocate(path):
    """Allocate more than the limit, which fails; then nearly as much."""
    try:
        np.empty(MOST_NBYTES * 5 // 4, np.uint8)
    except MemoryError:
        return np.ones(MOST_NBYTES * 3 // 4, np.uint8).size


def connect(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.connect_ex(str(path))


SINS = {
    "open": lambda path: open(path).close(),
    "list": os.listdir,
    "external link": linked,
    "pickle": pickled,
    "start": lambda path: subprocess.run(["true"], check=True),
    "connect": connect,
    "import": lambda path: __import__("this"),
    "calls": call,
    "time": spend,
    "memory": allocate,
    "abort": lambda path: os.abort(),
}
