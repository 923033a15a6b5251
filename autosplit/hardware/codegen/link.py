"""A stage as a program that calls compiled kernels, linked in milliseconds.

The calls are by symbol (``call_dps_packed``), so that no kernel's code goes through the passes
again. Constants are shared by reference: weights are in memory once, whatever the number of
candidates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosplit.extras import relax, tvm, tvm_ffi
from autosplit.files import REMEDY, refused
from autosplit.graph import Op
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.codegen.kernels import Kernels
from autosplit.hardware.codegen.target import foreign_triple
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.lowering.external.regions import generate
from autosplit.lowering.fuse.lowered import Lowered
from autosplit.lowering.layout.order import as_swap, swap_name, to_last

ENTRY = "main"
# TVM's block builders, which import models too, form one stack for all threads.
BUILDING = threading.Lock()


@dataclass(frozen=True)
class Linker:
    """Links stages of a lowered model with its kernels for one target."""

    lowered: Lowered
    kernels: Kernels
    target: Any

    def link(self, functions: Mapping[str, StageSpec], merge: bool = True) -> Any:
        """Link stages, each a function by its name, into a runtime module for this process.

        ``merge``: neighbouring composites of an external backend may become one region; without it
        each runs by itself.
        """
        module = self.kernels.module
        with BUILDING:
            return self._executable(functions, [module] if module else [], merge)

    def write(self, functions: Mapping[str, StageSpec], file: Path) -> None:
        """Write stages, each a function by its name, with weights and kernels as a shared library.

        The library may be for another architecture. Raises MachineError where nothing can link it.
        """
        triple = foreign_triple(self.target)
        toolchain.compiler(triple)
        graph, kernels = self.lowered.graph, self.kernels
        names = {op.kernel for op in self._ops(functions.values())}
        names.update(swap_name(tensor.dtype) for tensor in graph.tensors.values())
        symbols = {kernels.symbols[name] for name in names if name in kernels.symbols}
        built = [kernels.built] if kernels.built is not None else []
        with BUILDING:
            module = relax.VMExecutable(self._executable(functions, built))
        module.export_library(
            str(file),
            fcompile=lambda output, objects, **_: toolchain.link_shared(output, objects, triple),
            fpack_imports=_packed(self.target),
            addons=[] if built else [str(kernels.objects[symbol]) for symbol in sorted(symbols)],
        )

    def _executable(
        self, functions: Mapping[str, StageSpec], libraries: list[Any], merge: bool = True
    ) -> Any:
        builder = relax.BlockBuilder()
        for name, spec in functions.items():
            self._add_function(builder, name, spec)
        module = builder.get()
        ops = self._ops(functions.values())
        external = {op.kernel: op.name for op in ops if op.kernel in self.lowered.composites}
        if external:
            composites = {symbol: self.lowered.composites[symbol] for symbol in external}
            module = generate(module, composites, external, merge)
            libraries = [*libraries, *(module.attrs or {}).get("external_mods", ())]
        # Not by ``relax.build``, which takes 2 MB more memory for each stage of SqueezeNet.
        with self.target:
            module = relax.get_pipeline("default_build")(module)
        executable = relax.ExecBuilder()
        relax.vm_build._vmcodegen(executable, module)
        constants = dict((module.attrs or {}).get("const_name_to_constant", {}))
        return relax.vm_build._ffi_api.VMLink(executable, self.target, None, libraries, constants)

    def _ops(self, stages: Iterable[StageSpec]) -> list[Op]:
        graph = self.lowered.graph
        return [graph.ops[graph.index[op.name]] for stage in stages for op in stage.ops]

    def _add_function(self, builder: Any, name: str, spec: StageSpec) -> None:
        """Add a function of the stage's inputs that returns its outputs."""
        graph = self.lowered.graph
        params: dict[Any, Any] = {
            p.name: relax.Var(f"in{i}", relax.TensorType(p.shape, p.dtype))
            for i, p in enumerate(spec.inputs)
        }
        values = dict(params)
        with builder.function(name, list(params.values())):
            with builder.dataflow():
                for port in spec.inputs:
                    values[port.name] = self._at_cut(builder, params[port.name], port, True)
                for i in (graph.index[op.name] for op in spec.ops):
                    outputs = graph.ops[i].outputs
                    value = builder.emit(self._expression(i, values))
                    is_tuple = isinstance(value.ty, relax.TupleType)
                    for k, tensor in enumerate(outputs):
                        item = builder.emit(relax.TupleGetItem(value, k)) if is_tuple else value
                        values[tensor] = item
                results = [self._at_cut(builder, values[p.name], p, False) for p in spec.outputs]
                result = builder.emit_output(relax.Tuple(results))
            builder.emit_func_output(result)

    def _at_cut(self, builder: Any, value: Any, port: Port, enters: bool) -> Any:
        """Convert a tensor that ``enters`` a stage from the layout of the source, else to it."""
        if port.name not in self.lowered.channels_last:
            return value
        n, a, b = as_swap(port.shape, enters)
        if a > 1 and b > 1:
            flat = builder.emit(relax.op.reshape(value, (n, a, b)))
            result = relax.TensorType((n, b, a), port.dtype)
            symbol = self.kernels.symbols[swap_name(port.dtype)]
            value = builder.emit(relax.call_dps_packed(symbol, relax.Tuple([flat]), result))
        axes = to_last(len(port.shape)) if enters else range(len(port.shape))
        return builder.emit(relax.op.reshape(value, [port.shape[axis] for axis in axes]))

    def _expression(self, i: int, values: dict[Any, Any]) -> Any:
        """The call of an op on this stage's variables."""
        call, op, kernels = self.lowered.calls[i], self.lowered.graph.ops[i], self.kernels
        value = call.value
        if not isinstance(value, relax.Call):
            # A constant is copied, since the caller may overwrite its results.
            place = map(relax.prim_value, (tvm.cpu().dlpack_device_type(), 0))
            return relax.call_pure_packed("vm.builtin.to_device", value, *place, ty_args=value.ty)

        def of_stage(part: Any) -> Any:
            return _value(call.reads.get(part, part), values)

        parts = (relax.Var, tvm.ir.GenericConst), of_stage
        arguments = [tvm_ffi.structural_map(argument, parts) for argument in value.args]
        if op.kernel not in kernels.symbols:
            return relax.Call(value.op, arguments, value.attrs, value.ty_args)
        result = value.ty_args[0]
        fields = list(result.fields) if isinstance(result, relax.TupleType) else result
        return relax.call_dps_packed(kernels.symbols[op.kernel], arguments[1], fields)


def _packed(target: Any) -> Callable[[Any, bool, str, str], str]:
    """A function that writes bytecode and constants as an object file.

    As C source, TVM's default, large weights take minutes to compile.
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


def _value(content: Any, values: dict[Any, Any]) -> Any:
    if isinstance(content, str):
        return values[content]
    if isinstance(content, list):
        return relax.Tuple([_value(item, values) for item in content])
    return values.get(content, content)
