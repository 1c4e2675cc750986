"""The states of optax in Flax's files: each slot of each RNN, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn, serialization
from flax.training.train_state import TrainState

import rnnlayout as rl

I, H = 3, 5  # noqa: E741


class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.OptimizedLSTMCell(H), name="first")(x)
        return nn.Dense(2, name="mu")(nn.RNN(nn.GRUCell(H + 1), name="second")(x))


def trained(transform):
    model, x = Model(), jnp.linspace(-1, 1, 2 * 4 * I).reshape(2, 4, I)
    params = model.init(jax.random.key(0), x)["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=transform)

    def loss(params):
        return (model.apply({"params": params}, x) ** 3).sum()

    for _ in range(2):
        state = state.apply_gradients(grads=jax.grad(loss)(state.params))
    return state


def load(folder, contents):
    (folder / "a.msgpack").write_bytes(serialization.to_bytes(contents))
    return rl.load(folder / "a.msgpack")


TRANSFORMS = {
    "adam": (
        optax.chain(optax.clip(1.0), optax.adam(1e-3)),
        {"mu": "gradient", "nu": "squared_gradient"}, 2,
    ),
    "momentum": (optax.sgd(1e-3, momentum=0.9), {"trace": "gradient"}, None),
    "rmsprop": (optax.rmsprop(1e-3), {"nu": "squared_gradient"}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_states_of_optax_were_read_as_rnns(name, tmp_path):
    transform, kinds, step = TRANSFORMS[name]
    state = trained(transform)
    found = load(tmp_path, state)
    cells = [path for path in found if path.startswith("params/")]
    assert len(cells) == 2 and [*found] == cells and not found.notes
    states = jax.tree_util.tree_leaves(
        state.opt_state, is_leaf=lambda node: any(hasattr(node, slot) for slot in kinds)
    )
    (state_of_optax,) = (node for node in states if any(hasattr(node, slot) for slot in kinds))
    for cell in cells:
        optimizer = found[cell].optimizer
        assert {slot: weights.kind for slot, weights in optimizer.slots.items()} == kinds
        assert (optimizer.step, optimizer.notes) == (step, ())
        for slot, weights in optimizer.slots.items():
            tree = getattr(state_of_optax, slot)[cell.removeprefix("params/")]
            assert [*weights] == [*found[cell]]
            for tensor, array in weights.items():
                part, leaf = tensor.split("/")
                assert array.tobytes() == np.asarray(tree[part][leaf]).tobytes() and array.any()


def test_two_trees_with_the_names_of_a_state(tmp_path):
    state = trained(TRANSFORMS["adam"][0])
    found = load(tmp_path, {"a": state.params, "b": state.params, "opt_state": state.opt_state})
    assert all(weights.optimizer is None for weights in found.values())
    assert any("names and shapes of several trees: 'a', 'b'" in note for note in found.notes)


def test_a_conversion_names_the_state(tmp_path):
    load(tmp_path, trained(TRANSFORMS["adam"][0]))
    done = rl.convert_file(tmp_path / "a.msgpack", tmp_path / "b.msgpack", to="torch", only=None)
    assert any("optimizer's state is unchanged" in note for note in done.notes)
