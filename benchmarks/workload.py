"""A workload of the benchmarks: an RNN with random weights, and its inputs."""

from dataclasses import dataclass

import numpy as np

import rnnlayout as rl


@dataclass
class Problem:
    """One workload: torch's tensors, x of shape (T, N, I), and for T = 1 a state (streaming)."""

    spec: rl.Spec
    T: int
    N: int

    def __post_init__(self):
        spec, rng = self.spec, np.random.default_rng(0)
        bound = spec.hidden_size**-0.5  # torch's own initialization
        self.weights = {
            name: rng.uniform(-bound, bound, shape).astype("f4")
            for name, shape in rl.describe(spec, "torch").items()
        }
        self.x = rng.standard_normal((self.T, self.N, spec.input_size), "f4")
        self.state_shape = (spec.num_layers * spec.num_directions, self.N, spec.hidden_size)
        self.states = 2 if spec.cell == "lstm" else 1
        self.state = None
        if self.T == 1:
            self.state = [rng.uniform(-1, 1, self.state_shape).astype("f4")
                          for _ in range(self.states)]  # fmt: skip

    @property
    def flops(self):
        """Floating-point operations of the matrix products; the rest is a few per thousand."""
        return 2 * self.T * self.N * sum(w.size for n, w in self.weights.items() if "weight" in n)

    def space(self, dtype="float32"):
        """Return the weights as cuDNN's weight space."""
        return rl.pack(self.weights, self.spec, layout="torch", dtype=dtype)


def outputs(problem):
    """Return arrays for out=, h_out= and c_out= of a call."""
    spec = problem.spec
    y = np.zeros((problem.T, problem.N, spec.num_directions * spec.hidden_size), "f4")
    last = [np.zeros(problem.state_shape, "f4") for _ in range(problem.states)]
    return {"out": y} | dict(zip(("h_out", "c_out"), last, strict=False))
