"""Files as sets of named tensors, and the RNNs found among them."""
