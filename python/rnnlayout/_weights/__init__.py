"""Weights: an RNN's weights as an object."""
