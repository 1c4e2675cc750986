"""docs/security.md, sentence by sentence: each that claims something names the test that holds it.

What the page says of other programs, which is why rnnlayout has readers of its own, is tested here.
"""

import re
import signal
import subprocess
import sys

import pytest
from commands import ROOT, TESTS
from files.hostile.hdf5 import endless_heap

PAGE = ROOT / "docs" / "security.md"
FILES, OPENED = "hostile/test_hostile.py::test_hostile_files", "test_companions.py::test_"
USES, PICKLES = "hostile/test_uses.py::test_", "torch/test_pickles.py::test_"
HDF5, ENDS = "hdf5/test_hdf5.py::test_", "hostile/test_page.py::test_what_ends_a_process"
FUZZ, CASES = "hostile/test_fuzz.py::test_", "hostile/{}.py " + FILES
# How each sentence begins, in the order of the page, and its tests, in tests/files. "": it advises,
# or is a reason.
SENTENCES = [
    ("Weight files can come", ""),
    ("`load`, `convert_file`, `rnnlayout inspect` and", f"{FILES} {USES}a_product_after_reading"),
    ("| no code in the file", FILES),
    ("| no path in the file", FILES),
    ("| little memory", FILES),
    ("| little time", FILES),
    ("| no text from a file fills", FILES),
    ("| a typed error", FILES),
    ("| the output is either complete", FILES),
    ("`tests/files/hostile/` creates", ""),
    ("pickles that run", CASES.format("pickles")),
    ("modules in each other", CASES.format("modules")),
    ("Keras configs", CASES.format("hdf5")),
    ("links, external", CASES.format("hdf5")),
    ("bombs, overlapping", CASES.format("zips")),
    ("sizes, shapes, names", CASES.format("trees")),
    ("paths that are not", CASES.format("others")),
    ("indexes of models", CASES.format("tensor_sets")),
    ("data files of ONNX", CASES.format("onnxes")),
    ("files that grow", CASES.format("products")),
    ("files that store one", CASES.format("uses")),
    ("A truncated file", "hostile/test_hostile.py::test_a_damaged_file"),
    ("A changed one", "hostile/test_hostile.py::test_a_damaged_file"),
    ("The tests first prove", "hostile/test_hostile.py::test_the_watch_sees"),
    ("Arrays in memory", ENDS),
    ("Each file that is opened", f"{OPENED}a_companion_adds_to_the_budget {USES}a_use"),
    ("What the file declares", "test_budget.py::test_a_file_that_exceeds_its_budget"),
    ("What it stores once", "test_budget.py::test_n_uses_are_charged_n_times"),
    ("For each row", "test_budget.py::test_n_uses_are_charged_n_times"),
    ("Exceeding the budget", "test_budget.py::test_a_file_that_exceeds_its_budget"),
    ("So the number of layers", f"{USES}a_use {USES}a_product_after_reading"),
    ("`diagnose` takes no more", f"{USES}diagnose_of_two_files"),
    ("After 16 matrices",
     "../compare/test_diagnose.py::test_a_search_ends_when_many_matrices_are_absent"),
    ("`identify` runs", ""),
    ("What a process keeps", "../model/test_sized_cache.py::test_refused_networks_do_not_stay"),
    ("Errors and printed names",
     "../model/test_errors.py::test_the_whole_text_is_an_attribute_and_what_is_asked_for_is_not_cut"),
    ("A pickle is a program", f"{PICKLES}an_object_of_an_unknown_class"),
    ("So a hostile pickle", f"{FILES} {PICKLES}an_object_of_an_unknown_class"),
    ("Python's `pickle.Unpickler`", ENDS),
    ("It computes the hash", ENDS),
    ("Keys other than strings", f"{PICKLES}an_item_with_a_key_that_is_not_a_name"),
    ("rnnlayout reads Keras's", "test_extras.py::test_without_a_package"),
    ("A few changed bytes", f"{ENDS} {HDF5}a_heap_that_libhdf5_reads_for_ever"),
    ("Ctrl-C then", ENDS),
    ("Each offset and size", f"{HDF5}extreme_fields {HDF5}a_heap_with_wrong_numbers"),
    ("The bytes of all structures", "test_budget.py::test_n_uses_are_charged_n_times"),
    ("So every cycle ends", f"{HDF5}a_header_that_goes_on_in_itself {HDF5}a_tree_in_itself"),
    ("A tensor is read when", f"{HDF5}an_array_that_is_not_needed_is_not_read"),
    ("Checksums are not", f"{HDF5}checksums_are_not_verified"),
    ("The tests compare", f"{HDF5}random_trees {HDF5}many_links {HDF5}published_files"),
    ("The alternatives", ""),
    ("Checking all heaps", ""),
    ("A child process", ""),
    ("With its own reader", "test_extras.py::test_without_a_package"),
    ("Some models are several", f"{OPENED}all_companions_are_listed"),
    ("No other file", FILES),
    ("One function opens", f"{OPENED}all_companions_are_listed"),
    ("The name is bare", f"{OPENED}a_name_that_may_lead_elsewhere_is_not_opened"),
    ("On Windows it is", f"{OPENED}a_device_of_windows_is_a_name_elsewhere"),
    ("The real path", f"{OPENED}a_cache_of_links_is_read"),
    ("So the cache", f"{OPENED}a_cache_of_links_is_read"),
    ("A link to any other", f"{OPENED}a_link_out_of_the_folder_is_refused"),
    ("The variables of a SavedModel", f"{OPENED}a_folder_of_companions_that_is_a_link_is_refused"),
    ("The file is a regular", f"{OPENED}a_file_that_names_itself"),
    ("It is opened without", f"{OPENED}a_companion_that_is_not_a_file"),
    ("Its size is added", f"{OPENED}a_companion_adds_to_the_budget"),
    ("Of an ONNX model", CASES.format("onnxes")),
    ("A key that occurs twice", CASES.format("onnxes")),
    ("The bytes become", ""),
    ("Together tensors", "test_budget.py::test_a_file_that_exceeds_its_budget"),
    ("A `.bin` is refused", "tensor_sets/test_c.py::test_a_bin_and_the_json_of_another_bin"),
    ("That is no protection", "tensor_sets/test_c.py::test_a_crc_does_not_protect"),
    ("So a model can make", f"{OPENED}all_companions_are_listed"),
    ("A service that stores", ""),
    ("Files with several hard", f"{OPENED}a_file_of_several_hard_links_is_read"),
    ("Somebody who can", ""),
    ("`tools/fuzz --hours", f"{FUZZ}findings {FUZZ}a_file_that_takes_long"),
    ("It starts from", f"{FUZZ}files_without_a_finding"),
    ("**Files.** Atheris", f"{FUZZ}files_without_a_finding"),
    ("Each must be read", f"{FUZZ}findings {FUZZ}a_file_that_takes_long"),
    ("A changed file", "hostile/test_hostile.py::test_a_damaged_file"),
    ("**The C core.** libFuzzer", "../c/fuzz_core.c"),
    ("AddressSanitizer", "../c/fuzz_core.c"),
    ("What the header", "../c/fuzz_core.c"),
    ("In HDF5:", CASES.format("hdf5")),
    ("In zip archives:", CASES.format("zips")),
    ("In pickles:", f"{PICKLES}an_object_of_an_unknown_class"),
    ("Of modules only", "torch/test_modules.py::test_every_saver"),
    ("Programs of TorchScript", "torch/test_modules.py::test_what_a_program_of_torch_export_says"),
    ("Protocol 0", f"{PICKLES}protocols_before_2"),
    ("Companions in other", f"{OPENED}a_name_that_may_lead_elsewhere_is_not_opened"),
    ("In all formats:", "test_budget.py::test_a_file_that_exceeds_its_budget"),
    ("Examples are", f"test_budget.py::test_an_archive_of_zeros {CASES.format('pickles')}"),
    ("Time and memory grow", f"{USES}a_use {USES}a_product_after_reading"),
    ("Limit the size", ""),
    ("ONNX models are parsed", ""),
    ("If memory ends while protobuf", ENDS),
    ("Of nodes and attributes", "onnx/test_onnx.py::test_memory_that_ends_while_a_model_is_read"),
    ("Keep this library", ""),
    ("`.pt` files are read", "test_extras.py::test_without_a_package"),
    ("A conversion from `.pt`",
     "torch/test_torch.py::test_torch_loads_only_weights_of_a_harmless_file"),
    ("It requires torch",
     "torch/test_torch.py::test_a_torch_whose_safe_loader_has_holes_is_not_used"),
    ("Converting a `.keras`", "keras/test_keras_configs.py::test_it_is_named"),
    ("Leave `safe_mode`",
     "keras/test_keras_configs.py::test_keras_refuses_it_in_its_safe_mode"),
    ("For `.h5`, Keras before",
     "keras/test_keras_configs.py::test_keras_2_runs_it_in_its_safe_mode"),
    ("A path that you pass", f"{OPENED}a_cache_of_links_is_read"),
    ("Files are memory-mapped", "test_truncated.py::test_loaded_then_truncated"),
    ("If another process", ENDS),
    ("Pass `rl.load", "test_truncated.py::test_loaded_then_truncated"),
    ("`convert_file`, `verify`",
     "../cli/test_schemas.py::test_a_command_maps_no_file_if_told_so"),
    ("`rnnlayout run` and", ""),
]  # fmt: skip


