"""Move a half-trained RNN, with the state of Adam, from PyTorch to Keras and back, and go on.

    python tools/resumed_training.py            print the figures
    python tools/resumed_training.py --write    write them into docs/howto/training-goes-on.md

An RNN learns the outputs of a random RNN of the same sizes: STEPS steps in one framework, then
STEPS steps in the other, beside STEPS more steps in the first. "off" is the distance between the
weights of both ends, as a share of the distance that the uninterrupted run went in these steps;
the two biases of PyTorch are compared by their sum.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import re
from functools import partial

import generated
import keras
import numpy as np
import torch

import rnnlayout as rl

STEPS, RATE, EPSILON = 200, 2e-3, 1e-8
T, N, I, H = 6, 16, 6, 24  # noqa: E741
torch.set_num_threads(1)  # small networks: threads would only wait for each other
PAGE = generated.ROOT / "docs" / "howto" / "training-goes-on.md"
KINDS = {"exp_avg": "gradient", "exp_avg_sq": "squared_gradient"}
TORCH = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU}
KERAS = {"LSTM": keras.layers.LSTM, "GRU": keras.layers.GRU}


class Torch:
    """A module of torch and its Adam. freezes: whether bias_hh is not trained."""

    layout = "torch"

    def __init__(self, cell, freezes=False):
        self.module = TORCH[cell](I, H, batch_first=True)
        self.module.bias_hh_l0.requires_grad_(not freezes)
        self.parameters = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        self.adam = torch.optim.Adam(self.parameters.values(), RATE, eps=EPSILON)

    def step(self, x, y):
        self.adam.zero_grad()
        loss = (self.module(x)[0] - y).square().mean()
        loss.backward()
        self.adam.step()
        return loss.item()

    def weights(self):
        return rl.Weights({name: p.detach().clone() for name, p in self.module.named_parameters()})

    def moments(self):
        """Return the moments by name. A frozen bias gets the moments of the other."""
        states = {name: self.adam.state[p] for name, p in self.parameters.items()}
        states.setdefault("bias_hh_l0", states["bias_ih_l0"])
        return {key: {n: s[key].clone() for n, s in states.items()} for key in KINDS}

    def resume(self, weights, moments, steps_done):
        rl.assign(self.module, weights)
        if moments is None:
            return self
        for name, parameter in self.parameters.items():
            state = {key: torch.tensor(tensors[name]) for key, tensors in moments.items()}
            self.adam.state[parameter] = {"step": torch.tensor(float(steps_done)), **state}
        return self


class Keras:
    """A layer of Keras and its Adam."""

    layout = "keras"

    def __init__(self, cell):
        self.layer = KERAS[cell](H, return_sequences=True)
        self.layer.build((None, T, I))
        self.adam = keras.optimizers.Adam(RATE, epsilon=EPSILON)
        self.adam.build(self.layer.trainable_variables)
        self.states = {"exp_avg": self.adam._momentums, "exp_avg_sq": self.adam._velocities}

    def step(self, x, y):
        variables = self.layer.trainable_variables
        loss = (self.layer(x) - y).square().mean()
        gradients = torch.autograd.grad(loss, [variable.value for variable in variables])
        with torch.no_grad():
            self.adam.apply(list(gradients), variables)
        return loss.item()

    def weights(self):
        return rl.Weights([np.copy(array) for array in self.layer.get_weights()], layout="keras")

    def moments(self):
        return {
            key: [np.copy(keras.ops.convert_to_numpy(state)) for state in states]
            for key, states in self.states.items()
        }

    def resume(self, weights, moments, steps_done):
        rl.assign(self.layer, weights)
        if moments is None:
            return self
        for key, tensors in moments.items():
            for state, array in zip(self.states[key], tensors.values(), strict=True):
                state.assign(array)
        self.adam.iterations.assign(steps_done)
        return self


def train(trainer, data):
    return [trainer.step(*batch) for batch in data]


def problem(cell):
    """Return the batches of both halves, and random weights to start from."""
    torch.manual_seed(7)
    teacher, start = (TORCH[cell](I, H, batch_first=True) for _ in range(2))
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter *= 2
        xs = [torch.randn(N, T, I) for _ in range(2 * STEPS)]
        batches = [(x, teacher(x)[0]) for x in xs]
    return batches[:STEPS], batches[STEPS:], rl.Weights(start).to("keras")


def vector(weights):
    """Return all weights as numbers in Keras's layout, where two biases are one."""
    arrays = rl.Weights(weights).to("keras", dtype="float64").arrays
    return np.concatenate([array.view("f8").reshape(-1) for array in arrays])


def resumed(cell, first, second):
    """Train in `first`, go on in `first`, and in `second` with and without the moments. first,
    second: functions that make a trainer. Yield (off, loss at the second step, last loss) of both,
    losses as a share of those of the uninterrupted run."""
    before, after, start = problem(cell)
    stays = first()
    stays.resume(start.to(stays.layout), None, 0)
    train(stays, before)
    half, moments = stays.weights(), stays.moments()
    losses = train(stays, after)
    end, way = vector(stays.weights()), vector(stays.weights()) - vector(half)
    for has_moments in True, False:
        goes_on = second()
        converted = {
            key: rl.convert(
                tensors, half.spec, layout=half.layout, to=goes_on.layout, kind=KINDS[key]
            )
            for key, tensors in moments.items()
        }
        goes_on.resume(half.to(goes_on.layout), converted if has_moments else None, STEPS)
        others = train(goes_on, after)
        off = np.linalg.norm(vector(goes_on.weights()) - end) / np.linalg.norm(way)
        yield off, others[1] / losses[1], others[-1] / losses[-1]


def table():
    lines = [
        "| RNN | way | off, with the moments | next loss | last loss | off, weights alone |"
        " next loss | last loss |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for cell, freezes in (("GRU", False), ("LSTM", True), ("LSTM", False)):
        name = f"{cell}, `bias_hh` frozen" if freezes else cell
        ways = {"PyTorch to Keras": (partial(Torch, cell, freezes), partial(Keras, cell))}
        ways["Keras to PyTorch"] = ways["PyTorch to Keras"][::-1]
        for way, makers in ways.items():
            numbers = [
                number
                for off, second, last in resumed(cell, *makers)
                for number in (f"{off:.2%}", f"{second:.3f}", f"{last:.3f}")
            ]
            lines.append(f"| {name} | {way} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def main():
    found = table()
    marks = r"(<!-- resumed training -->\n).*?(<!-- end -->)"
    page = PAGE.read_text()
    text = re.sub(marks, lambda m: f"{m[1]}{found}\n{m[2]}", page, flags=re.DOTALL)
    print(found)
    return generated.main({PAGE: text})


if __name__ == "__main__":
    raise SystemExit(main())
