"""A pool of actors on the nodes of a cluster, where idle actors are used again.

A new actor takes seconds to start, most of them to import packages.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from autosplit.errors import MachineError
from autosplit.extras import require
from autosplit.hardware.cluster.connection import HANDSHAKE_S, IN_CALLS, START_S, connected
from autosplit.hardware.devices.ray_nodes import RayPlace
from autosplit.versions import VERSION

HEADER_BYTES = 1 << 16  # room in a buffer for what a value has besides its tensors
BUFFERS = 4  # an item computed, one that waits, one that a runtime still refers to, and a spare
Key = tuple[str, RayPlace, type]  # the job, the node and its cores, and the class
_idle: dict[Key, PooledActor] = {}  # actors that nobody uses


class Actor:
    """What runs on a node; autosplit must have the same version there as here."""

    def __init__(self, version: str) -> None:
        if version != VERSION:
            raise MachineError(f"autosplit is {VERSION} there and {version} here; install the same")


class PooledActor:
    """An actor of class ``kind`` on a node, with one user at a time; ``handle`` is Ray's."""

    def __init__(self, kind: type, place: RayPlace, cpus: int, key: Key | None) -> None:
        ray = self._ray = connected()
        node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(place.node, soft=False)
        options: dict[str, Any] = {"num_cpus": cpus, "scheduling_strategy": node}
        self._is_here = place.node == ray.get_runtime_context().get_node_id()
        if not self._is_here:
            options["runtime_env"] = {"env_vars": IN_CALLS}
        self._key = key
        self.handle: Any = ray.remote(kind).options(**options).remote(VERSION)
        self._graph: Any = None
        self._size = -1

    def submitter(self, size: int) -> Callable[[Any], Any]:
        """A function that calls ``run`` with a value of about ``size`` bytes; returns its ``get``.

        On this node the values go through the buffers of a compiled graph of Ray, which is much
        faster than a call. Between nodes such a graph was seen to lose a value, so ``run`` is
        called directly.
        """
        run = self.handle.run
        if not self._is_here:
            return lambda value: partial(self._ray.get, run.remote(value))
        if size > self._size:
            self.free_buffers()
            # When an actor ends, the graph logs an error that the caller gets as well.
            logging.getLogger("ray.dag.compiled_dag_node").setLevel(logging.CRITICAL)
            with require("ray.dag", "ray").InputNode() as value:
                self._graph = run.bind(value).experimental_compile(
                    _submit_timeout=START_S,
                    _buffer_size_bytes=size + HEADER_BYTES,
                    _max_inflight_executions=BUFFERS,
                )
            self._size = size
        return lambda value: self._graph.execute(value).get

    def free_buffers(self) -> None:
        """Free the buffers of the last ``submitter``, which cannot be used afterwards."""
        if self._graph is not None:
            self._graph.teardown()
        self._graph, self._size = None, -1

    def leave(self) -> None:
        """Return the actor to the pool; end it if Ray reserves CPUs for it or another is idle."""
        if self._key is None or self._key in _idle:
            self.end()
        else:
            _idle[self._key] = self

    def end(self) -> None:
        """End the actor."""
        with contextlib.suppress(Exception):  # the cluster was shut down
            self._ray.kill(self.handle)


def take(kind: type, place: RayPlace, cpus: int = 0) -> PooledActor:
    """An actor on a node: with ``cpus``, which Ray reserves, a new one, else an idle or new one."""
    ray = connected()
    key = None if cpus else (ray.get_runtime_context().get_job_id(), place, kind)
    if key and (actor := _idle.pop(key, None)):
        with contextlib.suppress(ray.exceptions.RayError):  # it may have been killed meanwhile
            ray.get(actor.handle.__ray_ready__.remote(), timeout=HANDSHAKE_S)
            return actor
    return PooledActor(kind, place, cpus, key)