def sentences(text):
    """Return the sentences of a page, and the rows of its tables but for generated ones."""
    text = re.sub(r"<!-- table: .*?<!-- end of table -->", "", text, flags=re.DOTALL)
    blocks = (" ".join(block.split()) for block in re.split(r"\n\n+|\n(?=- |\| )", text))
    return [
        sentence
        for block in blocks
        if block and not re.match(r"#|\| (---|promise)", block)
        for sentence in re.split(r"(?<=\.) (?=[A-Z`*])", block.removeprefix("- "))
    ]


def test_each_sentence_has_a_test():
    for sentence, (start, tests) in zip(sentences(PAGE.read_text()), SENTENCES, strict=True):
        assert sentence.startswith(start)
        for test in tests.split():
            path, _, name = test.partition("::")
            assert f"def {name}(" in (TESTS / "files" / path).read_text() or not name, test


ODD = """
import numpy as np, rnnlayout as rl
class Odd:
    __array_interface__ = {"shape": (16,), "typestr": "<f4", "version": 3, "data": (64, True)}
"""
ENDING = {
    "an array of memory that does not exist": ("SIGSEGV", ODD + "np.asarray(Odd()).sum()"),
    "the same as weights": (
        "SIGSEGV", ODD + "rl.convert(Odd(), rl.Spec('lstm', 1, 1), to='torch')"),
    "a tuple in others as a key, in pickle.Unpickler": ("SIGSEGV", """
import io, pickle
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return dict
Unpickler(io.BytesIO(b"\\x80\\x02}N" + b"\\x85" * 200_000 + b"Ns.")).load()
"""),
    # the first signal is handled in Python, as Ctrl-C is, the second by the system
    "a heap without an end, in libhdf5": ("SIGPROF", """
import h5py, signal
with h5py.File("heap.h5") as file:
    signal.signal(signal.SIGVTALRM, lambda *_: exit())
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.1)
    signal.setitimer(signal.ITIMER_PROF, 0.5)
    file.attrs["layer_names"]
"""),
    "an empty field without memory, in protobuf": ("SIGSEGV", """
import onnx, resource
graph = onnx.GraphProto()
nodes = [graph.node.add() for _ in range(40_000)]
pages = int(open("/proc/self/statm").read().split()[5])
resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + (4 << 20), -1))
for node in nodes:
    node.attribute
"""),
    "a mapped file that is truncated": ("SIGBUS", """
import os
import numpy as np, rnnlayout as rl
spec = rl.Spec("lstm", 50, 50)
rl.save("a.npy", rl.Weights(np.ones(spec.num_params, "f4"), spec, "cudnn"))
loaded = rl.load("a.npy", spec)
os.truncate("a.npy", 0)
[array.sum() for weights in loaded.values() for array in weights.values()]
"""),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDING)
def test_what_ends_a_process(name, tmp_path):
    (tmp_path / "heap.h5").write_bytes(endless_heap())
    end, program = ENDING[name]
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert -done.returncode == signal.Signals[end]
