"""What a study stores with Optuna: values as plain JSON documents, and back.

``attributes`` reads those of studies that anybody may have written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from autosplit.cuts import live, members
from autosplit.cuts.stages import Stages, cuts_between
from autosplit.graph import FusedGraph
from autosplit.hardware.measurement.results import Baseline, LinkCost, Measurement, Profile, Spread
from autosplit.serialization import load
from autosplit.study.config.explain import FORMER_NAMES

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

T = TypeVar("T", Profile, LinkCost)
FORMAT = 2  # of the studies that this version writes and continues
_GRAPH_KEYS = ("name", "ops", "tensors", "inputs", "outputs", "states")
KEY = "key"  # attribute of a trial: the text of its split
LOST = "lost"  # attribute of a failed trial whose split was not measured and is free again
DISTURBED = (
    "disturbed"  # attribute of a trial: why its figures cannot be trusted; empty if they can
)
# Attribute of a trial that the final comparison measured again: what the search measured before.
SEARCHED = "searched"
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_INFINITY = float("inf")


def document_of(value: Spread | Baseline | Profile | LinkCost) -> Any:
    """A measured value as a document: a number that is not finite as null, no samples."""
    return _plain(asdict(value))


def read(kind: type[T], documents: Any) -> list[T]:
    """The profiles or links of a list of documents; an infinite time or bandwidth is null."""
    return [load(kind, _with_infinity(document)) for document in documents]


def graph_document(graph: FusedGraph) -> dict[str, Any]:
    """The graph, compact: enough to draw it and to name the ops of each stage."""
    document: dict[str, Any] = _plain(asdict(graph))
    for op in document["ops"]:
        for unused in ("flops", "parts", "opaque"):
            del op[unused]
    for tensor in document["tensors"].values():
        for unused in ("name", "producer", "consumers"):
            del tensor[unused]
    return {key: document[key] for key in _GRAPH_KEYS}


def split_attributes(graph: FusedGraph, stages: Stages) -> dict[str, Any]:
    """The ops of each stage, and for each cut its last ops and the tensors live there.

    A cut lies between two stages that are not empty.
    """
    last_ops: list[list[str]] = []
    live_tensors: list[list[list[Any]]] = []
    for cut in cuts_between([ops for ops in stages if ops]):
        last = [i for i in members(cut) if not graph.successors[i] & cut]
        last_ops.append([graph.ops[i].name for i in last])
        live_tensors.append([[name, int(graph.tensors[name].bytes)] for name in live(graph, cut)])
    return {
        "stages": [list(map(int, ops)) for ops in stages],
        "cuts": last_ops,
        "live": live_tensors,
    }


def measured_attributes(measurement: Measurement, shares: Sequence[float]) -> dict[str, Any]:
    """A measurement, and its main numbers one by one: they become axes in the dashboard.

    ``shares``: what each stage's replicas divide its time by.
    """
    stage_ms = [float(t) for t in measurement.stage_ms]
    times = [t / s for t, s in zip(stage_ms, shares, strict=True)]
    busy = [t for t in times if t > 0]  # an empty stage takes no time
    mean = sum(busy) / len(busy) if busy else 0.0
    return {
        "period_ms": document_of(measurement.period_ms),
        "latency_ms": document_of(measurement.latency_ms),
        "stage_ms": stage_ms,
        "max_rel_error": float(measurement.accuracy.max_rel_error),
        DISTURBED: list(measurement.disturbances),
        "period": float(measurement.period_ms.median),
        "latency": float(measurement.latency_ms.median),
        "imbalance": max(times) / mean if mean > 0 else 1.0,
        "bottleneck_stage": times.index(max(times)) if times else 0,
        **{f"stage{i}_ms": t for i, t in enumerate(stage_ms)},
    }


def searched(trial: FrozenTrial) -> dict[str, Any]:
    """The attributes of a trial, and its ``values``, as the search measured them.

    The search goes on from these, whatever the final comparison measured since: so a study that is
    resumed takes the same way as one that was never stopped.
    """
    before = trial.user_attrs.get(SEARCHED)
    again = before if isinstance(before, dict) else {}
    return {"values": trial.values, **trial.user_attrs, **again}


def compared_attributes(trial: FrozenTrial, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a trial that the final comparison measured: ``figures`` and those before.

    ``figures`` are ``measured_attributes`` of the comparison.
    """
    known = searched(trial)
    before = {key: known.get(key) for key in ("values", "period_ms", "latency_ms", "stage_ms")}
    return {**figures, SEARCHED: before}


def differences(recorded: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """What differs between two identities, one phrase a key; a digest is shortened."""
    return [
        _difference(key, recorded.get(key), now.get(key))
        for key in sorted({*recorded, *now})
        if recorded.get(key) != now.get(key)
    ]


def _difference(key: str, before: object, after: object) -> str:
    if _DIGEST.fullmatch(str(before)) and _DIGEST.fullmatch(str(after)):
        return f"the {key} has changed (sha256 {str(before)[:12]}, now {str(after)[:12]})"
    return f"{FORMER_NAMES.get(key, key)} was {_quoted(before)}, is {_quoted(after)}"


def _quoted(value: object) -> str:
    if value is None:
        return "not set"
    text = f"'{_DIGEST.sub(lambda digest: digest[0][:12], str(value))}'"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plain(document: Any) -> Any:
    """A document with null for numbers that JSON cannot write, and without samples."""
    if isinstance(document, dict):
        return {key: _plain(value) for key, value in document.items() if key != "samples"}
    if isinstance(document, list | tuple):
        return [_plain(item) for item in document]
    if isinstance(document, np.generic):
        document = document.item()
    return None if isinstance(document, float) and not math.isfinite(document) else document


def _with_infinity(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _with_infinity(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_with_infinity(item) for item in document]
    return _INFINITY if document is None else document
