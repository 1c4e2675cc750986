"""Whether two RNNs are the same, and if not, why."""
