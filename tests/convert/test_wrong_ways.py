"""Three common mistakes, each compared with the right way.

Each packs the same torch module into cuDNN's weight space as published code does, and is run by the
same float64 recurrence. The shapes fit and nothing is refused: only the outputs differ.
"""

import numpy as np
import pytest
from oracles.frameworks import H, I, inputs, run_torch, seeded, torch_module
from oracles.reference import GATES, Run, distance, forward, from_cudnn

import rnnlayout as rl

# In units of what float32's rounding explains (reference.Rounded). The right way is at most 1,
# measured 0.15; the mistakes are above 100,000, far beyond any tolerance.
FAR = 100_000

every_cell = pytest.mark.parametrize("cell", GATES)


class Case:
    """A torch module, what it computes, and its weight space by rnnlayout."""

    def __init__(self, cell, num_layers=1, bidirectional=False):
        self.spec = rl.Spec(cell, I, H, num_layers, bidirectional)
        rng = seeded("wrong ways", self.spec)
        self.module = torch_module(self.spec, rng)
        self.given = inputs(rng, self.spec)
        self.run = run_torch(self.module, *self.given)
        self.ours = rl.pack(self.module)
        self.expected = self.forward(self.ours)

    def state(self):
        return {name: p.detach().numpy() for name, p in self.module.named_parameters()}

    def forward(self, flat):
        return forward(from_cudnn(flat, self.spec), self.spec, *self.given)

    def is_far_off(self, flat):
        """Is the result of a weight space of the right size far from torch's?"""
        assert flat.shape == self.ours.shape and flat.dtype == self.ours.dtype
        assert distance(self.run, self.expected) <= 1  # ours, with all that rounding explains
        theirs = self.forward(flat)
        run = Run(*(part and part.value for part in (theirs.y, theirs.h, theirs.c)))
        # torch's outputs are at most about 1, those of relu somewhat larger
        return distance(run, self.expected) > FAR and np.abs(run.y - self.run.y).max() > 0.1


def joined(arrays):
    return np.concatenate([np.ravel(a) for a in arrays])


def matrices_then_biases(state):
    """Return torch's tensors in cuDNN's order, one gate or all: all matrices, then all biases."""
    return joined(
        [state[n] for n in state if n.startswith("weight")]
        + [state[n] for n in state if n.startswith("bias")]
    )


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_ours_is_right(cell, num_layers, bidirectional):
    case = Case(cell, num_layers, bidirectional)
    assert distance(case.run, case.expected) <= 1  # reference.Rounded


# ------------------------------------------------------------------ 1. transposing torch's matrices
# "cuDNN is column-major like BLAS, so transpose." It is not: both store each matrix (H, in) row by
# row. The sizes are right, because a transposed matrix has as many elements.


def transposed(state, H, which):
    return {
        name: joined(block.T for block in np.split(array, len(array) // H))
        if name.startswith(which) else array
        for name, array in state.items()
    }  # fmt: skip


@every_cell
@pytest.mark.parametrize("which", ["weight_ih", "weight_hh", "weight"])
def test_transposing_the_matrices(cell, which):
    case = Case(cell)
    theirs = matrices_then_biases(transposed(case.state(), H, which))
    assert np.array_equal(np.sort(theirs), np.sort(case.ours))
    assert case.is_far_off(theirs)
    # nothing else is wrong
    assert np.array_equal(matrices_then_biases(case.state()), case.ours)


# ---------------------------------------------------------- 2. gate order i, f, o, g for i, f, g, o
# "Input, forget, output, candidate": the order in which papers list the gates. A sigmoid gate
# then gets the candidate's weights and the tanh the output gate's.


def gates_in_order(state, right, wrong):
    return {
        name: np.concatenate([dict(zip(right, np.split(array, len(right)), strict=True))[gate]
                              for gate in wrong])
        for name, array in state.items()
    }  # fmt: skip


@pytest.mark.parametrize("wrong", ["ifog", "iofg", "igfo"])
def test_another_gate_order_of_an_lstm(wrong):
    case = Case("lstm")
    theirs = matrices_then_biases(gates_in_order(case.state(), "ifgo", wrong))
    assert np.array_equal(np.sort(theirs), np.sort(case.ours))
    assert case.is_far_off(theirs)
    assert np.array_equal(
        matrices_then_biases(gates_in_order(case.state(), "ifgo", "ifgo")), case.ours
    )


@pytest.mark.parametrize("wrong", ["zrn", "rnz"])
def test_another_gate_order_of_a_gru(wrong):
    """Keras's z, r, n for cuDNN's r, z, n, and the candidate in the middle."""
    case = Case("gru")
    theirs = matrices_then_biases(gates_in_order(case.state(), "rzn", wrong))
    assert case.is_far_off(theirs)


# ------------------------------------- 3. biases after each layer instead of after all matrices
# torch's own order of its parameters, one after the other: what `torch.cat([w.flatten() for w in
# module.parameters()])` gives. Right for one layer of one direction, so a first test passes.


@every_cell
@pytest.mark.parametrize("num_layers, bidirectional", [(2, False), (1, True), (3, True)])
def test_biases_after_each_layer(cell, num_layers, bidirectional):
    case = Case(cell, num_layers, bidirectional)
    theirs = joined(case.state().values())
    assert np.array_equal(np.sort(theirs), np.sort(case.ours))
    assert case.is_far_off(theirs)
    assert np.array_equal(matrices_then_biases(case.state()), case.ours)


@every_cell
def test_one_layer_of_one_direction_hides_it(cell):
    case = Case(cell)
    assert np.array_equal(joined(case.state().values()), case.ours)
