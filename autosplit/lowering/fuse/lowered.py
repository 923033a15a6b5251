"""The fused model: the pure graph, and for each of its ops the Relax call that computes it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from autosplit.errors import ModelError
from autosplit.extras import relax
from autosplit.frontend.relax.main_function import bindings, with_main
from autosplit.frontend.source import Signature, SourceModel, marked
from autosplit.graph import FusedGraph
from autosplit.lowering.external.backend import Backend, groups
from autosplit.lowering.external.composites import Composite, partition
from autosplit.lowering.fuse.indices import Range, index_ranges, integers_below, most_steps
from autosplit.lowering.fuse.passes import fuse
from autosplit.lowering.fuse.reader import read
from autosplit.lowering.fuse.tensors import Call, bytes_of, constants, dtypes_of, require_static
from autosplit.lowering.layout.order import swap_kernel, swap_name
from autosplit.lowering.states import match_states, proposed_pairs


@dataclass(frozen=True)
class Lowered:
    """A model lowered for one target.

    - ``calls[i]`` computes ``graph.ops[i]``; ``kernels`` are the PrimFuncs by name.
    - ``outputs`` pairs each output name of the model with the tensor that holds it.
    - ``composites``: what external backends compute, by the symbol that an op calls.
    - ``keep_together``: the ops of each region and of each state, which no cut may divide.
    - ``dtypes``: the element types that the model computes in, also inside fused ops.
    - ``channels_last``: names of tensors with that layout between the ops of a stage; at cuts they
      have the layout of the source.
    - ``integers_below``: for integer inputs, the exclusive upper limit of random values, if known.
    - ``index_ranges``: for integer inputs, the least and largest legal value, where certain.
    - ``initial``: the initial value of each state that does not start at zero, by its input.
    - ``steps``: the most items that a stream may have; ``advance``: how far each item advances the
      counter of positions in its states. Both are None where unknown.
    """

    graph: FusedGraph
    calls: tuple[Call, ...]
    kernels: Mapping[str, Any]
    inputs: tuple[Signature, ...]
    outputs: tuple[tuple[str, str], ...]
    composites: Mapping[str, Composite] = field(default_factory=dict)
    keep_together: tuple[tuple[int, ...], ...] = ()
    dtypes: frozenset[str] = frozenset()
    channels_last: frozenset[str] = frozenset()
    integers_below: Mapping[str, int] = field(default_factory=dict)
    index_ranges: Mapping[str, Range] = field(default_factory=dict)
    initial: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    advance: int | None = None

    @cached_property
    def regions(self) -> Mapping[str, tuple[int, ...]]:
        """The indices of the ops that each external backend runs, by the name of the backend."""
        ops: dict[str, list[int]] = {}
        for i, op in enumerate(self.graph.ops):
            if op.kernel in self.composites:
                ops.setdefault(self.composites[op.kernel].backend.name, []).append(i)
        return {name: tuple(indices) for name, indices in ops.items()}

    @cached_property
    def weight_bytes(self) -> int:
        """The bytes of all constants, each counted once."""
        return bytes_of(c for call in self.calls for c in constants(call))


def lower(
    source: SourceModel,
    target: Any,
    backends: Sequence[Backend] = (),
    states: Mapping[str, str] | Literal["auto"] | None = None,
) -> Lowered:
    """Fuse ``source`` for ``target`` (a tvm Target) and name all ops and tensors.

    Each match of a pattern of ``backends`` is an op of its own: nothing is fused with it, and no
    cut divides it. ``states`` maps each input to the output that feeds it in the next step; "auto"
    takes the states that ``propose_states`` proposes, unless the source itself keeps some.

    Raises ModelError where the model cannot be split, ConfigError for a wrong state.
    """
    require_static(source)
    module, composites = partition(source, backends) if backends else (source.module, {})
    try:
        fused = fuse(module, target)
    except ModelError as error:
        raise ModelError(f"{_node_at_fault(source, target)}{error}") from error
    graph, calls, outputs, channels_last = read(source, fused, composites)
    functions = fused.fused.functions.items()
    kernels = {gvar.name_hint: f for gvar, f in functions if gvar.name_hint != "main"}
    for dtype in sorted({graph.tensors[name].dtype for name in channels_last}):
        kernels[swap_name(dtype)] = swap_kernel(dtype)
    dtypes = frozenset(tensor.dtype for tensor in graph.tensors.values())
    pairs = {state.input: state.output for state in source.states}
    if states == "auto":
        pairs = pairs or proposed_pairs(graph, outputs)
    else:
        pairs |= states or {}
    graph = replace(graph, states=match_states(graph, outputs, pairs))
    ranges = index_ranges(source)
    steps, advance = most_steps(source, pairs, ranges) or (None, None)
    lowered = Lowered(
        graph,
        calls,
        kernels,
        source.inputs,
        outputs,
        composites,
        dtypes=dtypes | dtypes_of(fused.flat["main"]),
        channels_last=channels_last,
        integers_below=integers_below(source),
        index_ranges=ranges,
        initial={state.input: state.initial for state in source.states if state.initial.any()},
        steps=steps,
        advance=advance,
    )
    regions = groups(graph, lowered.regions, backends)
    return replace(lowered, keep_together=(*regions, *graph.ops_of_states))


def _node_at_fault(source: SourceModel, target: Any) -> str:
    """The start of a message: the first node that cannot be lowered with all nodes before it."""
    main = source.module["main"]
    in_order = bindings(main)

    def is_refused(index: int) -> bool:
        last = in_order[index].var
        result = relax.Var("result", last.ty)
        block = relax.DataflowBlock([*in_order[: index + 1], relax.VarBinding(result, last)])
        beginning = relax.Function(main.params, relax.SeqExpr([block], result), result.ty)
        try:
            fuse(with_main(source.module, beginning), target)
        except ModelError:
            return True
        return False

    first = bisect_left(range(len(in_order)), True, key=is_refused)
    marks = (marked(binding.var.name) for binding in in_order[first:])
    tensor = next((source.tensors[mark] for mark in marks if mark is not None), None)
    names = (f"node '{n.name}' ({n.kind}): " for n in source.nodes if tensor in n.outputs)
    return next(names, "")
