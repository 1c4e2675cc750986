"""The optimizer of a .keras archive of Keras 2 in the archive for Keras 3: training goes on as if
it had not been interrupted, or a note has the reason why it cannot."""

import io
import json
import re

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from files.hostile.good import members
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl

pytestmark = KERAS_NOISE
L, O = tf_keras.layers, tf_keras.optimizers  # noqa: E741
T, I, H = 6, 3, 5  # noqa: E741
rng = np.random.default_rng(0)
X, Y = (rng.normal(size=shape).astype("f4") for shape in ((32, T, I), (32, 2)))
STEPS = 20

OPTIMIZERS = {
    "Adam": lambda: O.Adam(0.01),
    "frozen": lambda: O.Adam(0.01),
    "by name": lambda: "adam",
    "AdamW": lambda: O.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.1),
    "SGD": lambda: O.SGD(0.1, momentum=0.9, nesterov=True, clipvalue=0.1),
    "RMSprop": lambda: O.RMSprop(0.005, momentum=0.5, centered=True),
    "amsgrad": lambda: O.Adam(0.01, 0.8, 0.99, 1e-5, amsgrad=True, clipnorm=0.1, weight_decay=0.01),
    "Adagrad": lambda: O.Adagrad(0.05),
    "Lion": lambda: O.Lion(0.003),
    "average": lambda: O.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3),
}


def network(frozen=False, **options):
    tf_keras.utils.set_random_seed(1)
    return tf_keras.Sequential([
        L.Input((T, I)), L.LSTM(H, return_sequences=True, trainable=not frozen),
        L.BatchNormalization(), L.GRU(H + 2, **options), L.Dense(2),
    ])  # fmt: skip


