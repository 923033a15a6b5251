"""Op times of a model at one batch or several, after a comparison of its outputs.

A model whose items influence one another can have batch 1 only.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from autosplit import phases
from autosplit.cuts import bitset, with_whole_groups
from autosplit.deployment import Deployment
from autosplit.errors import AutosplitError, MachineError, MismatchError, ModelError
from autosplit.hardware import cache
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.core_kinds import kinds_of
from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.execution.wiring import part
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.measurement.sequences import ITEMS
from autosplit.hardware.runtimes.registry import AUTO, TVM
from autosplit.versions import VERSION

if TYPE_CHECKING:
    from autosplit.graph import FusedGraph
    from autosplit.hardware.compiled_model import CompiledModel

AUTO_BATCHES = "auto"
MOST_AUTO = 64  # the largest batch that "auto" tries
LEAST_GAIN = 0.05  # the share of an item's time that must be saved for "auto" to double again
# Compiling kernels takes long, so TVM is left out of a batch if at the batch before it took more
# than this many times as long as the fastest runtime.
_HOPELESS = 1.5


def require_batchable(model: CompiledModel, variant: CompiledModel) -> None:
    """Raise ModelError unless ``variant`` computes ``model`` for several items at once."""
    where = f"batch {variant.batch} of '{model.graph.name}'"
    if model.graph.states:
        raise ModelError(f"{where}: states belong to single items; use batch 1")
    pairs = zip(model.lowered.inputs, variant.lowered.inputs, strict=True)
    sizes = [(f"input '{i.name}'", i.shape, other.shape) for i, other in pairs]
    tensors = dict(variant.lowered.outputs)
    for name, tensor in model.lowered.outputs:
        shape = variant.graph.tensors[tensors[name]].shape if name in tensors else ()
        sizes.append((f"output '{name}'", model.graph.tensors[tensor].shape, shape))
    for name, shape, other in sizes:
        if not shape or other != (variant.batch * shape[0], *shape[1:]):
            raise ModelError(
                f"{where}: {name} is {list(shape)} for one item and {list(other)} for "
                f"{variant.batch}, which is no batch along the first axis; use batch 1"
            )
    ours, theirs = _structure(model.graph), _structure(variant.graph)
    if ours != theirs:
        both = zip(model.graph.ops, ours, theirs, strict=False)
        different = next((op for op, a, b in both if a != b), model.graph.ops[-1])
        raise ModelError(f"{where}: its ops differ from '{different.name}' on; use batch 1")
    varying = set(model.graph.inputs)
    for op, batched in zip(model.graph.ops, variant.graph.ops, strict=True):
        if varying.isdisjoint(op.inputs):
            continue
        varying.update(op.outputs)
        one = sum(model.graph.tensors[tensor].bytes for tensor in op.outputs)
        # One result for all items, such as the condition of an If, mixes them on some inputs only.
        if sum(variant.graph.tensors[t].bytes for t in batched.outputs) != variant.batch * one:
            raise ModelError(f"{where}: items influence one another in op '{op.name}'; use batch 1")


def _structure(graph: FusedGraph) -> list[tuple[object, ...]]:
    """The ops in a form to compare: without kernel names, which TVM numbers by their shapes."""
    places = {t: (n, i) for n, op in enumerate(graph.ops) for i, t in enumerate(op.outputs)}
    return [
        (op.sources, [places.get(t, t) for t in op.inputs], len(op.outputs)) for op in graph.ops
    ]


def batched_profiles(
    model: CompiledModel, places: Sequence[Device], batches: Sequence[int] | str = (1,)
) -> list[Profile]:
    """Profile a model at some batches, in ms for an item, and compare its outputs.

    ``batches`` are numbers, or "auto": 1, doubled while that shortens an item's time on some device
    by more than 5 %. At batches above 1 TVM is left out where it cannot win. Raises ModelError for
    one of the numbers that is not possible for the model.
    """
    is_auto = batches == AUTO_BATCHES
    doubled = [1 << n for n in range(MOST_AUTO.bit_length())]
    numbers = doubled if is_auto else sorted({*map(int, batches)})
    before = checked_profiles(model, places)
    profiles = list(before) if 1 in numbers else []
    for batch in (number for number in numbers if number > 1):
        try:
            variant = model.at_batch(batch)
            further = checked_profiles(variant, places, _promising(model, before, len(places)))
            _require_possible(model, variant, further)
        except ModelError as error:
            if not is_auto:
                raise
            phases.report(str(error))
            break
        profiles += further
        pairs = zip(_fastest(further, len(places)), _fastest(before, len(places)), strict=True)
        if is_auto and all(after >= (1 - LEAST_GAIN) * earlier for after, earlier in pairs):
            break
        before = further
    return profiles


def checked_profiles(
    model: CompiledModel, places: Sequence[Device], runtimes: Sequence[str] = ()
) -> list[Profile]:
    """The profiles of a model, with infinite times for a runtime whose outputs differ.

    Outputs are compared for runtime ``auto`` and above batch 1. Cores of one kind are timed once.
    """
    alike = [kinds_of(p.numbers) if isinstance(p, Cores) else p for p in places]
    first = dict(zip(alike[::-1], places[::-1], strict=True))
    profiles = model.profiles([first[kind] for kind in alike], runtimes=runtimes)
    pairs = zip(profiles, cycle(places))
    profiles = [replace(profile, device=str(place)) for profile, place in pairs]
    if model.runtime_name != AUTO and model.batch == 1:
        return profiles
    possible = dict.fromkeys(p.runtime for p in profiles if p.is_possible)
    mismatches = {runtime: mismatch(model, runtime, places) for runtime in possible}
    return [p.without_times(mismatches.get(p.runtime) or p.note) for p in profiles]


def mismatch(model: CompiledModel, runtime: str, places: Sequence[Device]) -> str:
    """A message on how the outputs of the whole model in a runtime differ from the reference.

    Empty where they are equal, or where none of ``places`` can run the whole model.
    """
    device = next(filter(model.runtime_of(runtime).can_run, places), None)
    if device is None:
        return ""
    key = [VERSION, *model.identity.values(), runtime, str(device), str(model.allowed_error)]
    file = cache.folder() / "comparisons" / f"{cache.digest(*key, f'{ITEMS} {model.batch}')}.txt"
    if cache.is_whole(file):
        return file.read_text(encoding="utf-8")
    phases.report(f"comparing outputs of {runtime}")
    _ = model.reference_outputs  # first: an item that the reference refuses could crash a kernel
    text = ""
    try:
        with model.whole(runtime, device) as pipeline:
            model.require_equal(pipeline, [runtime])
    except MachineError:
        raise
    except MismatchError as error:
        text = str(error)
    except AutosplitError as error:
        return str(error)  # not cached, because the next run may succeed
    cache.keep(file, lambda new: new.write_text(text, encoding="utf-8"), again=True)
    return text


def _fastest(profiles: Sequence[Profile], count: int) -> list[float]:
    """The time of an item in the fastest runtime on each of ``count`` devices."""
    times = [profile.whole_ms for profile in profiles]
    return [min(times[n::count], default=math.inf) for n in range(count)]


def _promising(model: CompiledModel, before: Sequence[Profile], count: int) -> list[str]:
    """The runtimes that may be the fastest, judged by their profiles at the batch before."""
    is_hopeful = any(
        profile.whole_ms <= _HOPELESS * least
        for n, least in enumerate(_fastest(before, count))
        for profile in before[n::count]
        if profile.runtime == TVM
    )
    names = [name for name in model.runtimes if name != TVM or is_hopeful]
    return names or list(model.runtimes)


def _require_possible(
    model: CompiledModel, variant: CompiledModel, profiles: Sequence[Profile]
) -> None:
    """Raise ModelError unless some runtime gives each item of a batch the results it has alone."""
    if any(profile.is_possible for profile in profiles):
        return
    where = f"batch {variant.batch} of '{model.graph.name}'"
    for name in variant.runtimes:
        ops = mixing_ops(model, variant, name)
        if ops:
            raise ModelError(
                f"{where}: items influence one another in op {' or '.join(ops)}; use batch 1"
            )
    raise ModelError(f"{where}: {profiles[0].note or 'no runtime computes it'}; use batch 1")


def mixing_ops(model: CompiledModel, variant: CompiledModel, runtime: str) -> list[str]:
    """The first op, or group of ops, whose results for an item depend on the rest of the batch.

    Found by bisection: the first ops of the model are run alone. Empty where a run fails.
    """
    groups = [bitset(group) for group in model.runtime_of(runtime).keep_together]
    beginnings = ((length, (1 << length) - 1) for length in range(1, len(model.graph.ops) + 1))
    lengths = [n for n, ops in beginnings if with_whole_groups(model.graph, ops, groups) == ops]
    mixes = partial(_mixes, model, variant, runtime)
    try:
        shortest = bisect_left(lengths, True, hi=len(lengths) - 1, key=mixes)
    except MachineError:
        raise
    except AutosplitError:
        return []
    first = lengths[shortest - 1] if shortest else 0
    return [op.name for op in model.graph.ops[first : lengths[shortest]]]


def _mixes(model: CompiledModel, variant: CompiledModel, runtime: str, length: int) -> bool:
    """Whether the first ``length`` ops give an item other results in a batch than alone."""
    results = []
    for each in (model, variant):
        wiring = part(each.graph, range(length), each.lowered.outputs)
        deployment = Deployment.of_split([range(length)], [str(devices.along(1)[0])], [runtime])
        with each.run_on(wiring, deployment) as pipeline:
            names = {port.name for port in wiring.inputs}
            items = [{name: item[name] for name in names} for item in model.reference_outputs.items]
            results.append(pipeline.run(items * -(-variant.batch // len(items))))
    return not compare(results[1], results[0], model.allowed_error).equal
