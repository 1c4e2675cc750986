"""Specs, layouts, and the weights of an RNN."""
