"""Read any source as a checked RNN; errors explain how to repair the call."""
