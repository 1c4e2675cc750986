"""The public names: which there are, and what their errors are."""

import pytest

import rnnlayout as rl

ERRORS = {
    "SpecError": ValueError,
    "UndecidedError": rl.SpecError,
    "LayoutError": ValueError,
    "LossyError": rl.LayoutError,
    "FileError": ValueError,
    "UnknownNameError": KeyError,
    "MissingExtraError": ImportError,
    "CudnnNotFoundError": RuntimeError,
    "CudnnError": RuntimeError,
}


def test_dir_is_the_public_names():
    assert dir(rl) == rl.__all__
    assert all(hasattr(rl, name) for name in dir(rl))


def test_every_error_is_an_error_of_rnnlayout_and_of_python():
    classes = {name: getattr(rl, name) for name in rl.__all__}
    found = {n for n, c in classes.items() if isinstance(c, type) and issubclass(c, Exception)}
    assert found == {"Error", *ERRORS}
    for name, base in ERRORS.items():
        assert issubclass(classes[name], rl.Error) and issubclass(classes[name], base)
    with pytest.raises(rl.Error, match="no layout is called 'theano'"):
        rl.layout("theano")


@pytest.mark.parametrize("call", [rl.load, lambda p: rl.convert_file(p, "out.npz", to="torch")])
def test_a_missing_file_is_pythons_error(call, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.npz does not exist"):
        call(tmp_path / "missing.npz")
