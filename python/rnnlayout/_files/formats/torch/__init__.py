"""PyTorch checkpoints."""
