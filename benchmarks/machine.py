"""The machine that results are of."""

import platform
from pathlib import Path


def cpu():
    """Return the CPU's name with its family and model: some names do not tell the generation."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        said = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
        return "{model name} (family {cpu family}, model {model})".format(**said)
    except (OSError, KeyError):
        return platform.processor()
