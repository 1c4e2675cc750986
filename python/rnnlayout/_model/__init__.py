"""What an RNN is, what a layout is, and one RNN's checked arrays."""
