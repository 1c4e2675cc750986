"""Specs, layouts, and the weights of one RNN."""
