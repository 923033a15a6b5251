import pytest

import autosplit
from autosplit import api, versions
from autosplit.errors import MachineError


@pytest.mark.parametrize("ffi", ["0.1.14.post0", "0.1.14.post9", "0.1.14"])
@pytest.mark.parametrize("tvm", ["0.27.0", "0.27.0.post1", "0.27.3"])
def test_a_pair_that_fits_is_fine(pretend, tvm, ffi):
    pretend(apache_tvm=tvm, apache_tvm_ffi=ffi)
    assert versions.wrong_pair() is None


@pytest.mark.parametrize(
    ("tvm", "ffi", "line"),
    [
        ("0.27.0", "0.1.15.post2", "apache-tvm-ffi 0.1.15.post2 crashes or does not match"),
        ("0.27.0", "0.1.140", "apache-tvm-ffi 0.1.140 crashes or does not match apache-tvm 0.27"),
        ("0.26.0", "0.1.14", "apache-tvm 0.26.0 is not supported by this version"),
        ("dev", "0.1.14", "apache-tvm dev is not supported by this version"),
        (None, "0.1.14", "apache-tvm is not installed; pip install 'apache-tvm>=0.27,<0.28'"),
        ("0.27.0", None, "apache-tvm-ffi is not installed"),
    ],
)
def test_a_pair_that_does_not_fit_is_named_with_the_remedy(pretend, tvm, ffi, line):
    pretend(apache_tvm=tvm, apache_tvm_ffi=ffi)
    with pytest.raises(MachineError, match="pip install '") as error:
        versions.require_pair()
    assert str(error.value).startswith(line)


def test_a_wrong_pair_is_told_before_tvm_is_loaded(pretend, exported, branches):
    pretend(apache_tvm="0.27.0", apache_tvm_ffi="0.1.15.post2")
    with pytest.raises(MachineError, match=r"0\.1\.15\.post2 crashes"):
        api.load_model(branches.path)
    with pytest.raises(MachineError, match=r"0\.1\.15\.post2 crashes"):
        autosplit.load(exported).start()
