"""Comparison of two RNNs: equal or not, and the causes of differences."""
