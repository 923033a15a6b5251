"""A stage as a program that calls compiled kernels, linked in milliseconds.

The calls are by symbol (``call_dps_packed``), so that no kernel's code goes through the passes
again. Constants are shared by reference: weights are in memory once, whatever the number of
candidates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autosplit.extras import relax, tvm
from autosplit.files import REMEDY, refused
from autosplit.frontend.relax.expressions import substituted
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.codegen.kernels import Kernels
from autosplit.hardware.codegen.target import foreign_triple
from autosplit.hardware.execution.wiring import Port, StagePorts
from autosplit.lowering.external.regions import generate
from autosplit.lowering.fuse.calls import Call, constants
from autosplit.lowering.fuse.lowered import Lowered
from autosplit.lowering.fuse.tensors import bytes_of
from autosplit.lowering.layout.order import as_swap, swap_name, to_last

ENTRY = "main"
# TVM hashes the constants inside a program; from so many bytes on that makes linking slow.
LARGE = 1 << 16
# TVM's block builders form one stack, whichever thread they belong to.
_BUILDING = threading.Lock()


def link(
    lowered: Lowered,
    kernels: Kernels,
    functions: Mapping[str, StagePorts],
    target: Any,
    merge: bool = True,
    weights: Sequence[Any] = (),
) -> Any:
    """The runtime module of stages, each a function by its name, to be run in this process.

    ``merge``: neighbouring composites of an external backend may become one region; without it
    each runs by itself. ``weights``: constants (see ``large_weights``) that a stage takes after
    its inputs instead of containing them.
    """
    with _BUILDING:
        return _executable(lowered, kernels, functions, target, [kernels.module], merge, weights)


def large_weights(lowered: Lowered, ports: StagePorts) -> tuple[Any, ...]:
    """The large constants that kernels of a stage read, each once.

    Those of an external backend stay in its code.
    """
    unique: dict[Any, None] = {}
    for i in ports.ops:
        if lowered.graph.ops[i].kernel not in lowered.composites:
            unique.update(dict.fromkeys(constants(lowered.calls[i])))
    return tuple(constant for constant in unique if bytes_of([constant]) >= LARGE)


def write(
    lowered: Lowered,
    kernels: Kernels,
    functions: Mapping[str, StagePorts],
    target: Any,
    file: Path,
    merge: bool = True,
) -> None:
    """Write stages, each a function by its name, with weights and kernels as a shared library.

    It may be for another architecture. Raises MachineError where nothing can link it.
    """
    triple = foreign_triple(target)
    toolchain.compiler(triple)
    names = {lowered.graph.ops[i].kernel for ports in functions.values() for i in ports.ops}
    names.update(swap_name(tensor.dtype) for tensor in lowered.graph.tensors.values())
    symbols = {kernels.symbols[name] for name in names if name in kernels.symbols}
    built = [kernels.built] if kernels.built is not None else []
    with _BUILDING:
        module = relax.VMExecutable(_executable(lowered, kernels, functions, target, built, merge))
    module.export_library(
        str(file),
        fcompile=lambda output, objects, **_: toolchain.link_shared(output, objects, triple),
        fpack_imports=_packed(target),
        addons=[] if built else [str(kernels.objects[symbol]) for symbol in sorted(symbols)],
    )


def _packed(target: Any) -> Callable[[Any, bool, str, str], str]:
    """Bytecode and constants as an object file.

    As C source, TVM's default, large weights take minutes.
    """

    def pack(module: Any, is_system_lib: bool, prefix: str, folder: str) -> str:
        host = target.host or target
        file = Path(folder) / f"{prefix}imports.o"
        packed = tvm.runtime._ffi_api.ModulePackImportsToLLVM(
            module, is_system_lib, str(host), prefix
        )
        try:
            toolchain.write_object(packed, file)
        except OSError as error:
            raise refused(file, error, f"{REMEDY} with TMPDIR") from error
        return str(file)

    return pack


def _executable(
    lowered: Lowered,
    kernels: Kernels,
    functions: Mapping[str, StagePorts],
    target: Any,
    libraries: list[Any],
    merge: bool = True,
    weights: Sequence[Any] = (),
) -> Any:
    builder = relax.BlockBuilder()
    for name, ports in functions.items():
        _function(builder, name, lowered, kernels, ports, weights)
    module = builder.get()
    ops = [lowered.graph.ops[i] for ports in functions.values() for i in ports.ops]
    external = {op.kernel: op.name for op in ops if op.kernel in lowered.composites}
    if external:
        composites = {symbol: lowered.composites[symbol] for symbol in external}
        module = generate(module, composites, external, merge)
        libraries = [*libraries, *(module.attrs or {}).get("external_mods", ())]
    # Not by ``relax.build``: what that makes does not share its constants with other stages.
    with target:
        module = relax.get_pipeline("default_build")(module)
    executable = relax.ExecBuilder()
    relax.vm_build._vmcodegen(executable, module)
    constants = dict((module.attrs or {}).get("const_name_to_constant", {}))
    return relax.vm_build._ffi_api.VMLink(executable, target, None, libraries, constants)


def _function(
    builder: Any,
    name: str,
    lowered: Lowered,
    kernels: Kernels,
    ports: StagePorts,
    weights: Sequence[Any],
) -> None:
    """Add a Relax function of the stage's inputs, then ``weights``, that returns its outputs."""
    params = {
        p.name: relax.Var(f"in{i}", relax.TensorType(p.shape, p.dtype))
        for i, p in enumerate(ports.inputs)
    }
    params |= {w: relax.Var(f"weight{i}", w.ty) for i, w in enumerate(weights)}
    values: dict[Any, Any] = dict(params)
    last = lowered.channels_last
    leaving = {p.name for p in ports.outputs}
    with builder.function(name, list(params.values())):
        with builder.dataflow():
            for port in ports.inputs:
                if port.name in last:
                    values[port.name] = _swapped(builder, kernels, params[port.name], port, True)
            for i in ports.ops:
                op = lowered.graph.ops[i]
                # A tensor that leaves the stage must have memory that is not its input's.
                view = op.kernel in kernels.views and not leaving.intersection(op.outputs)
                call = _expression(lowered.calls[i], op.kernel, kernels, values, view)
                value = builder.emit(call)
                is_tuple = isinstance(value.ty, relax.TupleType)
                for k, tensor in enumerate(op.outputs):
                    item = builder.emit(relax.TupleGetItem(value, k)) if is_tuple else value
                    values[tensor] = item
            outputs = [
                _swapped(builder, kernels, values[port.name], port, False)
                if port.name in last
                else values[port.name]
                for port in ports.outputs
            ]
            result = builder.emit_output(relax.Tuple(outputs))
        builder.emit_func_output(result)