def train(model):
    """Train STEPS steps; return their losses and the weights after them, as a vector."""
    fit = model.fit(X, Y, epochs=STEPS // 2, batch_size=16, shuffle=False, verbose=0)
    return np.array(fit.history["loss"]), vector(model)


def make_two_steps(model):
    """With random gradients, which need no backward pass."""
    variables = model.trainable_variables
    for _ in range(2):
        gradients = [rng.normal(size=variable.shape).astype("f4") for variable in variables]
        model.optimizer.apply_gradients(zip(map(tf.constant, gradients), variables, strict=True))


def vector(model):
    return np.concatenate([np.asarray(array).reshape(-1) for array in model.get_weights()])


def compiled_with_its_optimizer(model, notes):
    """Compile the model as the note says."""
    (note,) = notes
    eval(re.search(r"model\.compile\(.*?\)", note)[0], {"model": model})
    return model


@pytest.mark.parametrize("name", [
    *("Adam", "frozen", "by name", "SGD"),
    *(pytest.param(name, marks=pytest.mark.long)
      for name in ("AdamW", "RMSprop", "amsgrad", "Adagrad", "Lion", "average")),
])  # fmt: skip
def test_training_goes_on(name, tmp_path):
    """Beside a run that was not interrupted, and one whose optimizer starts anew."""
    model = network(frozen=name == "frozen")
    model.compile(OPTIMIZERS[name](), "mse")
    train(model)
    if name == "Adam":
        model.optimizer.learning_rate.assign(0.02)  # as a callback does
    model.save(tmp_path / "old.keras")
    start = vector(model)
    losses, end = train(model)

    done = rl.convert_file(tmp_path / "old.keras", tmp_path / "new.keras", to="keras")
    resumed = compiled_with_its_optimizer(
        keras.models.load_model(tmp_path / "new.keras"), done.notes
    )
    anew = keras.models.load_model(tmp_path / "new.keras")
    anew.compile(type(anew.optimizer).from_config(anew.optimizer.get_config()), "mse")
    way = np.linalg.norm(end - start)
    # An element of a gradient is a sum over the batch of 16 and T, and each term one of products
    # over 5 H + I, forward and backward: each rounds by 2^-24. An optimizer that divides by the
    # root of the mean square passes 10 times this share on, where an element is a tenth of the
    # others. The steps add it up.
    tolerance = STEPS * 10 * (16 * T + 5 * H + I) * 2.0**-24
    new_losses, new_end = train(resumed)
    assert np.linalg.norm(new_end - end) <= tolerance * way
    assert np.abs(new_losses / losses - 1).max() <= tolerance
    _, anew_end = train(anew)
    assert np.linalg.norm(anew_end - end) > 50 * tolerance * way


def graph():
    """Return a model whose layers have equal shapes in branches, and are shared, nested, or frozen
    in each way."""
    frozen, every = {"trainable": False}, {"return_sequences": True}
    x = L.Input((T, I))
    inner = tf_keras.Sequential([L.Input((T, I)), L.GRU(I, **every), L.PReLU()], name="inner")
    shared = L.LSTM(I, **every, name="shared")
    last, *states = L.LSTM(I, **every, return_state=True)(shared(x))
    branches = [
        L.Bidirectional(L.GRU(I, **every))(shared(inner(x))),
        L.LSTM(I, **every)(last, initial_state=[L.Dense(I)(state) for state in states]),
        L.RNN([L.GRUCell(I), L.LSTMCell(I)], **every)(L.TimeDistributed(L.Dense(I))(x)),
        L.RNN([L.GRUCell(I, **frozen), L.LSTMCell(I)], **every)(inner(x)),
        L.Bidirectional(L.GRU(I, **every), **frozen)(x), L.LSTM(I, **every, **frozen)(x),
        L.TimeDistributed(L.Dense(I), **frozen)(x),
        L.BatchNormalization()(L.LayerNormalization()(L.Dropout(0.5)(x))),
        L.BatchNormalization(center=False)(L.Conv1D(I, 1)(x)),
    ]  # fmt: skip
    y = L.Concatenate()(branches)
    heads = [L.Dense(2, name=name)(y) for name in ("z", "a")]
    return tf_keras.Model(x, {"z": heads[0], "a": L.Dense(2, name="b")(heads[1])})


def test_each_variable_has_its_state(tmp_path):
    """In the order of Keras 3, which makes the graph anew."""
    model = graph()
    model.compile(OPTIMIZERS["amsgrad"](), "mse")
    make_two_steps(model)
    model.save(tmp_path / "old.keras")
    rl.convert_file(tmp_path / "old.keras", tmp_path / "new.keras", to="keras")
    loaded = keras.models.load_model(tmp_path / "new.keras")
    old, new = model.optimizer, loaded.optimizer
    kinds = [("_momentums",) * 2, ("_velocities",) * 2, ("_velocity_hats",) * 2]
    slots = [(getattr(old, a), getattr(new, b)) for a, b in kinds]
    slots.append((model.trainable_variables, loaded.trainable_variables))
    assert len(loaded.trainable_variables) > 40 and int(new.iterations) == int(old.iterations) == 2
    for before, after in slots:
        for a, b in zip(before, after, strict=True):
            assert np.array_equal(a.numpy(), keras.ops.convert_to_numpy(b))
    before = old.get_config()
    assert {key for key, value in new.get_config().items() if before.get(key) != value} == set()


def test_load_finds_the_same_states_in_the_new_file(tmp_path):
    model = network()
    model.compile("adam", "mse")
    make_two_steps(model)
    model.save(tmp_path / "old.keras")
    rl.convert_file(tmp_path / "old.keras", tmp_path / "new.keras", to="keras")
    old, new = (rl.load(tmp_path / f"{name}.keras") for name in ("old", "new"))
    assert len(old) == 2 and [*old] == [*new]
    for name, weights in old.items():
        before, after = weights.optimizer, new[name].optimizer
        assert before.step == after.step == 2
        names = zip(before.slots, after.slots, strict=True)
        for a, b in names:
            assert (a, b) in (("m", "momentum"), ("v", "velocity"))
            assert np.array_equal(before.slots[a].pack(), after.slots[b].pack())
        assert after.hyperparameters["learning_rate"] == 0.001


class Adam(O.Adam):
    """Of a user: what it does with its slots is not known."""


def frozen_later(model):
    model.layers[0].trainable = False


RATES = O.schedules.ExponentialDecay(0.01, 10, 0.9)
LEFT = {  # optimizer, options of a GRU, what happens before the model is saved, the reason
    "class": (O.Nadam, {}, None, "'Nadam' is not one of Adam, AdamW"),
    "subclass": (Adam, {}, None, r"test_carried_optimizer.Adam' is not one of Adam, AdamW"),
    "schedule": (lambda: O.Adam(RATES), {}, None, "the 'learning_rate' of Adam is a schedule"),
    "plain": (O.SGD, {}, None, "SGD without a momentum keeps nothing"),
    "frozen": (O.Adam, {}, frozen_later, "the arrays of Adam are not 14 of the shapes of the model'"
               "s 7 trainable variables: .* layers were frozen"),
    "scaled": (O.Adam, {"recurrent_activation": "hard_sigmoid"}, None, "have another form"),
    "legacy": (O.legacy.Adam, {}, None, "the 'decay' of Adam is a schedule, or not known"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_cannot_go_on_is_named(name, tmp_path):
    """And the model is loaded without an optimizer, as is one of an optimizer without a step."""
    make, options, change, reason = LEFT[name]
    for is_trained in (True, False):
        model = network(**options)
        model.compile(make(), "mse")
        if is_trained:
            make_two_steps(model)
            if change:
                change(model)
        path = tmp_path / f"{is_trained}.keras"
        model.save(path)
        (note,) = rl.convert_file(path, tmp_path / "new.keras", to="keras", force=True).notes
        assert note.startswith("compile_config is kept as compile_config_of_keras_2: ")
        why = reason if is_trained or change is None else "it made no step"
        assert re.search(f"its optimizer is not converted: .*{why}", note)
        assert not keras.models.load_model(tmp_path / "new.keras").compiled


def test_an_h5_file_has_no_optimizer_for_keras_3(tmp_path):
    """Keras 3 restores none from its own: the next step fails."""
    model = keras.Sequential([keras.Input((T, I)), keras.layers.LSTM(2)])
    model.compile("adam", keras.losses.MeanSquaredError())
    train(model)
    model.save(tmp_path / "own.h5")
    with pytest.raises(ValueError, match="Unknown variable"):
        train(keras.models.load_model(tmp_path / "own.h5"))

    model = network()
    model.compile("adam", "mse")
    train(model)
    model.save(tmp_path / "old.h5")
    (note,) = rl.convert_file(tmp_path / "old.h5", tmp_path / "new.h5", to="keras").notes
    assert "its optimizer is not converted: Keras 3 does not restore one from an .h5 file" in note
    tf_keras.models.load_model(tmp_path / "old.h5").save(tmp_path / "old.keras")  # as it advises
    done = rl.convert_file(tmp_path / "old.keras", tmp_path / "new.keras", to="keras")
    loaded = compiled_with_its_optimizer(
        keras.models.load_model(tmp_path / "new.keras"), done.notes
    )
    assert int(loaded.optimizer.iterations) == STEPS
    assert np.allclose(train(loaded)[1], train(model)[1], atol=1e-3)


def test_the_archive_is_one_of_keras_3(tmp_path):
    """Its variables have the numbers that Keras 3 gives them."""
    model = network()
    model.compile(O.AdamW(0.01), "mse")
    make_two_steps(model)
    model.save(tmp_path / "old.keras")
    rl.convert_file(tmp_path / "old.keras", tmp_path / "new.keras", to="keras")
    keras.models.load_model(tmp_path / "new.keras").save(tmp_path / "own.keras")
    new, own = (optimizer_in(tmp_path / f"{name}.keras") for name in ("new", "own"))
    assert len(new[0]) == 2 + 2 * 10 and new[0].keys() == own[0].keys()
    assert all(np.array_equal(new[0][k], own[0][k]) for k in new[0])
    assert new[1]["class_name"] == own[1]["class_name"] == "AdamW"
    assert new[1]["config"].items() <= own[1]["config"].items()


def optimizer_in(path):
    """Return the variables and the config of the optimizer of an archive."""
    parts = members(path.read_bytes())
    with h5py.File(io.BytesIO(parts["model.weights.h5"])) as file:
        variables = {number: array[()] for number, array in file["optimizer/vars"].items()}
    return variables, json.loads(parts["config.json"])["compile_config"]["optimizer"]
