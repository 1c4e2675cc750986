"""An RNN that runs, on the CPU and through cuDNN."""
