"""What load() returns: a mapping of the RNNs that are decided, the others beside it."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from oracles import some
from oracles.some import same_bits

import rnnlayout as rl

I, H = 5, 3  # noqa: E741
LSTM = some.normal_weights(rl.layout("torch"), rl.Spec("lstm", I, H))
PLAIN = some.normal_weights(rl.layout("torch"), rl.Spec("rnn_tanh", I, H))
BAD = {**LSTM, "weight_hh_l0": LSTM["weight_hh_l0"][:-1]}


def file_of(path, **rnns):
    np.savez(path, **{f"{n}.{k}": value for n, one in rnns.items() for k, value in one.items()})
    return path


@pytest.fixture
def found(tmp_path):
    return rl.load(file_of(tmp_path / "a.npz", a=LSTM, b=PLAIN, c=BAD))


def test_it_was_not_a_mapping_if_one_rnn_is_undecided(found):
    """dict(found), .items() and .get("b") raised an error, and "b" in found was true."""
    assert isinstance(found, Mapping)
    assert list(found) == list(found.keys()) == list(dict(found)) == ["a"]
    assert len(found) == 1 and bool(found)
    assert found == dict(found) and found != {}
    ((name, weights),) = found.items()
    assert name == "a" and same_bits(weights.tensors, LSTM) and [*found.values()] == [weights]
    for name in "bc":
        assert name not in found and found.get(name) is None and found.get(name, 7) == 7
    assert list(found.undecided) == ["b"] and list(found.refused) == ["c"]
    assert {**found} == dict(found)


def test_looking_up_what_is_undecided_or_refused_says_why(found):
    with pytest.raises(rl.UndecidedError, match=r"b: .*pass cell='rnn_tanh'"):
        found["b"]
    with pytest.raises(rl.LayoutError, match=r"c: .*weight_hh_l0"):
        found["c"]
    with pytest.raises(rl.UnknownNameError, match="'a', 'b', 'c'"):
        found["d"]


@pytest.mark.parametrize("name", ["encoder", "encodr", "state_dict.encoder.lstm", "", 0, None])
def test_a_name_that_does_not_exist_was_a_bare_key_error(tmp_path, name):
    model = torch.nn.ModuleDict({"encoder": torch.nn.LSTM(I, H), "decoder": torch.nn.GRU(I, H)})
    torch.save({"state_dict": model.state_dict()}, tmp_path / "m.pt")
    found = rl.load(tmp_path / "m.pt")
    with pytest.raises(KeyError) as caught:
        found[name]
    text = str(caught.value)
    assert isinstance(caught.value, rl.Error) and isinstance(caught.value, rl.UnknownNameError)
    assert f"no RNN is named {name!r}" in text
    assert "'state_dict.encoder', 'state_dict.decoder'" in text
    meant = name in ("encoder", "encodr", "state_dict.encoder.lstm")
    assert text.endswith("did you mean 'state_dict.encoder'?") == meant
    assert found.get(name) is None and name not in found


def test_functions_that_take_it_as_a_source(found, tmp_path):
    assert same_bits(rl.pack(found, prefix="a"), rl.pack(LSTM))
    with pytest.raises(rl.LayoutError, match=r"3 RNNs: 'a' \(lstm\), 'b' \(undecided\)"):
        rl.pack(found)
    with pytest.raises(rl.UndecidedError, match="b: "):
        rl.pack(found, prefix="b")
    with pytest.raises(rl.UndecidedError, match=r"write the others with save\(path, dict\(found\)"):
        rl.save(tmp_path / "x.npz", found)
    rl.save(tmp_path / "x.npz", dict(found))  # what the error says
    assert list(rl.load(tmp_path / "x.npz")) == ["a"]


def test_an_undecided_rnn_is_not_left_out_of_a_copy(tmp_path):
    """It has the name of an RNN of the model: the error asks for what is missing."""
    new = file_of(tmp_path / "new.npz", a=LSTM, b=PLAIN)
    old = file_of(tmp_path / "old.npz", b=PLAIN)
    from rnnlayout._files.write_file import convert_into

    with pytest.raises(rl.UndecidedError, match="b: "):
        convert_into(new, tmp_path / "out.npz", into=old)
    assert not (tmp_path / "out.npz").exists()
