"""An RNN that runs, on the CPU or on a GPU with cuDNN."""
