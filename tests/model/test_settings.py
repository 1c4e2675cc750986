"""The table of settings: values that change nothing, and what becomes of all others."""

import keras
import numpy as np
import onnxruntime
import pytest
import torch
from oracles.frameworks import KERAS_NOISE
from oracles.settings import BOTH, ONE, H, I, N, T, case_id, changing_cases, neutral_cases
from oracles.some import holds, normal_weights, same_bits

import rnnlayout as rl
from rnnlayout._model.config import SETTINGS, before_value

pytestmark = KERAS_NOISE
X = np.random.default_rng(1).normal(size=(T, N, I)).astype("f4")
KERAS = (".keras", ".h5")
SUFFIXES = [".onnx", *KERAS, ".npz", ".npy", ".bin", ".h", ".c", ".json"]
SINGLE = (".c", ".json")  # formats of one direction
that_change_nothing = pytest.mark.parametrize("spec, config", [*neutral_cases()], ids=case_id)
that_change_something = pytest.mark.parametrize("spec, config", [*changing_cases()], ids=case_id)


def used(spec, config, layout="torch", seed=0):
    """Return random weights of an RNN that is used with these settings."""
    weights = rl.Weights(normal_weights(layout, spec, seed), spec, layout)
    weights.config = dict(config)
    return weights


def run(weights):
    return rl.RNN(weights, batch_first=False)(X)[0]


def save(path, spec, config):
    layout = "keras" if path.suffix in (*KERAS, ".json") else "cudnn"
    rl.save(path, {"rnn": used(spec, config, layout)})


def load(path, spec):
    (weights,) = rl.load(path, **({"spec": spec} if path.suffix == ".npy" else {})).values()
    return weights


# --------------------------------------------------------------------- values that change nothing


def test_the_values_that_change_nothing():
    """As the frameworks document them. Without a setting, a clip and lengths are none."""
    no, zero = (False, False), (0, 0)
    neutral = {"go_backwards": no, "stateful": no, "time_major": no, "layout": no,
               "zero_output_for_mask": no,
               "merge_mode": ("concat", "concat"), "direction": ("forward", "bidirectional"),
               "initial_h": zero, "initial_c": zero}  # fmt: skip
    table = {key: tuple(map(facts.neutral_value, (1, 2))) for key, facts in SETTINGS.items()}
    assert {key: pair for key, pair in table.items() if pair != (None, None)} == neutral


@that_change_nothing
def test_reports_said_that_a_layout_cannot_represent_a_setting_that_changes_nothing(spec, config):
    weights = used(spec, config)
    for to in filter(lambda layout: holds(rl.layout(layout), spec), rl.layouts()):
        assert weights.to(to).report.settings == rl.check(weights, to=to).settings == ""


@that_change_nothing
def test_rnn_refused_a_setting_that_changes_nothing(spec, config):
    rnn, plain = used(spec, config).rnn(), used(spec, {}).rnn()
    assert same_bits(rnn(X)[0], plain(X)[0]) and repr(rnn) == repr(plain)
    rnn.update(used(spec, {}, seed=1))
    plain.update(used(spec, config, seed=1))
    assert same_bits(rnn(X)[0], plain(X)[0])


@pytest.mark.parametrize("suffix", SUFFIXES)
@that_change_nothing
def test_files_refused_a_setting_that_changes_nothing(spec, config, suffix, tmp_path):
    if spec.bidirectional and suffix in SINGLE:
        return
    path, plain = tmp_path / f"rnn{suffix}", tmp_path / "plain" / f"rnn{suffix}"
    plain.parent.mkdir()
    save(path, spec, config)
    save(plain, spec, {})
    if suffix == ".c":
        assert path.read_text() == plain.read_text()
    elif suffix != ".h":  # which records it
        assert same_bits(run(load(path, spec)), run(load(plain, spec)))


def test_a_stack_of_layers_with_and_without_a_setting_that_changes_nothing():
    below = used(ONE, {"direction": "forward", "go_backwards": True})
    above = used(ONE.replace(input_size=H), {"go_backwards": False, "merge_mode": "concat"})
    plain = used(ONE, {"go_backwards": True}), used(above.spec, {})
    assert same_bits(run(rl.stack([below, above])), run(rl.stack(plain)))


def test_a_comparison_is_silent_about_settings_that_change_nothing():
    weights = used(ONE, {"direction": "forward", "go_backwards": 0})
    assert "used with" not in str(rl.verify(weights, used(ONE, {})))
    report = str(rl.verify(weights, used(ONE, {"go_backwards": True})))
    assert "used with nothing more in a and go_backwards=True in b" in report


