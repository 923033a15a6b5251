"""What a study stores with Optuna: values as plain JSON, and back. What is read back is checked, not trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from autosplit.cuts import bitset, live, members
from autosplit.cuts.stages import Stages
from autosplit.graph import FusedGraph
from autosplit.hardware.measurement.results import Baseline, LinkCost, Measurement, Profile, Spread
from autosplit.study.config.former_names import FORMER_NAMES

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

FORMAT = 1
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def spread_document(spread: Spread) -> dict[str, float]:
    """A spread in ms without its samples."""
    return {"median": float(spread.median), "low": float(spread.low), "high": float(spread.high)}


def read_spread(document: Any) -> Spread | None:
    """The spread of a document; None where it is none."""
    try:
        return Spread(float(document["median"]), float(document["low"]), float(document["high"]))
    except (TypeError, KeyError, ValueError):
        return None


def period_of(trial: FrozenTrial) -> float | None:
    """The measured period of a complete trial in ms; None for another."""
    if trial.state.name != "COMPLETE":
        return None
    stored = read_spread(trial.user_attrs.get("period_ms"))
    return stored.median if stored else trial.values[0] if trial.values else None


def graph_document(graph: FusedGraph) -> dict[str, Any]:
    """The graph, compact: enough to draw it and to name what lies in each stage."""
    return {
        "name": graph.name,
        "ops": [
            {
                "name": op.name,
                "kernel": op.kernel,
                "sources": list(op.sources),
                "inputs": list(op.inputs),
                "outputs": list(op.outputs),
                "weight_bytes": int(op.weight_bytes),
            }
            for op in graph.ops
        ],
        "tensors": {
            t.name: {"shape": [int(d) for d in t.shape], "dtype": t.dtype, "bytes": int(t.bytes)}
            for t in graph.tensors.values()
        },
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
    }


def profile_document(profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    """The profiles, an op a device cannot run as None."""
    return [
        {
            "device": p.device,
            "op_ms": [_finite(t) for t in p.op_ms],
            "spread_ms": [_finite(t) for t in p.spread_ms],
        }
        for p in profiles
    ]


def read_profile(document: Any) -> list[Profile]:
    """The profiles of a document."""
    return [
        Profile(
            str(p["device"]), tuple(map(_number, p["op_ms"])), tuple(map(_number, p["spread_ms"]))
        )
        for p in document
    ]


def link_documents(links: Sequence[LinkCost]) -> list[dict[str, Any]]:
    """What it takes to reach each device, a link without limit as None."""
    return [
        {
            "device": link.device,
            "bandwidth": _finite(link.bandwidth),
            "latency_ms": float(link.latency_ms),
            "call_ms": float(link.call_ms),
        }
        for link in links
    ]


def read_links(documents: Any) -> list[LinkCost]:
    """The links of a list of documents."""
    return [
        LinkCost(
            str(d["device"]), _number(d["bandwidth"]), float(d["latency_ms"]), float(d["call_ms"])
        )
        for d in documents
    ]


def baseline_document(baseline: Baseline) -> dict[str, Any]:
    """A baseline with its period and latency in ms."""
    return {
        "name": baseline.name,
        "period_ms": spread_document(baseline.period_ms),
        "latency_ms": spread_document(baseline.latency_ms),
        "copies": int(baseline.copies),
    }


def read_baselines(documents: Any) -> list[Baseline]:
    """The baselines of a list of documents; those that are malformed are left out."""
    found = []
    for d in documents if isinstance(documents, list) else []:
        if isinstance(d, dict) and (period := read_spread(d.get("period_ms"))):
            latency = read_spread(d.get("latency_ms")) or period
            found.append(
                Baseline(str(d.get("name", "?")), period, latency, int(d.get("copies") or 1))
            )
    return found


def split_attributes(graph: FusedGraph, stages: Stages) -> dict[str, Any]:
    """What describes a split: ops of each stage, and for each cut its last ops and the tensors live there.

    A cut lies between two stages that are not empty.
    """
    cuts = list(accumulate(map(bitset, [ops for ops in stages if ops][:-1]), int.__or__))
    return {
        "stages": [[int(i) for i in ops] for ops in stages],
        "cuts": [
            [graph.ops[i].name for i in members(cut) if not graph.successors[i] & cut]
            for cut in cuts
        ],
        "live": [
            [[name, int(graph.tensors[name].bytes)] for name in live(graph, cut)] for cut in cuts
        ],
    }


def measured_attributes(measurement: Measurement) -> dict[str, Any]:
    """What was measured, and the same as single numbers, which become axes in the dashboard."""
    times = [float(t) for t in measurement.stage_ms]
    busy = [t for t in times if t > 0]  # an empty stage takes no time
    mean = sum(busy) / len(busy) if busy else 0.0
    return {
        "period_ms": spread_document(measurement.period_ms),
        "latency_ms": spread_document(measurement.latency_ms),
        "stage_ms": times,
        "max_rel_error": float(measurement.accuracy.max_rel_error),
        "period": float(measurement.period_ms.median),
        "latency": float(measurement.latency_ms.median),
        "imbalance": max(times) / mean if mean > 0 else 1.0,
        "bottleneck_stage": times.index(max(times)) if times else 0,
        **{f"stage{i}_ms": t for i, t in enumerate(times)},
    }


def differences(recorded: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """What differs between two identities, one phrase a key; of a digest 12 digits are told."""
    return [
        _changed(key, recorded.get(key), now.get(key))
        for key in sorted({*recorded, *now})
        if recorded.get(key) != now.get(key)
    ]


def _changed(key: str, before: object, after: object) -> str:
    if _DIGEST.fullmatch(str(before)) and _DIGEST.fullmatch(str(after)):
        return f"the {key} has changed (sha256 {str(before)[:12]}, now {str(after)[:12]})"
    name = FORMER_NAMES.get(key, key)
    return f"{name} was {_short(before)}, is {_short(after)}"


def _short(value: object) -> str:
    text = (
        "not set" if value is None else f"'{_DIGEST.sub(lambda found: found[0][:12], str(value))}'"
    )
    return text if len(text) <= 80 else f"{text[:77]}..."


def _finite(value: float) -> float | None:
    value = float(value)
    return value if abs(value) < float("inf") else None


def _number(value: Any) -> float:
    return float("inf") if value is None else float(value)
