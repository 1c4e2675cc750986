"""Files as sets of named tensors, and the RNNs in a set."""