def test_a_target_took_a_setting_that_changes_nothing_for_one_that_it_lacks():
    weights = used(ONE, {"direction": "forward", "go_backwards": 0})
    module = rl.assign(torch.nn.LSTM(I, H), weights)
    assert same_bits(module.weight_ih_l0.detach().numpy(), weights["weight_ih_l0"])


def test_a_setting_that_changes_nothing_contradicts_a_target_that_has_one():
    """Weights without a setting fit each target: their source may not record it."""
    layer = keras.layers.LSTM(H, go_backwards=True)
    rl.assign(layer, used(ONE, {}, "keras"))
    with pytest.raises(rl.LayoutError, match="go_backwards=False, the target with True"):
        rl.assign(layer, used(ONE, {"go_backwards": False}, "keras"))


@pytest.mark.parametrize("spec, config", [
    (ONE, {"direction": "bidirectional"}), (BOTH, {"direction": "forward"}),
], ids=case_id)  # fmt: skip
def test_a_direction_that_contradicts_the_weights_is_refused(spec, config, tmp_path):
    weights = used(spec, config)
    assert "direction=" in weights.to("onnx").report.settings
    with pytest.raises(rl.LossyError, match="direction="):
        weights.rnn()
    with pytest.raises(rl.LossyError, match="direction="):
        rl.save(tmp_path / "a.onnx", weights)


# ------------------------------------------------------------------------------------- other values


def test_the_layouts_of_the_table_exist():
    named = {layout for facts in SETTINGS.values() for layout in facts.layouts}
    assert named and named <= set(rl.layouts())


@that_change_something
def test_a_conversion_records_a_setting_and_reports_it_where_it_is_lost(spec, config):
    (key,), weights = config, used(spec, config)
    facts = SETTINGS[key]
    for to in filter(lambda layout: holds(rl.layout(layout), spec), rl.layouts()):
        converted = weights.to(to)
        text = converted.report.settings
        assert converted.config == config
        is_lost = facts.changes_a_call and to not in facts.layouts
        assert text.startswith(f"with {before_value(key)}") == is_lost
        assert not text or text.endswith(f", which {to} cannot represent: {facts.advice}")


@that_change_something
def test_rnn_applies_a_setting_or_refuses_it(spec, config):
    ((key, _),) = config.items()
    try:
        y = run(used(spec, config))
    except rl.LossyError as error:
        assert f"used with {key}=" in str(error) and SETTINGS[key].changes_a_call
    else:
        plain = run(used(spec, {}))
        is_same = y.shape == plain.shape and same_bits(y, plain)
        needs_mask = SETTINGS[key].place == "argument"  # of the call
        assert is_same == (needs_mask or not SETTINGS[key].changes_a_call)


@pytest.mark.parametrize("suffix", SUFFIXES)
@that_change_something
def test_a_file_records_a_setting_or_applies_it_or_refuses_it(spec, config, suffix, tmp_path):
    ((key, value),) = config.items()
    path, plain = tmp_path / f"rnn{suffix}", tmp_path / "plain" / f"rnn{suffix}"
    plain.parent.mkdir()
    try:
        save(path, spec, config)
    except rl.LossyError as error:
        refused = "is bidirectional", "second direction"
        assert f"used with {key}" in str(error) or any(text in str(error) for text in refused)
        return
    save(plain, spec, {})
    if suffix in (".c", ".h"):
        is_kept = path.read_text() != plain.read_text()
    else:
        is_kept = load(path, spec).config.get(key, ...) == value
    # the report of the conversion to the format's layout names a mask
    assert is_kept or not SETTINGS[key].changes_a_call or SETTINGS[key].place == "argument"


def test_lengths_that_an_onnx_model_fixes_were_unknown_to_onnx(tmp_path):
    for layers in (1, 2):
        spec, lengths = rl.Spec("gru", I, H, layers), [T - 1, T]
        rl.save(tmp_path / "a.onnx", used(spec, {"sequence_lens": lengths}))
        session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
        start = np.zeros((layers, N, H), "f4")
        y, h_n = session.run(["Y", "Y_h"], {"X": X, "initial_h": start})
        ours, last = used(spec, {}).rnn()(X, lengths=lengths)
        # sums of at most I + H + 2 products below 4 of numbers below 2, in T steps of each layer,
        # through curves whose slope is at most 1
        atol = 4 * T * layers * (I + H + 2) * 2.0**-24
        np.testing.assert_allclose(y, ours, rtol=0, atol=atol)
        np.testing.assert_allclose(h_n, last, rtol=0, atol=atol)
        (again,) = rl.load(tmp_path / "a.onnx").values()
        assert again.config == {"sequence_lens": lengths}
