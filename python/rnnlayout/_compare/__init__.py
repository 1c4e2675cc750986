"""Comparison of two RNNs: are they the same, and if not, why?"""
