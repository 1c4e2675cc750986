""".h: cuDNN's weight space as an array for C or C++, to compile into a program; written only.

The entry gives the RNN a name in C. The file has macros for the sizes of the RNN, and for each
setting that changes the outputs (NAME_CONFIG_GO_BACKWARDS 1); the array as integers (so that no bit
can change), the offset and size of each region, and a function that finds a region by cuDNN's
numbers.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._model.config import describe_config, how_to_leave_out, unwritten_settings
from rnnlayout._model.describe import regions
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError

from .registry import ModelFormat

_PER_LINE, _PER_CHUNK = 8, 1 << 16  # numbers

# The types in C of an element's bits and of an element; C lacks a type for half precision.
_TYPES = {2: ("uint16_t", "uint16_t"), 4: ("uint32_t", "float"), 8: ("uint64_t", "double")}

_TOP = """\
/* Weights of RNNs in cuDNN's weight space. Written by rnnlayout; do not edit. */
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#ifndef RNNLAYOUT_REGION
#define RNNLAYOUT_REGION
/* One row-major matrix, or one bias (cols 1). pseudo_layer = layer * directions + direction; role W
 * input, R recurrent, P projection, bW, bR; gate i f g o, r z n, h, 0 for a projection. */
struct rnnlayout_region {{
    int pseudo_layer, lin_layer_id;
    char role[3], gate;
    size_t offset; /* bytes */
    int64_t rows, cols;
}};
#endif
"""

_RNN = """
/* {spec}{used} */
#define {NAME}_CELL "{cell}"
#define {NAME}_INPUT_SIZE {input_size}
#define {NAME}_HIDDEN_SIZE {hidden_size}
#define {NAME}_PROJ_SIZE {proj_size}
#define {NAME}_NUM_LAYERS {num_layers}
#define {NAME}_NUM_DIRECTIONS {num_directions}
#define {NAME}_BIAS "{bias}"
#define {NAME}_SKIP_INPUT {skip_input:d}
#define {NAME}_DTYPE "{dtype}"
#define {NAME}_NUM_PARAMS {num_params}
#define {NAME}_NUM_REGIONS {num_regions}
{settings}
static const struct rnnlayout_region {name}_regions[{NAME}_NUM_REGIONS] = {{
{rows}
}};

static const union {{
    {bits} bits[{NAME}_NUM_PARAMS];
    {element} weights[{NAME}_NUM_PARAMS];
}} {name} = {{{{
"""

# is_bias: in cuDNN a matrix and a bias share a lin_layer_id.
_END = """\
}}}};

/* Return the first element of a region, NULL if it does not exist; found (may be NULL) gets it. */
static inline const {element} *{name}_find(int pseudo_layer, int lin_layer_id, int is_bias,
                                           const struct rnnlayout_region **found)
{{
    for (int k = 0; k < {NAME}_NUM_REGIONS; k++) {{
        const struct rnnlayout_region *region = &{name}_regions[k];
        if (region->pseudo_layer == pseudo_layer && region->lin_layer_id == lin_layer_id &&
            (region->role[0] == 'b') == (is_bias != 0)) {{
            if (found)
                *found = region;
            return {name}.weights + region->offset / sizeof({element});
        }}
    }}
    return NULL;
}}
"""


def _write_c_header(out: Output, entries: Mapping[str, Weights]) -> None:
    defined: Counter[str] = Counter()  # macros, variables and functions of all RNNs
    for entry, weights in entries.items():
        name = _c_variable(entry)
        words = re.findall(r"{(?:name|NAME)}\w*", _RNN + _END)
        c_names = {word.format(name=name, NAME=name.upper()) for word in words}
        defined.update(c_names | _settings_macros(entry, weights).keys())
    word, count = max(defined.items(), key=lambda item: item[1])
    if count > 1:
        raise LayoutError(
            f"two of {', '.join(map(repr, entries))} have the same name in C, {word}: rename one"
        )
    guard = f"RNNLAYOUT_{c_identifier(out.name).upper()}"
    with open(out, "w", encoding="ascii", newline="\n") as file:
        file.write(_TOP.format(guard=guard))
        for entry, weights in entries.items():
            for text in _rnn(entry, weights):
                file.write(text)
        file.write(f"\n#endif /* {guard} */\n")


FORMAT = ModelFormat(".h", ("cudnn",), None, _write_c_header)


# Words that C or C++ reserves, that the headers above define, and gcc's macros.
_RESERVED = re.compile(
    r"\w+_t|U?INT\w+_(MAX|MIN|C)|(SIZE|PTRDIFF|WCHAR|WINT|SIG_ATOMIC)_M\w+|NULL|offsetof|main|linux"
    r"|unix|alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|class|co_await"
    r"|co_return|co_yield|compl|concept|const|const_cast|consteval|constexpr|constinit|continue"
    r"|decltype|default|delete|do|double|dynamic_cast|else|enum|explicit|export|extern|false|float"
    r"|for|friend|goto|if|inline|int|long|mutable|namespace|new|noexcept|not|not_eq|nullptr|operator"
    r"|or|or_eq|private|protected|public|register|reinterpret_cast|requires|restrict|return|short"
    r"|signed|sizeof|static|static_assert|static_cast|struct|switch|template|this|thread_local|throw"
    r"|true|try|typedef|typeid|typename|typeof|typeof_unqual|union|unsigned|using|virtual|void"
    r"|volatile|while|xor|xor_eq"
)


def c_identifier(text: str) -> str:
    """Return a text as the beginning of a name in C."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return f"rnn_{name}" if not name[:1].isalpha() else name


