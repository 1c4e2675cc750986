"""The command line, run in the process of the tests."""

import pytest

from rnnlayout._cli import main as _cli


@pytest.fixture
def rnnlayout(capsys):
    """Return a function that runs a command: exit code, stdout, stderr."""

    def run(*arguments):
        try:
            code = _cli.main([str(a) for a in arguments])
        except SystemExit as end:
            code = end.code
        return (code, *capsys.readouterr())

    return run
