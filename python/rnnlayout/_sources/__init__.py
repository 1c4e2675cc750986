"""Whatever a user passes in, read as one checked RNN; errors that say how to repair the call."""
