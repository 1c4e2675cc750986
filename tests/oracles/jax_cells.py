"""Cells of Flax and Equinox with random weights. The frameworks' own initializers are not run: to
compile them takes seconds."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from oracles.frameworks import seeded, weight

KEY = np.zeros(2, np.uint32)  # jax.random.PRNGKey(0) would start JAX, which cannot be forked then


def filled(tree, *labels):
    """Return a tree of arrays, or of their shapes, with random values."""
    rng = seeded(*labels)
    return jax.tree.map(lambda a: jnp.asarray(weight(rng, a.shape), a.dtype), tree)


def emptied(tree):
    return jax.tree.map(lambda a: jnp.asarray(np.zeros(a.shape, a.dtype)), tree)


def nnx_cell(make, inputs, hidden, *labels, **options):
    zeros = nnx.initializers.zeros_init()
    options = {"kernel_init": zeros, "recurrent_kernel_init": zeros, **options}
    cell = make(inputs, hidden, rngs=nnx.Rngs(0), **options)
    nnx.update(cell, filled(nnx.state(cell, nnx.Param), "nnx", *labels))
    return cell


def equinox_cell(make, inputs, hidden, *labels, **options):
    shapes = eqx.filter_eval_shape(make, inputs, hidden, key=KEY, **options)
    return filled(shapes, "Equinox", *labels)
