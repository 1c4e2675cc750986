"""Turn what a user passes in into one checked RNN, or into an error that repairs the call."""
