"""The kernels of a Relax module stay inside of their buffers, whatever they are written to do."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

from autosplit.errors import ModelError
from autosplit.frontend import importing
from tests.frontend.relax.test_saved_module import parsed

MODULE = """
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def kernel(a: T.Buffer((T.int64(4),), "{dtype}"), b: T.Buffer(({size},), "int32")):
        with T.sblock("root"):
            c = T.alloc_buffer((T.int64(1),), "int32")
{body}

    @R.function
    def main(x: R.Tensor((4,), "{dtype}")):
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor(({size},), "int32"))
            R.output(y)
        return y
"""


def module_of(body: str, dtype: str = "int32", size: str = "4") -> Any:
    indented = textwrap.indent(textwrap.dedent(body), " " * 12)
    return parsed(MODULE.format(body=indented, dtype=dtype, size=size))


def result(module: Any, *items: int) -> list[int]:
    import tvm
    from tvm import relax

    module = importing.read(module, {}).module
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    values: list[int] = machine["main"](tvm.runtime.tensor(np.array(items, "int32"))).numpy()
    return list(values)


FILL = "for k in range(4):\n    b[k] = 0\n"


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(4):\n    b[a[i]] = 7",
        "for i in range(a[2]):\n    b[i] = 7",
        # The value that is tested is not the one that is used.
        "c[0] = 0\nif c[0] < 4:\n    c[0] = 1000000\n    b[c[0]] = 7",
    ],
)
def test_a_store_whose_place_is_read_from_data_stays_in_the_buffer(body: str) -> None:
    values = result(module_of(FILL + body), 0, 10**9, 100_000, -(10**9))
    assert set(values) <= {0, 7}


def test_a_load_whose_place_is_read_from_data_stays_in_the_buffer() -> None:
    module = module_of("for i in range(4):\n    b[i] = a[a[i]]")
    assert result(module, 3, 10**9, 1, -(10**9)) == [-(10**9), -(10**9), 10**9, 3]


@pytest.mark.parametrize(
    "index",
    [
        "(i * 1073741824) // 1073741824",
        "T.min(T.max(a[i], 0) + 1, 3)",
        "T.Cast('int32', T.int64(4294967296) * a[i] + T.int64(i))",
    ],
)
def test_an_index_that_may_overflow_is_refused(index: str) -> None:
    with pytest.raises(ModelError, match=r"'kernel'.*overflow"):
        importing.read(module_of(f"for i in range(4):\n    b[{index}] = 7"), {})


def test_a_buffer_whose_size_overflows_is_refused() -> None:
    body = """
    d = T.alloc_buffer((T.int64(4294967296), T.int64(4294967296)), "int32")
    for i in range(4):
        d[i, i] = 7
        b[i] = d[i, i]
    """
    with pytest.raises(ModelError, match=r"'kernel'.*'d'"):
        importing.read(module_of(body), {})


def test_a_kernel_called_with_tensors_of_another_shape_is_refused() -> None:
    import tvm

    small, large = (module_of("for i in range(4):\n    b[i] = 7", size=s) for s in ("4", "1000"))
    functions = {g: f for g, f in small.functions.items() if g.name_hint == "main"}
    (kernel,) = (g for g in small.functions if g.name_hint == "kernel")
    module = tvm.IRModule({**functions, kernel: large["kernel"]})
    with pytest.raises(ModelError, match=r"'kernel'.*'b'.*\[1000\].*\[4\]"):
        importing.read(module, {})


def test_an_index_that_stays_inside_is_left_as_it_is() -> None:
    import tvm_ffi

    module = module_of(
        """
        for i, j in T.grid(2, 2):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi * 2 + vj] = a[(vi * 2 + vj) // 2 * 2 + vj % 2]
        """
    )
    read = importing.read(module, {}).module
    assert tvm_ffi.structural_equal(read["kernel"], module["kernel"])
