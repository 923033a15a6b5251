"""Configurations with which other servers run a deployment of one stage as it was measured."""

from __future__ import annotations

import json
from collections.abc import Callable

from autosplit.deploy.manifest import Manifest
from autosplit.deploy.server.protocol import datatype
from autosplit.deployment import threads_of
from autosplit.errors import ConfigError
from autosplit.hardware.execution.stage_spec import Port
from autosplit.hardware.runtimes.registry import OPENVINO, TVM, package_of

_ONGOING = 5  # requests of a replica at once, Ray's default


def hint(document: Manifest, server: str) -> str:
    """The configuration of the model for one of ``HINTS``.

    Raises ConfigError for several stages, states, and a runtime that the server does not have.
    """
    runtime, count = document.stages[0].runtime, len(document.stages)
    backend = package_of(runtime)
    if count > 1:
        raise ConfigError(f"'{server}' runs one stage, not {count}; use `autosplit serve`")
    if document.model.states:
        raise ConfigError(f"'{server}' would not keep the states of streams; use `autosplit serve`")
    if backend == TVM or (server == "ovms" and backend != OPENVINO):
        raise ConfigError(f"'{server}' does not run stages in {runtime}; use `autosplit serve`")
    return HINTS[server](document)


def _triton(document: Manifest) -> str:
    """A ``config.pbtxt``: instances and threads, and for a batch the dynamic batcher."""
    stage, batch, delay = document.stages[0], document.batch, _delay_ms(document)
    size = stage.inputs[0].shape[0] if batch > 1 else 0  # an item may have several rows
    lines = [
        f"name: {_text(document.model.name)}",
        f'backend: "{package_of(stage.runtime)}"',
        f"max_batch_size: {size}",
    ]
    for kind, ports in (("input", document.model.inputs), ("output", document.model.outputs)):
        lines += [f"{kind} [ {_triton_port(port, batch)} ]" for port in ports]
    lines.append(f"instance_group [ {{ count: {len(stage.replicas)} kind: KIND_CPU }} ]")
    if batch > 1:
        lines.append(
            f"dynamic_batching {{ preferred_batch_size: [ {size} ] "
            f"max_queue_delay_microseconds: {round(1e3 * delay)} }}"
        )
    key = "intra_op_thread_count" if stage.runtime == "onnxruntime" else "INFERENCE_NUM_THREADS"
    lines.append(f'parameters {{ key: "{key}" value: {{ string_value: "{_threads(document)}" }} }}')
    return "\n".join(lines) + "\n"


def _triton_port(port: Port, batch: int) -> str:
    # With a batch Triton adds the first axis itself, so the model's own file needs it dynamic.
    shape = port.shape[1:] if batch > 1 else port.shape
    if not port.shape:
        raise ConfigError(f"'triton' has no scalars, such as '{port.name}'; use `autosplit serve`")
    sizes = f"[ {', '.join(map(str, shape))} ]" if shape else "[ 1 ] reshape: { shape: [ ] }"
    return f"{{ name: {_text(port.name)} data_type: TYPE_{datatype(port)} dims: {sizes} }}"


def _text(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)  # protobuf's escapes are those of JSON


def _ovms(document: Manifest) -> str:
    """The ``config.json`` of OpenVINO Model Server."""
    stage, streams = document.stages[0], len(document.stages[0].replicas)
    size = {"batch_size": str(stage.inputs[0].shape[0])} if document.batch > 1 else {}
    threads = streams * _threads(document)
    config = {
        "name": document.model.name,
        "base_path": f"/models/{document.model.name}",
        **size,
        "target_device": "CPU",
        "plugin_config": {"NUM_STREAMS": f"{streams}", "INFERENCE_NUM_THREADS": f"{threads}"},
    }
    return json.dumps({"model_config_list": [{"config": config}]}, indent=1) + "\n"


def _ray(document: Manifest) -> str:
    """The YAML of a Ray Serve deployment with as many replicas and batches.

    ``user_config`` is for its ``@serve.batch``; Ray hands a replica no more items than are ongoing.
    """
    replicas, threads = len(document.stages[0].replicas), _threads(document)
    return (
        f"deployments:\n- name: {json.dumps(document.model.name)}\n  num_replicas: {replicas}\n"
        f"  max_ongoing_requests: {max(_ONGOING, 2 * document.batch)}\n"
        f"  ray_actor_options: {{num_cpus: {threads}}}\n"
        f"  user_config: {{max_batch_size: {document.batch}, "
        f"batch_wait_timeout_s: {_delay_ms(document) / 1e3:g}}}\n"
    )


HINTS: dict[str, Callable[[Manifest], str]] = {"triton": _triton, "ovms": _ovms, "ray": _ray}


def _delay_ms(document: Manifest) -> float:
    return document.load.delay_ms if document.load else 0.0


def _threads(document: Manifest) -> int:
    """The threads of a replica."""
    return threads_of(document.stages[0].replicas[0].device)
