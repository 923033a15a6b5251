"""The values of a record as plain JSON documents; ``record`` reads them again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from pydantic_core import to_jsonable_python

from autosplit.cuts import live, members
from autosplit.cuts.stages import cuts_between
from autosplit.deployment import Deployment
from autosplit.graph import FusedGraph
from autosplit.hardware.measurement.results import LinkCost, Measurement, Profile
from autosplit.serialization import load

T = TypeVar("T", Profile, LinkCost)
_SAMPLES: Any = {"samples": True, "period_ms": {"samples"}, "latency_ms": {"samples"}}
_DRAWN: Any = {
    "name": True,
    "ops": {"__all__": {"name", "kernel", "sources", "inputs", "outputs", "weight_bytes"}},
    "tensors": {"__all__": {"shape", "dtype", "bytes"}},
    "inputs": True,
    "outputs": True,
    "states": True,
}
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def document_of(value: Any, **fields: Any) -> Any:
    """A value as a JSON document without samples; numbers that are not finite become null.

    ``fields``: pydantic's ``include``.
    """
    return to_jsonable_python(
        value, inf_nan_mode="null", fallback=np.generic.item, exclude=_SAMPLES, **fields
    )


def read(kind: type[T], documents: Any) -> list[T]:
    """Read profiles or links from documents, where null is an infinite time or bandwidth."""
    return [load(kind, _with_infinity(document)) for document in documents]


def graph_document(graph: FusedGraph) -> dict[str, Any]:
    """The graph, compact: enough to draw it and to name the ops of each stage."""
    return dict(document_of(graph, include=_DRAWN))


def deployment_document(graph: FusedGraph, deployment: Deployment) -> dict[str, Any]:
    """How each stage runs, and for each cut its last ops and the tensors live there."""
    cuts = cuts_between(deployment.split)
    last_ops = [[i for i in members(cut) if not graph.successors[i] & cut] for cut in cuts]
    document = {
        "stages": deployment.split,
        "runtimes": deployment.runtimes,
        "replicas": deployment.replicas,
        "threads": deployment.threads,
        "devices": [stage.devices for stage in deployment.stages],
        "batch": deployment.batch,
        "cuts": [[graph.ops[i].name for i in last] for last in last_ops],
        "live": [[(name, graph.tensors[name].bytes) for name in live(graph, cut)] for cut in cuts],
    }
    return dict(document_of(document))


def measured_document(measurement: Measurement) -> dict[str, Any]:
    """The figures of a measurement."""
    document = dict(document_of(measurement))
    return document | {"disturbed": document.pop("disturbances")}


def differences(recorded: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """The differences between two identities, one phrase per key; digests are shortened."""
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


def _with_infinity(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _with_infinity(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_with_infinity(item) for item in document]
    return math.inf if document is None else document
