import numpy as np
import pytest
import tvm

from autosplit.hardware.devices.device import along
from autosplit.hardware.runtimes.arrays import aligned_copy, array_of, tensor_of

ALIGNED = aligned_copy(np.zeros((4, 16), np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_an_aligned_array_is_shared(dtype):
    array = aligned_copy(np.zeros((4, 16), dtype))
    tensor = tensor_of(array, tvm.cpu())
    array[1, 2] = 1
    assert (tensor.dtype, tuple(tensor.shape)) == (dtype, (4, 16))
    assert tensor.numpy()[1, 2] == 1


def test_an_empty_array_has_the_strides_that_kernels_expect():
    assert tuple(tensor_of(np.zeros((3, 0, 5), np.float32), tvm.cpu()).strides) == (0, 5, 1)


def test_a_tensor_is_shared_as_an_array_which_is_the_same_tensor_again():
    tensor = tvm.runtime.tensor(np.ones((3, 5), np.float32))
    assert np.shares_memory(array_of(tensor), array_of(tensor))
    assert tensor_of(tensor, tvm.cpu()) is tensor
    again = tensor_of(array_of(tensor), tvm.cpu())
    assert array_of(again).ctypes.data == array_of(tensor).ctypes.data


@pytest.mark.parametrize(
    "array",
    [
        ALIGNED.reshape(-1)[1:17],
        ALIGNED.T,
        np.broadcast_to(ALIGNED[:1], (4, 16)),
        np.zeros((0, 3), np.float32),
    ],
    ids=["odd address", "transposed", "read only", "empty"],
)
def test_any_other_array_is_copied_with_its_values(array):
    tensor = tensor_of(array, tvm.cpu())
    assert tensor.numpy().tolist() == array.tolist()


def test_results_of_onnxruntime_reach_tvm_without_a_copy(branches):
    ports = branches.split([["first"]])
    first = branches.wiring(ports.stages).stages[0]
    stage = branches.runtime_of("onnxruntime").stage(first, along(1)[0])
    (item,) = branches.items(1)
    (result, *_) = stage.run([item[port.name] for port in first.inputs])
    assert array_of(tensor_of(result, tvm.cpu())).ctypes.data == result.ctypes.data
