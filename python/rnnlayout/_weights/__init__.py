"""An RNN's weights as an object that users keep."""
