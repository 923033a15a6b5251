"""The instruction that multiplies bytes and adds four neighbouring products each (AVX-512 VNNI)."""

from __future__ import annotations

# The annotations of TVMScript are values.
# mypy: disable-error-code="valid-type,untyped-decorator"
# pyright: reportInvalidTypeForm=false
from functools import cache

from autosplit.extras import s_tir

_NAME = "autosplit.bytes_16x4"


@cache
def multiply_bytes() -> str:
    """The name of the tensor intrinsic for 16 sums of four products.

    TVM's own has operands that LLVM 22 does not take any more, and its import takes long.
    """
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def products(
        A: T.Buffer((4,), "uint8", offset_factor=1),
        B: T.Buffer((16, 4), "int8", offset_factor=1),
        C: T.Buffer((16,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:16], A[0:4], B[0:16, 0:4])
            T.writes(C[0:16])
            for i in T.serial(0, 16):
                for k in T.serial(0, 4):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")

    @T.prim_func(s_tir=True)
    def instruction(
        A: T.Buffer((4,), "uint8", offset_factor=1),
        B: T.Buffer((16, 4), "int8", offset_factor=1),
        C: T.Buffer((16,), "int32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:16], A[0:4], B[0:16, 0:4])
            T.writes(C[0:16])
            four = T.reinterpret(A.vload([0], "uint8x4"), dtype="int32")
            C[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512"),
                C.vload([0], dtype="int32x16"),
                T.reinterpret(T.broadcast(four, 16), dtype="int8x64"),
                B.vload([0, 0], dtype="int8x64"),
                dtype="int32x16",
            )

    s_tir.TensorIntrin.register(_NAME, products, instruction, override=True)
    return _NAME
