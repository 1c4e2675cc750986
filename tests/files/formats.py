"""The formats that are read and written, and layouts that their files may have: the registry's."""

from rnnlayout._files.formats.registry import (
    FORMATS,
    ModelFormat,
    format_named,
    readable_suffixes,
    writable_suffixes,
)

SOME = ["torch", "keras", "onnx", "cudnn"]  # of a format that stores any layout
FORMATS_BY_SUFFIX = {
    one.suffix: one
    for suffix in FORMATS
    if suffix in readable_suffixes() and suffix in writable_suffixes()
    for one in [format_named(suffix[1:])]
}
LAYOUTS = {
    suffix: list(one.layouts) if isinstance(one, ModelFormat) else SOME
    for suffix, one in FORMATS_BY_SUFFIX.items()
}
SINGLE = [suffix for suffix, one in FORMATS_BY_SUFFIX.items() if getattr(one, "single", False)]
