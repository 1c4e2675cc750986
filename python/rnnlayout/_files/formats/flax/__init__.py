"""Files of flax.serialization."""
