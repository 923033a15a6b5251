"""Keeps the kernels that a Relax module brings along inside of their buffers.

TVM compiles a kernel as it is written, so a wrong index overwrites the memory of the process. An
index that is not inside of its buffer for certain, because it is read from data or too involved, is
clamped to the buffer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

from autosplit.errors import ModelError
from autosplit.extras import ir, relax, s_tir, tirx, tvm, tvm_ffi
from autosplit.frontend.relax.intervals import Interval, Intervals, hull

LARGEST_SIZE = (1 << 31) - 1  # of a dimension that is a variable
MOST_ELEMENTS = 1 << 40  # fewer than where the size in bytes overflows


def bounded_kernels(module: Any) -> Any:
    """The module with every kernel inside of its buffers; sizes in ``main`` are numbers.

    Raises:
        ModelError: A kernel has a buffer of another shape than its caller, a buffer too large, or
            arithmetic that may overflow.
    """
    functions = {}
    for variable, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            try:
                functions[variable] = clamped(function, _Accesses(function).unproven)
            except ModelError as error:
                raise ModelError(f"kernel '{variable.name_hint}' {error}") from error
            except RecursionError:
                raise ModelError(f"kernel '{variable.name_hint}' nests too deep") from None
        else:
            functions[variable] = function
    calls: list[Any] = []
    for function in functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, calls.append)
    for call in calls:
        _check_call(module, call)
    return tvm.IRModule(functions, attrs=module.attrs)


def clamped(kernel: Any, accesses: Collection[Any] | None = None) -> Any:
    """The kernel with the indices of ``accesses`` clamped to their buffers.

    An access is a load or a store. By default it is each that has an index read from a tensor.
    """

    def is_chosen(access: Any) -> bool:
        if accesses is None:
            return any(map(_reads_a_tensor, access.indices))
        return access in accesses

    def bounded(access: Any) -> Any:
        if not is_chosen(access):
            return access
        if isinstance(access, ir.TensorLoad):
            return tirx.BufferLoad(access.source, _clamped(access.source, access.indices))
        indices = _clamped(access.buffer, access.indices)
        return tirx.BufferStore(access.buffer, access.value, indices)

    if accesses is not None and not accesses:
        return kernel
    # Before its children: an access is known by its identity.
    return tvm_ffi.structural_map(kernel, ((ir.TensorLoad, tirx.BufferStore), bounded), order="pre")


def _clamped(buffer: Any, indices: Sequence[Any]) -> list[Any]:
    results = []
    for index, size in zip(indices, buffer.ty.shape, strict=True):
        dtype = index.ty.dtype
        last = size.astype(dtype) - tirx.const(1, dtype)
        results.append(tirx.max(tirx.min(index, last), tirx.const(0, dtype)))
    return results


def _reads_a_tensor(index: Any) -> bool:
    stop = tvm_ffi.VisitInterrupt(True)
    return tvm_ffi.structural_walk(index, (ir.TensorLoad, lambda load: stop)) is not None


class _Accesses:
    """The loads and stores of a kernel; ``unproven`` are those that may be outside a buffer.

    Raises ModelError where a buffer is too large, or an index may overflow.
    """

    def __init__(self, kernel: Any) -> None:
        self._intervals = Intervals()
        for parameter in kernel.params:
            if isinstance(parameter.ty, tirx.BufferType):
                self._define_sizes(parameter)
        loads: list[Any] = []
        stores: list[Any] = []
        callbacks = (
            (tirx.For, self._define_loop),
            (tirx.Bind, self._define_binding),
            (s_tir.SBlockRealize, self._define_iterators),
            (ir.TensorLoad, loads.append),
            (tirx.BufferStore, stores.append),
        )
        tvm_ffi.structural_walk(kernel.body, callbacks, order="pre")
        # Evaluated after the walk: an error must not cross TVM's code.
        accesses = [(load, load.source) for load in loads]
        accesses += [(store, store.buffer) for store in stores]
        sizes = {buffer: self._checked_sizes(buffer) for _, buffer in accesses}
        self.unproven = {
            access for access, buffer in accesses if not self._is_inside(access, sizes[buffer])
        }

    def _define_sizes(self, parameter: Any) -> None:
        """The caller's tensor binds a size that is a variable."""
        for size in parameter.ty.shape:
            if isinstance(size, ir.Var):
                self._intervals.define(size, lambda: (1, LARGEST_SIZE))

    def _define_loop(self, loop: Any) -> None:
        def interval() -> Interval:
            if loop.step is not None:
                raise ModelError("has a loop with a step; write it with a step of 1")
            return self._range(loop.min, loop.extent)

        self._intervals.define(loop.loop_var, interval)

    def _define_binding(self, binding: Any) -> None:
        self._intervals.define(binding.var, lambda: self._intervals.of(binding.value))

    def _define_iterators(self, realize: Any) -> None:
        for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            self._define_iterator(iterator, value)

    def _define_iterator(self, iterator: Any, value: Any) -> None:
        def interval() -> Interval:
            # A schedule may replace the loops around the block by ones over the domain.
            domain = self._range(iterator.dom.min, iterator.dom.extent)
            return hull(domain, self._intervals.of(value))

        self._intervals.define(iterator.var, interval)

    def _range(self, start: Any, extent: Any) -> Interval:
        low, high = self._intervals.of(start)
        return low, max(low, high + self._intervals.of(extent)[1] - 1)

    def _is_inside(self, access: Any, sizes: Sequence[Interval]) -> bool:
        for index, (size, _) in zip(access.indices, sizes, strict=True):
            low, high = self._intervals.of(index)
            if low < 0 or high >= size:
                return False
        return True

    def _checked_sizes(self, buffer: Any) -> list[Interval]:
        sizes = [self._intervals.of(size) for size in buffer.ty.shape]
        # An index into the flat buffer is computed in the type of the sizes.
        is_narrow = any(size.ty.dtype.bits < 64 for size in buffer.ty.shape)
        most = LARGEST_SIZE if is_narrow else MOST_ELEMENTS
        if any(low < 1 for low, _ in sizes) or prod(high for _, high in sizes) > most:
            raise ModelError(
                f"has the buffer '{buffer.name}', whose size is not between 1 and {most} elements"
            )
        return sizes


