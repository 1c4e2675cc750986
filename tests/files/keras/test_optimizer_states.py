"""The states of optimizers in Keras files: each slot of each RNN, bit for bit; and states of which
the file does not show the variable, which are not read but named."""

import dataclasses

import keras
import numpy as np
import pytest
import tf_keras
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl
from rnnlayout._files.tensor_sets.file_limits import Budget

pytestmark = KERAS_NOISE
I, H = 3, 5  # noqa: E741
KITS = {"keras 3": keras, "keras 2": tf_keras}
SLOTS_OF_KERAS_2 = ("m", "v", "vhat", "velocity", "momentum", "average_gradient", "accumulator")
SQUARES = ("v", "vhat", "velocity", "velocity_hat", "accumulator")


def trained(kit, optimizer, twins=False, frozen=False):
    """Return a model after two steps. twins: whether it has two layers of the same shapes."""
    kit.utils.set_random_seed(0)
    layers = kit.layers
    first = layers.Bidirectional(layers.LSTM(H, return_sequences=True, name="lstm"), name="first")
    second = layers.GRU(H + 1, return_sequences=True, name="second")
    model = kit.Sequential([
        layers.Input((4, I)), layers.BatchNormalization(), first, second,
        *[layers.GRU(H + 1, return_sequences=True, name=f"twin_{k}") for k in range(2 * twins)],
        layers.Dense(2),
    ])  # fmt: skip
    if frozen:
        model.get_layer("twin_0").trainable = False
    model.compile(optimizer, "mse")
    x = np.linspace(-1, 1, 4 * 4 * I, dtype="f4").reshape(4, 4, I)
    model.fit(x, x[..., :2] ** 2, epochs=2, batch_size=4, verbose=0)
    return model


def states_of(model, layer):
    """Return slot -> arrays of a layer's variables, in the order of the layer."""
    optimizer, names = model.optimizer, {}
    for variable in optimizer.variables:
        names[getattr(variable, "path", variable.name).removesuffix(":0")] = np.array(variable)
    slots = {}
    for weight in layer.trainable_variables:
        path = getattr(weight, "path", weight.name).removesuffix(":0")
        for name, array in names.items():
            for slot in SLOTS_OF_KERAS_2:
                if name.endswith(f"/{slot}/{path}") or name.endswith(f"{path}/{slot}"):
                    slots.setdefault(slot, []).append(array)
            start = f"{optimizer.name}/{path.replace('/', '_')}_"
            if name.startswith(start):
                slots.setdefault(name.removeprefix(start), []).append(array)
    return slots


def optimizers_of(kit):
    return {
        "Adam": kit.optimizers.Adam(0.01, amsgrad=True),
        "AdamW": kit.optimizers.AdamW(0.01),
        "SGD": kit.optimizers.SGD(0.01, momentum=0.9),
        "RMSprop": kit.optimizers.RMSprop(0.01, momentum=0.9, centered=True),
        "Adagrad": kit.optimizers.Adagrad(0.01),
        "Lion": kit.optimizers.Lion(0.01),
        "schedule": kit.optimizers.Adam(kit.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)),
    }


def assert_states(weights, slots):
    state = weights.optimizer
    assert state is not None and {*state.slots} == {*slots} and not state.notes
    for slot, arrays in slots.items():
        assert state.slots[slot].kind == ("squared_gradient" if slot in SQUARES else "gradient")
        assert [*state.slots[slot]] == [*weights] and len(arrays) == len(weights)
        for array, variable in zip(state.slots[slot].values(), arrays, strict=True):
            assert array.tobytes() == variable.tobytes() and array.any()


@pytest.mark.parametrize("kit", KITS)
@pytest.mark.parametrize("name", [
    "Adam", "AdamW", "SGD", "schedule",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("RMSprop", "Adagrad", "Lion")),
])  # fmt: skip
def test_each_slot_is_the_optimizers_own(name, kit, tmp_path):
    model = trained(KITS[kit], optimizers_of(KITS[kit])[name], twins=name == "Adam")
    for suffix in (".keras", ".h5"):
        path = tmp_path / f"a{suffix}"
        model.save(path)
        found = rl.load(path)
        assert len(found) == (4 if name == "Adam" else 2)
        for entry, weights in found.items():
            slots = states_of(model, model.get_layer(entry))
            assert slots
            assert_states(weights, slots)
            state = weights.optimizer
            assert state.step == 2
            if name != "schedule":
                assert np.float32(state.hyperparameters["learning_rate"]) == np.float32(0.01)


@pytest.mark.parametrize("kit", KITS)
def test_an_average_of_weights_is_named(kit, tmp_path):
    """Its arrays stand before those of the other slots."""
    model = trained(KITS[kit], KITS[kit].optimizers.Adam(0.01, use_ema=True))
    model.save(tmp_path / "a.keras")
    for entry, weights in rl.load(tmp_path / "a.keras").items():
        slots = states_of(model, model.get_layer(entry))
        slots.pop("average", None)
        assert weights.optimizer.notes == (
            "optimizer: not read, because their kind is not known: 'average'",
        )
        weights.optimizer = dataclasses.replace(weights.optimizer, notes=())
        assert_states(weights, slots)


