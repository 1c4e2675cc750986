"""One RNN's numbers in another layout."""
