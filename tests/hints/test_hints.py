"""Every hint of the package has a case that raises it, and what it says works when followed.

A hint is a text that names an argument, an option or a call (collect.py finds them in the source).
A case yields a call whose message has hints, gets the message, and does literally what it says.
"""

import functools
import inspect

import pytest
from hints import calls, collect, command_line, of_files, of_models, of_training
from hints.following import message_of

pytestmark = pytest.mark.filterwarnings("ignore")
CASES = {
    f"{table.__name__.removeprefix('hints.')}.{name}": case
    for table in (calls, of_files, of_models, of_training, command_line)
    for name, case in inspect.getmembers(table, inspect.isgeneratorfunction)
}


@functools.cache
def followed(name):
    """Follow a case once, in the current folder. Return its messages, and its error if any."""
    messages, steps = [], CASES[name]()
    try:
        call = next(steps)
        while True:
            messages.append(message_of(call))
            call = steps.send(messages[-1])
    except StopIteration:
        return messages, None
    except Exception as error:
        return messages, error


@pytest.mark.parametrize("name", CASES)
def test_what_a_hint_says_works(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    messages, wrong = followed(name)
    if wrong:
        raise wrong
    assert messages
    for message in messages:
        assert any(hint.is_in(message) for hint in collect.all_hints()), message


def test_each_hint_has_a_case(tmp_path, monkeypatch):
    left = set(collect.all_hints())
    for name in CASES:
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for message in followed(name)[0]:  # the test of the case shows an error
            left = {hint for hint in left if not hint.is_in(message)}
    assert not left
