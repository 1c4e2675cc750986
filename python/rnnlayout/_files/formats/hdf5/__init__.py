"""A reader of untrusted HDF5 files: the part of the format that Keras and h5py write."""
