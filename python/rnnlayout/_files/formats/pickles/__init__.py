"""Pickles read as data."""
