"""Keras models and weights, in HDF5 and in .keras archives."""