def _c_variable(entry: str) -> str:
    """Return the name of an RNN as a name in C and C++: rnn_int for int."""
    name = c_identifier(entry)
    return f"rnn_{name}" if _RESERVED.fullmatch(name) else name


def _rnn(entry: str, weights: Weights) -> Iterator[str]:
    name = _c_variable(entry)
    flat, spec = weights.arrays[0], weights.spec
    bits, element = _TYPES[flat.itemsize]
    used = describe_config(weights.config) if weights.config else ""
    used = used.encode("unicode_escape").decode()
    rows = []
    for row in regions(spec):
        gate = f"'{row['gate']}'" if row["gate"] else "0"
        rows.append(
            f'    {{{row["pseudo_layer"]}, {row["lin_layer_id"]}, "{row["role"]}", {gate},'
            f" {row['offset']}, {row['rows']}, {row['cols']}}},"
        )
    fields = {
        "name": name,
        "NAME": name.upper(),
        "bits": bits,
        "element": element,
        "spec": spec,
        **spec.to_dict(),
        "num_directions": spec.num_directions,
        "num_params": flat.size,
        "rows": "\n".join(rows),
        "num_regions": len(rows),
        "used": f"; used with {used.replace('*/', '* /').replace('/*', '/ *')}" if used else "",
        "settings": "".join(
            f"#define {k} {v}\n" for k, v in _settings_macros(entry, weights).items()
        ),
    }
    yield _RNN.format(**fields)
    unsigned = flat.view(f"u{flat.itemsize}")
    digits = 2 * flat.itemsize
    for at in range(0, flat.size, _PER_CHUNK):
        numbers = [f"0x{n:0{digits}x}" for n in unsigned[at : at + _PER_CHUNK].tolist()]
        for k in range(0, len(numbers), _PER_LINE):
            yield ",".join(numbers[k : k + _PER_LINE]) + ",\n"
    yield _END.format(**fields)


def _settings_macros(entry: str, weights: Weights) -> dict[str, str]:
    """Return a macro for each setting, and for the order of the axes of x if known."""
    name = _c_variable(entry).upper()
    axes = weights.batch_first
    macros = {} if axes is None else {f"{name}_BATCH_FIRST": f"{axes:d}"}
    keys: dict[str, str] = {}
    for key, value in weights.config.items():
        if not (constant := _c_constant(value)):
            why = "which cannot be written as a constant in C: write a .bin, or, to leave it out"
            raise unwritten_settings(entry, {key: value}, why)
        macro = f"{name}_CONFIG_{c_identifier(key).upper()}"
        if macro in macros:
            raise LayoutError(
                f"settings {keys[macro]!r} and {key!r} of {entry!r} are both {macro} in C; to leave"
                f" one out, {how_to_leave_out(entry, [key])}"
            )
        macros[macro], keys[macro] = constant, key
    return macros


def _c_constant(value: Any) -> str:
    """Return a setting as a constant in C, an array as an initializer; "" if impossible."""
    if isinstance(value, str):
        octal = (chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:03o}" for b in value.encode())
        return f'"{"".join(octal)}"'
    if isinstance(value, (list, tuple)):
        numbers = [_c_constant(element) for element in value]
        return f"{{{', '.join(number.strip('{}') for number in numbers)}}}" if all(numbers) else ""
    is_number = isinstance(value, (bool, int, float)) and math.isfinite(value)
    return repr(value * 1) if is_number else ""
