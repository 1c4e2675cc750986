"""The file formats, one module or folder each."""
