"""The documents of ``plan``: the plan and its proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from autosplit.deployment import Row, threads_of
from autosplit.errors import ConfigError
from autosplit.hardware.measurement.results import Profile
from autosplit.planner import CostModel, Plan

_PROOF = ("lower_bound", "gap", "optimal", "note")  # fields of a plan about its quality


def document(costs: CostModel, plan: Plan) -> dict[str, Any]:
    """The document of ``plan -f json`` without ``seconds``; its keys are stable.

    Times are in the unit of the costs.
    """
    return {
        "stages": [[costs.ids[i] for i in ops] for ops in plan.split],
        "replicas": [stage.replicas for stage in plan.stages],
        "threads": [stage.threads for stage in plan.stages],
        # A plan of a graph file has no runtime.
        "runtimes": [stage.runtime or None for stage in plan.stages],
        "batch": plan.stages[0].options[0].row.batch,
        "loads": list(plan.loads),
        "periods": list(plan.periods),
        "period": plan.period,
        "latency": plan.latency,
        "bytes_moved": plan.bytes_moved,
        "memory": list(plan.memory),
        **{key: getattr(plan, key) for key in _PROOF},
    }


def placed(plan: Plan, devices: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Where the stages of a split run: indices of their devices in ``devices``, or ``names``."""
    free: dict[str, list[int]] = {}
    for place, device in enumerate(devices):
        free.setdefault(device, []).append(place)
    places = [free[stage.devices[0]].pop(0) for stage in plan.stages]
    return {
        "threads": [threads_of(devices[place]) for place in places],
        "devices": [names[place] if names else place for place in places],
    }


def layer_flags(document: Mapping[str, Any], costs: CostModel, tool: str) -> str:
    """A plan of a graph whose nodes are the layers of a model, as an option of another program.

    Raises ConfigError for a graph whose nodes are not in a row.
    """
    if any(before != 1 << i for i, before in enumerate(costs.predecessors[1:])):
        raise ConfigError(
            f"--as {tool} needs stages that are ranges of layers; "
            "give a graph file whose nodes are the layers, in a row"
        )
    counts, devices = list(map(len, document["stages"])), document["devices"]
    listed, names = ",".join(map(str, counts)), list(map(str, devices))
    if tool == "llama.cpp" and isinstance(devices[0], str):
        return f"--device {','.join(names)} -ts {listed}"
    if tool == "llama.cpp":
        if devices != sorted(devices):
            raise ConfigError(f"--as {tool} reorders devices by name; name them in the graph file")
        # A device without layers has a share of 0.
        shares = dict(zip(devices, counts, strict=True))
        return "-ts " + ",".join(str(shares.get(place, 0)) for place in range(devices[-1] + 1))
    if tool == "vllm":
        return f"VLLM_PP_LAYER_PARTITION={listed} --pipeline-parallel-size {len(counts)}"
    ends = accumulate(counts)
    ranges = zip(names, counts, ends, strict=True)
    return "; ".join(
        f"{name}: start_layer={end - count} end_layer={end - 1} n_layers={len(costs.ids)}"
        for name, count, end in ranges
    )


def certainty(plan: Plan, profiles: Mapping[Row, Profile]) -> dict[str, Any]:
    """How certain the ``profiles`` behind a plan are, as keys of its document.

    These are ``period_interval``, ``disturbances``, and when each profile was measured. The
    interval goes from the largest stage period with all op times at their low ends to that with all
    at their high ends, since what slows one op for a while, such as the processor's clock, slows
    all. It is None if the spread of a stage is unknown.
    """
    ends: list[tuple[float, float]] = []
    used: dict[Row, Profile] = {}
    is_spread_known = True
    for stage, load, period in zip(plan.stages, plan.loads, plan.periods, strict=True):
        row = stage.options[0].row
        # Devices that cost the same are one kind, but each has a profile.
        row = replace(row, kind=stage.devices[0]) if stage.devices else row
        profile = used[row] = profiles[row]
        half = sum(profile.spread_ms[op] for op in stage.ops)
        # A spread of 0 means that the runtime timed each op once: it is unknown.
        is_spread_known &= half > 0 or load == 0
        share = half / load if load else 0.0
        ends.append((period * max(0.0, 1 - share), period * (1 + share)))
    interval = [max(side) for side in zip(*ends, strict=True)]
    return {
        "period_interval": interval if is_spread_known else None,
        "disturbances": [profile.doubt for profile in used.values() if profile.doubt],
        "profiles": [
            {"runtime": p.runtime, "device": p.device, "measured_at": p.measured_at}
            for p in used.values()
        ],
    }
