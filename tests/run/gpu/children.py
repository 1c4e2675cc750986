"""Run functions without arguments, each in a forked process of its own: libraries that were opened
stay open, and a broken rule of the fakes ends the process.

    python -m run.gpu.children MODULE...

imports the modules, then reads lines of JSON, [module, function, environment], and writes
[exit status, what was printed].
"""

import ctypes
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback

from commands import TESTS

# To end all that was imported would take longer. C's exit() writes what gcov has counted, but may
# wait for threads that a forked process lacks.
END = ctypes.CDLL(None).exit if os.environ.get("COUNTS_COVERAGE") else os._exit


class Children:
    """A process that has imported some modules, and runs their functions in its children."""

    def __init__(self, modules, env):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "run.gpu.children", *modules], cwd=TESTS, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, module, function, **environment):
        """Return what it prints; its process must end well."""
        given = {name: str(value) for name, value in environment.items()}
        print(json.dumps([module, function, given]), file=self._process.stdin, flush=True)
        status, said = json.loads(self._process.stdout.readline())
        assert status == 0, said
        return said

    def close(self):
        self._process.communicate()


def run_in_child(module, function, environment):
    """Return the exit status of a function, and what it printed."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            os.environ.update(environment)
            gc.freeze()  # to count only what the function makes
            try:
                getattr(importlib.import_module(module), function)()
                sys.stdout.flush()
                END(0)
            except SystemExit:
                raise
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


def main():
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        print(json.dumps(run_in_child(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
