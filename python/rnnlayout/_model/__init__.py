"""Specs, layouts, and one RNN's checked arrays."""
