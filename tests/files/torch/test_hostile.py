"""Files of torch that are not checkpoints; hostile/pickles.py makes the hostile ones."""

import numpy as np
import pytest
import torch
from files.hostile.pickles import in_archive, in_old, tensor

import rnnlayout as rl
from rnnlayout._files.formats.torch import archive
from rnnlayout._files.tensor_sets.file_limits import InputFile

pytestmark = pytest.mark.filterwarnings("ignore")


def test_nothing_lasts_of_a_pickle_that_changes_what_it_names(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(in_archive(b"\x80\x02ctorch\nFloatStorage\n}X\x04\x00\x00\x00nameNsb."))
    with pytest.raises(rl.FileError, match=r"m\.pt"):
        rl.load(path)
    torch.save(torch.nn.GRU(3, 2).state_dict(), path)
    assert list(rl.load(path)) == ["gru"]


@pytest.mark.parametrize("form", [in_archive, in_old])
def test_the_right_claim(form, tmp_path):
    """The hostile files of false claims are refused for their claim alone."""
    values, path = np.arange(4, dtype="f4").tobytes(), tmp_path / "m.pt"
    path.write_bytes(form(tensor(4, (3,), (1,), 1), values))
    assert archive.read_torch_file(InputFile(path))["weight"].bits().tolist() == [1, 2, 3]


def test_a_pickle_alone_has_no_storages(tmp_path):
    """tools/fuzz, .old.pt 12025: without its first pickle an old file is one pickle."""
    path = tmp_path / "m.pt"
    torch.save(torch.nn.GRU(3, 2).state_dict(), path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    path.write_bytes(data[data.index(b"\x80\x02ccollections") :])
    with pytest.raises(rl.FileError, match=r"m\.pt.*storages of its tensors are missing"):
        rl.load(path)
