"""Pictures of the tensors of an RNN as they lie in memory."""
