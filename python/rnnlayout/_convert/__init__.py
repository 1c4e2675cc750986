"""Conversions of one RNN's weights to another layout."""
