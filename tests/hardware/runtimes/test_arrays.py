import numpy as np
import pytest
import tvm

from autosplit.hardware.devices.device import along
from autosplit.hardware.runtimes.arrays import aligned_copy, array_of, tensor_of


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_an_aligned_array_is_shared(dtype):
    array = aligned_copy(np.zeros((4, 16), dtype))
    tensor = tensor_of(array, tvm.cpu())
    array[1, 2] = 1
    assert (tensor.dtype, tuple(tensor.shape)) == (dtype, (4, 16))
    assert tensor.numpy()[1, 2] == 1


def test_an_empty_array_has_the_strides_that_kernels_expect():
    assert tuple(tensor_of(np.zeros((3, 0, 5), np.float32), tvm.cpu()).strides) == (0, 5, 1)


def test_results_of_onnxruntime_reach_tvm_without_a_copy(branches):
    ports = branches.split([["first"]])
    first = branches.wiring(ports.stages).stages[0]
    (stage,) = branches.runtime_of("onnxruntime").stages(first, along(1))
    (item,) = branches.items(1)
    (result, *_) = stage.run([item[port.name] for port in first.inputs])
    assert array_of(tensor_of(result, tvm.cpu())).ctypes.data == result.ctypes.data
