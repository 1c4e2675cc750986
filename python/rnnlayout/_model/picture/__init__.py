"""Pictures of the memory of an RNN's tensors."""
