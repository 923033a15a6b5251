"""Which source nodes each fused op came from, what its results are called, and why a node left no op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import SourceModel
from autosplit.graph import Folded
from autosplit.lowering.fuse.flat import Env, Flat, is_call, made, resolve, start
from autosplit.lowering.fuse.folded_nodes import MERGED, Folding
from autosplit.lowering.fuse.fuse import FusedModule


@dataclass(frozen=True)
class Attribution:
    """By position of a binding in the fused ``main``: source nodes whose result the op makes (``sources``) or of which it
    only makes a part (``parts``), and the names of its results (None where no source tensor matches).
    """

    sources: Mapping[int, tuple[str, ...]]
    parts: Mapping[int, tuple[str, ...]]
    results: Mapping[int, tuple[str | None, ...]]
    folded: tuple[Folded, ...]


def attribute(source: SourceModel, module: FusedModule) -> Attribution:
    """Match the calls of the fused ``main`` with the nodes of ``source``."""
    flat = Flat(source, module.flat)
    members, results = match(flat, module.grouped)
    folding = Folding(source)
    home = _homes(source, flat, members, folding)
    owners = {
        p: {flat.owner[n] for n in numbers if n in flat.owner} for p, numbers in members.items()
    }
    names = [node.name for node in source.nodes]
    return Attribution(
        sources={
            p: tuple(names[n] for n in sorted(n for n, h in home.items() if h == p))
            for p in members
        },
        parts={
            p: tuple(names[n] for n in sorted(o for o in owners[p] if home.get(o) != p))
            for p in members
        },
        results=results,
        folded=tuple(
            Folded(names[n], folding.reason(n)) for n in range(len(names)) if n not in home
        ),
    )


def match(
    flat: Flat, module: Any
) -> tuple[dict[int, list[int]], dict[int, tuple[str | None, ...]]]:
    """By position in the ``main`` of a grouped module: the flat calls inside, and the source tensors it results in."""
    import tvm

    members: dict[int, list[int]] = {}
    results: dict[int, tuple[str | None, ...]] = {}
    env = start(module["main"])
    for position, binding in enumerate(bindings(module["main"])):
        value: Any = getattr(binding, "value", None)
        if not is_call(value):
            env[binding.var] = resolve(value, env)
            continue
        if isinstance(value.op, tvm.ir.GlobalVar):
            members[position], env[binding.var] = _enter(
                flat, module[value.op], [resolve(a, env) for a in value.args]
            )
        else:
            number = flat.take(value, env)
            members[position], env[binding.var] = [number], made(number, value)
        held = env[binding.var] if isinstance(env[binding.var], list) else [env[binding.var]]
        results[position] = tuple(map(flat.name, held))
    return members, results


def _enter(flat: Flat, function: Any, arguments: list[Any]) -> tuple[list[int], Any]:
    """The flat calls inside a fused function that is called on ``arguments``, and what its result holds."""
    env: Env = dict(zip(function.params, arguments, strict=True))
    members = []
    for binding in bindings(function):
        if is_call(binding.value):
            number = flat.take(binding.value, env)
            members.append(number)
            env[binding.var] = made(number, binding.value)
        else:
            env[binding.var] = resolve(binding.value, env)
    return members, resolve(function.body.body, env)


def _homes(
    source: SourceModel, flat: Flat, members: Mapping[int, list[int]], folding: Folding
) -> dict[int, int]:
    """Source node -> position of the op that makes its result, or that took it in; folded nodes are absent."""
    home: dict[int, int] = {}
    for position, numbers in members.items():
        for number in numbers:
            for tensor in flat.tensors[number].values():
                if tensor in flat.maker:
                    home[flat.maker[tensor]] = position
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(source.nodes):
        for tensor in node.inputs:
            if tensor in flat.maker:
                readers.setdefault(flat.maker[tensor], []).append(i)
    for i in reversed(range(len(source.nodes))):
        if i not in home and folding.reason(i) == MERGED:
            later = [home[r] for r in readers.get(i, ()) if r in home]
            if later:
                home[i] = later[0]
    return home