def _swapped(builder: Any, kernels: Kernels, value: Any, port: Port, channels_last: bool) -> Any:
    """A tensor at a cut, brought to channels last or back to the layout of the source."""
    n, a, b = as_swap(port.shape, channels_last)
    if a > 1 and b > 1:
        flat = builder.emit(relax.op.reshape(value, (n, a, b)))
        result = relax.TensorType((n, b, a), port.dtype)
        symbol = kernels.symbols[swap_name(port.dtype)]
        value = builder.emit(relax.call_dps_packed(symbol, relax.Tuple([flat]), result))
    axes = to_last(len(port.shape)) if channels_last else range(len(port.shape))
    return builder.emit(relax.op.reshape(value, [port.shape[axis] for axis in axes]))


def _expression(
    call: Call, kernel: str, kernels: Kernels, values: dict[Any, Any], view: bool
) -> Any:
    """The op's call on this stage's variables; with ``view`` as a reshape without a kernel."""
    value = call.value
    if not isinstance(value, relax.Call):
        return values.get(value, value)

    def of_stage(part: Any) -> Any:
        return _value(call.reads[part], values) if part in call.reads else values.get(part, part)

    arguments = [substituted(argument, of_stage) for argument in value.args]
    if kernel not in kernels.symbols:
        return relax.Call(value.op, arguments, value.attrs, value.ty_args)
    result = value.ty_args[0]
    if view:
        return relax.op.reshape(arguments[1][0], result.shape)
    fields = list(result.fields) if isinstance(result, relax.TupleType) else result
    return relax.call_dps_packed(kernels.symbols[kernel], arguments[1], fields)


def _value(content: Any, values: dict[Any, Any]) -> Any:
    if isinstance(content, str):
        return values[content]
    if isinstance(content, list):
        return relax.Tuple([_value(item, values) for item in content])
    return values.get(content, content)