def test_sgd_of_keras_2_stores_a_momentum_that_it_does_not_have(tmp_path):
    model = trained(tf_keras, "sgd")
    model.save(tmp_path / "a.keras")
    for entry, weights in rl.load(tmp_path / "a.keras").items():
        assert_states(weights, states_of(model, model.get_layer(entry)))


def test_numbers_without_a_known_order_are_named(tmp_path):
    model = trained(keras, keras.optimizers.Nadam())
    model.save(tmp_path / "a.keras")
    found = rl.load(tmp_path / "a.keras")
    assert all(weights.optimizer is None for weights in found.values())
    assert sum("the order of its slots is not known" in note for note in found.notes) == 2


def is_about_states(note):
    return "optimizer" in note


def test_weights_alone_name_what_to_save(tmp_path):
    """Its variables have numbers, and the class of the optimizer is not recorded."""
    model = trained(keras, "adam")
    for name in ("a.weights.h5", "b.weights.json"):
        model.save_weights(tmp_path / name, max_shard_size=1 if "json" in name else None)
        found = rl.load(tmp_path / name)
        assert all(weights.optimizer is None for weights in found.values())
        assert sum(name.startswith("optimizer/vars/") for name in found.others) > 20
        (note,) = filter(is_about_states, found.notes)
        advice = note.rpartition(": save the whole compiled model, ")[2]
        eval(advice.replace("model.keras", f"{tmp_path}/m.keras"), {"model": model})
        assert all(weights.optimizer for weights in rl.load(tmp_path / "m.keras").values())


def test_an_optimizer_that_made_no_step_has_no_notes(tmp_path):
    layers = [keras.layers.Input((4, I)), keras.layers.LSTM(H)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    for name in ("a.keras", "a.h5", "a.weights.h5"):
        (model.save_weights if "weights" in name else model.save)(tmp_path / name)
        found = rl.load(tmp_path / name)
        (weights,) = found.values()
        assert weights.optimizer is None and not [*filter(is_about_states, found.notes)]


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_states_were_read_from_a_second_opening_with_a_budget_of_its_own(
    suffix, tmp_path, monkeypatch
):
    trained(keras, "adam").save(tmp_path / f"a{suffix}")
    charge, budgets = Budget.charge, []

    def charged(self, *arguments):
        budgets.extend([self] * all(budget is not self for budget in budgets))
        charge(self, *arguments)

    monkeypatch.setattr(Budget, "charge", charged)
    found = rl.load(tmp_path / f"a{suffix}")
    (budget,) = budgets
    slots = [slot for weights in found.values() for slot in weights.optimizer.slots.values()]
    assert len(slots) == 4
    arrays = [array for weights in (*found.values(), *slots) for array in weights.values()]
    assert budget._used["weights"] == sum(array.nbytes for array in arrays)
    assert budget._used["uses"] == len(arrays)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_states_have_the_spec_of_the_caller(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    trained(keras, "adam").save(path)
    spec = rl.load(path)["first"].spec.replace(bias="input")
    weights = rl.load(path, spec, prefix="first", dtype="float64")["first"]
    assert weights.spec == spec.replace(dtype="float64")
    assert {slot.spec for slot in weights.optimizer.slots.values()} == {spec}


def test_a_frozen_layer_beside_another_of_the_same_shapes(tmp_path):
    model = trained(keras, "adam", twins=True, frozen=True)
    for suffix in (".keras", ".h5"):
        model.save(tmp_path / f"a{suffix}")
        found = rl.load(tmp_path / f"a{suffix}")
        assert_states(found["first"], states_of(model, model.get_layer("first")))
        assert found["twin_0"].optimizer is None
        if suffix == ".h5":  # which has names
            assert_states(found["twin_1"], states_of(model, model.get_layer("twin_1")))
        else:
            assert found["twin_1"].optimizer is None
            assert any("1 times in the optimizer, 2 times in the model" in n for n in found.notes)
        # of the layers that prefix= chooses alone, the frozen one had the state of the other
        assert rl.load(tmp_path / f"a{suffix}", prefix="twin_0")["twin_0"].optimizer is None
        first = rl.load(tmp_path / f"a{suffix}", prefix="first")["first"]
        assert_states(first, states_of(model, model.get_layer("first")))


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_the_arrays_of_an_optimizer_were_left_out_without_a_word(suffix, tmp_path):
    trained(keras, "adam").save(tmp_path / f"a{suffix}")
    done = rl.convert_file(tmp_path / f"a{suffix}", tmp_path / "b.npz", to="torch")
    assert sum(name.startswith("optimizer") for name in done.left_out) > 20
    model = tmp_path / f"a{suffix}"
    rl.save(tmp_path / "new.npz", dict(rl.load(model)))
    done = rl.convert_file(tmp_path / "new.npz", tmp_path / f"c{suffix}", into=model)
    assert "the optimizer's state is unchanged: it belongs to the old tensors" in done.notes