def _check_call(module: Any, call: Any) -> None:
    """Raise ModelError where a caller's tensors have other shapes than the kernel's buffers."""
    if not isinstance(call, ir.Call) or getattr(call.op, "name", "") != "relax.call_tir":
        return
    name, arguments = call.args[:2]
    result = call.ty_args[0]
    results = result.fields if isinstance(result, ir.TupleType) else [result]
    types = [*(argument.ty for argument in arguments.fields), *results]
    parameters = [p for p in module[name].params if isinstance(p.ty, tirx.BufferType)]
    shapes = [_shape(kind, name.name_hint) for kind in types]
    # The sizes of tensors give those that are variables; then all can be compared.
    analyzer = tvm.sym.Analyzer()
    for parameter, shape in zip(parameters, shapes, strict=True):
        for size, number in zip(parameter.ty.shape, shape, strict=True):
            if isinstance(size, ir.Var):
                analyzer.bind(size, tirx.const(number, size.ty.dtype), allow_override=True)
    for parameter, shape in zip(parameters, shapes, strict=True):
        sizes = [analyzer.simplify(size) for size in parameter.ty.shape]
        if [getattr(size, "value", size) for size in sizes] != shape:
            raise ModelError(
                f"kernel '{name.name_hint}' has a buffer '{parameter.name}' of shape "
                f"{list(parameter.ty.shape)}, but is called with {shape}"
            )


def _shape(kind: Any, kernel: str) -> list[int]:
    """The sizes of a tensor that a kernel is called with."""
    is_tensor = isinstance(kind, relax.TensorType) and isinstance(kind.shape, relax.ShapeExpr)
    numbers: list[Any] = []
    if is_tensor:
        numbers = [getattr(size, "value", None) for size in kind.shape.values]
    if not is_tensor or None in numbers:
        raise ModelError(f"kernel '{kernel}' is called with a {kind}; its shape must be known")
    # TVM multiplies sizes without a check, and would allocate too little.
    if min(numbers, default=1) < 1 or prod(numbers) > MOST_ELEMENTS:
        raise ModelError(f"kernel '{kernel}' is called with a tensor of shape {numbers}")
    return [int(number) for number in numbers]
