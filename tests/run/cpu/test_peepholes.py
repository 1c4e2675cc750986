"""TensorFlow's LSTMCell with peepholes: a projection, a clip of the cell state, both. For all else
see the lists of RNNs in test_frameworks, test_reference and running."""

import numpy as np
import pytest
import tensorflow as tf
from oracles.frameworks import KERAS_NOISE, H, I, inputs, seeded, weight
from oracles.reference import PseudoLayer, Run, distance, distance_between, forward
from tf_keras.src.layers.rnn import legacy_cells

import rnnlayout as rl

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore:.*rnn_cell:UserWarning")]

P, CLIP = 3, 0.25


def cell_of(rng, **options):
    """Return the cell, filled, and its variables by their names below it."""
    cell = legacy_cells.LSTMCell(H, use_peepholes=True, **options)
    cell.build((None, I))
    names = [v.name.split("/", 1)[1].removesuffix(":0") for v in cell.weights]
    for variable in cell.weights:
        variable.assign(weight(rng, variable.shape))
    return cell, {n: v.numpy() for n, v in zip(names, cell.weights, strict=True)}


def run_cell(cell, x, h0, c0):
    state, ys = (tf.constant(c0[0]), tf.constant(h0[0])), []
    for x_t in x:
        y, state = cell(tf.constant(x_t), state)
        ys.append(y.numpy())
    return Run(np.stack(ys), state[1].numpy()[None], state[0].numpy()[None])


def by_hand(tensors):
    """Return the weights as the reference takes them: TensorFlow's order is i, j, f, o."""
    kernel, bias = (np.split(np.float64(tensors[n]), 4, -1) for n in ("kernel", "bias"))
    bias[2] = bias[2] + 1  # the cell's forget bias
    W, R = ({g: part.T for g, part in zip("igfo", parts, strict=True)}
            for parts in ([k[:I] for k in kernel], [k[I:] for k in kernel]))  # fmt: skip
    projection = tensors.get("projection/kernel")
    return [PseudoLayer(
        W, R, dict(zip("igfo", bias, strict=True)), dict.fromkeys("igfo", np.zeros(H)),
        None if projection is None else np.float64(projection.T),
        {g: np.float64(tensors[f"w_{g}_diag"]) for g in "ifo"},
    )]  # fmt: skip


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize("proj", [None, P])
def test_the_cell_of_tensorflow(proj, clip):
    rng = seeded("tf1 runs", proj, clip)
    cell, tensors = cell_of(rng, num_proj=proj, cell_clip=clip)
    spec = rl.Spec("lstm", I, H, proj_size=proj or 0, peepholes=True)
    assert rl.infer_spec(tensors, "tf1") == spec
    x, h0, c0 = inputs(rng, spec)
    limits = None if clip is None else (-clip, clip)
    theirs = run_cell(cell, x, h0, c0)
    expected = forward(by_hand(tensors), spec, x, h0, c0, clip=limits)
    assert distance(theirs, expected) <= 1  # reference.Rounded
    rnn = rl.RNN(tensors, layout="tf1", cell_clip=limits)
    assert rnn.spec == spec
    y, last = rnn(x, (h0, c0))
    assert distance_between(theirs, Run(y, *last), expected) <= 1


def test_what_a_clip_changes():
    """The clip above is reached, and the peephole of o sees the clipped state."""
    rng = seeded("clips")
    _, tensors = cell_of(rng)
    x, h0, c0 = inputs(rng, rl.Spec("lstm", I, H))
    _, (_, free) = rl.forward(x, tensors, layout="tf1", state=(h0, c0))
    assert (abs(free) > CLIP).any() and (abs(free) < CLIP).any()


def test_no_cudnn_form():
    tensors = {"P": np.ones((1, 3 * H), "f4")} | {
        n: np.zeros(s, "f4") for n, s in rl.describe(rl.Spec("lstm", I, H), "onnx").items()
    }
    with pytest.raises(rl.LossyError, match="must be zero for cudnn"):
        rl.pack(tensors)
    assert rl.RNN(tensors, device="auto").device == "cpu"
