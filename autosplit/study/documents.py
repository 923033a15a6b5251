"""The values of a record as plain JSON documents; ``record`` reads them again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from autosplit.cuts import live, members
from autosplit.cuts.stages import cuts_between
from autosplit.deployment import Deployment
from autosplit.graph import FusedGraph
from autosplit.hardware.measurement.results import Baseline, LinkCost, Measurement, Profile, Spread
from autosplit.serialization import load

T = TypeVar("T", Profile, LinkCost)
_GRAPH_KEYS = ("name", "ops", "tensors", "inputs", "outputs", "states")
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


def deployment_document(graph: FusedGraph, deployment: Deployment) -> dict[str, Any]:
    """How each stage runs, and for each cut its last ops and the tensors live there."""
    last_ops: list[list[str]] = []
    live_tensors: list[list[list[Any]]] = []
    for cut in cuts_between(deployment.split):
        last = [i for i in members(cut) if not graph.successors[i] & cut]
        last_ops.append([graph.ops[i].name for i in last])
        live_tensors.append([[name, int(graph.tensors[name].bytes)] for name in live(graph, cut)])
    return {
        "stages": [list(map(int, ops)) for ops in deployment.split],
        "runtimes": list(deployment.runtimes),
        "replicas": list(deployment.replicas),
        "threads": list(deployment.threads),
        "devices": [list(stage.devices) for stage in deployment.stages],
        "batch": deployment.batch,
        "cuts": last_ops,
        "live": live_tensors,
    }


def measured_document(measurement: Measurement) -> dict[str, Any]:
    """The figures of a measurement."""
    return {
        "period_ms": document_of(measurement.period_ms),
        "latency_ms": document_of(measurement.latency_ms),
        "stage_ms": [float(t) for t in measurement.stage_ms],
        "max_rel_error": float(measurement.accuracy.max_rel_error),
        "disturbed": list(measurement.disturbances),
    }


def differences(recorded: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """What differs between two identities, one phrase a key; a digest is shortened."""
    return [
        f"{key} was {_quoted(recorded.get(key))}, is {_quoted(now.get(key))}"
        for key in sorted({*recorded, *now})
        if recorded.get(key) != now.get(key)
    ]


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
