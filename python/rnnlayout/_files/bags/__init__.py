"""Files as bags of named tensors, and the RNNs found among them."""
