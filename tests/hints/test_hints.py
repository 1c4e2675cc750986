"""Every hint of the package has a case that raises it, and what it says works when followed.

A hint is a text that names an argument, an option or a call (collect.py finds them in the source).
A case yields a call whose message has hints, gets the message, and does literally what it says.
"""

import contextlib
import inspect

import pytest
from hints import calls, collect, command_line, of_files, of_models
from hints.following import message_of

pytestmark = pytest.mark.filterwarnings("ignore")
CASES = {
    f"{table.__name__.removeprefix('hints.')}.{name}": case
    for table in (calls, of_files, of_models, command_line)
    for name, case in inspect.getmembers(table, inspect.isgeneratorfunction)
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def hints():
    return collect.all_hints()


def follow(case):
    """Yield the messages of a case, and follow them."""
    steps = case()
    call = next(steps)
    try:
        while True:
            message = message_of(call)
            yield message
            call = steps.send(message)
    except StopIteration:
        pass


@pytest.mark.parametrize("name", CASES)
def test_what_a_hint_says_works(name, hints):
    for message in follow(CASES[name]):
        assert any(hint.is_in(message) for hint in hints), message


def test_each_hint_has_a_case(hints, tmp_path, monkeypatch):
    left = set(hints)
    for k, case in enumerate(CASES.values()):
        (tmp_path / str(k)).mkdir()
        monkeypatch.chdir(tmp_path / str(k))
        with contextlib.suppress(Exception):  # the test of the case shows it
            for message in follow(case):
                left = {hint for hint in left if not hint.is_in(message)}
    assert not left
