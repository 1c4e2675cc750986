"""The GRU cell that the package g2p-en ships."""

import sys

import numpy as np
from commands import ROOT

sys.path.insert(0, str(ROOT / "examples"))
from recurrence import sigmoid


def grucell(x, h, w_ih, w_hh, b_ih, b_hh):
    """The cell of g2p_en/g2p.py, with its own names."""
    rzn_ih = np.matmul(x, w_ih.T) + b_ih
    rzn_hh = np.matmul(h, w_hh.T) + b_hh
    cut = rzn_ih.shape[-1] * 2 // 3
    rz = sigmoid(rzn_ih[:, :cut] + rzn_hh[:, :cut])
    r, z = np.split(rz, 2, -1)
    n = np.tanh(rzn_ih[:, cut:] + r * rzn_hh[:, cut:])
    return (1 - z) * n + z * h
