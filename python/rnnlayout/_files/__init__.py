"""RNNs in files."""
