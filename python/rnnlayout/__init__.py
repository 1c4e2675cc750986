"""LSTM, GRU and RNN weights, exactly, between cuDNN's packed weight space and every framework.

    >>> import numpy as np, rnnlayout as rl
    >>> spec = rl.Spec("lstm", input_size=2, hidden_size=3)
    >>> weights = {name: np.ones(shape, "f4") for name, shape in rl.describe(spec, "torch").items()}
    >>> rl.pack(weights).shape            # cuDNN's weight space
    (84,)
    >>> sorted(rl.convert(weights, to="keras"))
    ['bias', 'kernel', 'recurrent_kernel']

Letters in the documentation: T steps, N batch, I input, H hidden, P projected (P = H without a
projection), L layers, D directions, G gates.
"""

import sys as _sys
from importlib import import_module
from typing import TYPE_CHECKING

if "threadpoolctl" in _sys.modules:  # otherwise the first RNN registers the threads
    from rnnlayout._run import threadpools as _threadpools  # noqa: F401

if TYPE_CHECKING:  # for type checkers; at run time __getattr__ imports a name at the first use
    from rnnlayout._compare.diagnose import Diagnosis as Diagnosis, diagnose as diagnose
    from rnnlayout._compare.identify import Identified as Identified, identify as identify
    from rnnlayout._compare.verify import Verified as Verified, verify as verify
    from rnnlayout._convert.assign import assign as assign
    from rnnlayout._convert.convert import (
        check as check,
        convert as convert,
        pack as pack,
        unpack as unpack,
    )
    from rnnlayout._convert.explain import (
        Explanation as Explanation,
        explain as explain,
        picture as picture,
    )
    from rnnlayout._files.files import load as load
    from rnnlayout._files.tensor_sets.file_rnns import Found as Found
    from rnnlayout._files.tensor_sets.tensor_set import Converted as Converted
    from rnnlayout._files.write_file import convert_file as convert_file, save as save
    from rnnlayout._model.describe import describe as describe, regions as regions
    from rnnlayout._model.errors import (
        AssumedWarning as AssumedWarning,
        CudnnError as CudnnError,
        CudnnNotFoundError as CudnnNotFoundError,
        Error as Error,
        FileError as FileError,
        LayoutError as LayoutError,
        LossyError as LossyError,
        MissingExtraError as MissingExtraError,
        SpecError as SpecError,
        UnknownNameError as UnknownNameError,
    )
    from rnnlayout._model.layout import Layout as Layout, layout as layout, layouts as layouts
    from rnnlayout._model.picture.picture import Picture as Picture
    from rnnlayout._model.reading_options import ReadingOptions as ReadingOptions
    from rnnlayout._model.report import Report as Report
    from rnnlayout._model.spec import Spec as Spec
    from rnnlayout._model.stack import stack as stack
    from rnnlayout._model.tensors import Tensors as Tensors
    from rnnlayout._model.undecided import UndecidedError as UndecidedError
    from rnnlayout._model.weights import OptimizerState as OptimizerState, Weights as Weights
    from rnnlayout._native import (
        BoundCall as BoundCall,
        DeviceArray as DeviceArray,
        Stepper as Stepper,
        __version__ as __version__,
        cpu_tier as cpu_tier,
        num_threads as num_threads,
        set_num_threads as set_num_threads,
    )
    from rnnlayout._run.cudnn import set_cudnn as set_cudnn
    from rnnlayout._run.forward import forward as forward
    from rnnlayout._run.rnn import RNN as RNN
    from rnnlayout._run.tape import Tape as Tape
    from rnnlayout._sources.read_source import infer_spec as infer_spec

# module: the public names of the module. The first use of a name imports the module, and NumPy:
# the command line prints --help without either.
_PUBLIC = {
    "_compare.diagnose": ["Diagnosis", "diagnose"],
    "_compare.identify": ["Identified", "identify"],
    "_compare.verify": ["Verified", "verify"],
    "_convert.assign": ["assign"],
    "_convert.convert": ["check", "convert", "pack", "unpack"],
    "_convert.explain": ["Explanation", "explain", "picture"],
    "_files.files": ["load"],
    "_files.tensor_sets.file_rnns": ["Found"],
    "_files.tensor_sets.tensor_set": ["Converted"],
    "_files.write_file": ["convert_file", "save"],
    "_model.describe": ["describe", "regions"],
    "_model.errors": [
        "AssumedWarning",
        "CudnnError",
        "CudnnNotFoundError",
        "Error",
        "FileError",
        "LayoutError",
        "LossyError",
        "MissingExtraError",
        "SpecError",
        "UnknownNameError",
    ],
    "_model.layout": ["Layout", "layout", "layouts"],
    "_model.picture.picture": ["Picture"],
    "_model.reading_options": ["ReadingOptions"],
    "_model.report": ["Report"],
    "_model.spec": ["Spec"],
    "_model.stack": ["stack"],
    "_model.tensors": ["Tensors"],
    "_model.undecided": ["UndecidedError"],
    "_model.weights": ["OptimizerState", "Weights"],
    "_native": [
        "BoundCall",
        "DeviceArray",
        "Stepper",
        "__version__",
        "cpu_tier",
        "num_threads",
        "set_num_threads",
    ],
    "_run.cudnn": ["set_cudnn"],
    "_run.forward": ["forward"],
    "_run.rnn": ["RNN"],
    "_run.tape": ["Tape"],
    "_sources.read_source": ["infer_spec"],
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
