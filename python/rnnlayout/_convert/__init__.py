"""Conversions of the weights of an RNN to another layout."""
