"""Queries to the nodes of a Ray cluster: targets, op times, and the costs of links to them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from autosplit.errors import MachineError
from autosplit.extras import tvm
from autosplit.files import sha256
from autosplit.hardware.cluster.connection import START_S, answer, connected, put, write_files
from autosplit.hardware.cluster.pool import Actor, PooledActor, take
from autosplit.hardware.devices.device import RayCores, parse
from autosplit.hardware.devices.ray_nodes import RayPlace, only_place
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.hardware.profiling import transfer_costs

T = TypeVar("T")
PROFILE_S = 3600.0  # for a node to compile the kernels of a model and to time them
# In bytes; a call takes so long that smaller arrays alone would not tell the bandwidth.
LINK_SIZES = (*transfer_costs.SIZES, 1 << 22)
TUNING = "tuning"  # the folder of a tuning database beside the model there
_answers: dict[tuple[str, RayPlace, str], Any] = {}  # by job, place and question


class NodeActor(Actor):
    """The Ray actor that answers queries on a node; it computes no stage."""

    def ask(self, functions: Sequence[str]) -> list[str | None]:
        """The text that each function of TVM returns there; None for an unknown function."""
        known = [tvm.get_global_func(name, allow_missing=True) for name in functions]
        return [None if function is None else str(function()) for function in known]

    def profile(
        self,
        load_model: Callable[..., Any],
        options: Mapping[str, Any],
        digests: Mapping[str, str],
        timing: tuple[str, float, bool],
        *contents: Any,
    ) -> list[Profile]:
        """The profiles of a model on cores of the node, one for each runtime."""
        device, seconds, force = timing
        with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as name:
            folder = Path(name)
            write_files(folder, digests, contents)
            tuning = folder / TUNING if (folder / TUNING).is_dir() else None
            model = load_model(folder / next(iter(digests)), tuning=tuning, **options)
            return list(model.profiles([parse(device)], seconds, force))

    def run(self, array: Any) -> Any:
        """Return the array, for the measurement of the link."""
        return array


def ask(device: RayCores, functions: Sequence[str]) -> list[str | None]:
    """The text that each function of TVM returns on a node; None for an unknown function.

    Raises MachineError where the node is gone, as all functions here do.
    """
    name = f"device '{device}'"
    return _answered(
        device, repr(functions), lambda actor: answer(actor.handle.ask.remote(functions), name)
    )


def profile(
    device: RayCores,
    load_model: Callable[..., Any],
    options: Mapping[str, Any],
    files: Mapping[str, Path],
    seconds: float,
    force: bool,
) -> list[Profile]:
    """The profiles of a model on a device, one for each runtime.

    ``load_model`` reads the model there from the first of ``files``, with ``options``; the others
    lie beside it under their names.
    """
    digests = {name: sha256(file) for name, file in files.items()}
    timing = str(device.cores), seconds, force

    def profiles_there(actor: PooledActor) -> list[Profile]:
        contents = [put(file, digests[name]) for name, file in files.items()]
        call = actor.handle.profile.remote(load_model, options, digests, timing, *contents)
        return list(answer(call, f"device '{device}'", PROFILE_S))

    question = repr((options, digests, *timing[:2]))
    return _answered(device, question, profiles_there, again=force)


def link(device: RayCores) -> LinkCost:
    """The costs of sending tensors to a node and of calling it, by round trips of arrays."""
    name = f"device '{device}'"

    def cost_there(actor: PooledActor) -> LinkCost:
        answer(actor.handle.ask.remote(()), name)  # waits until the actor has started
        try:
            submit = actor.submitter(max(LINK_SIZES))

            def round_trip_ms(size: int) -> float:
                array = np.zeros(size, np.uint8)
                return transfer_costs.median_ms(lambda: submit(array)(timeout=START_S).copy())

            call_ms = round_trip_ms(0)
            samples = [(size, round_trip_ms(size) / 2) for size in LINK_SIZES]
            actor.free_buffers()
        except Exception as error:  # Ray raises errors of many kinds
            raise MachineError(f"{name} was lost while its link was measured") from error
        return LinkCost(str(device), *transfer_costs.fit(samples), call_ms)

    return _answered(device, f"link {device}", cost_there)


def _answered(
    device: RayCores, question: str, ask: Callable[[PooledActor], T], again: bool = False
) -> T:
    """Ask the node of a device a question, once in a job unless ``again``; returns its answer.

    Raises MachineError where the node is gone, even if it has answered before.
    """
    place = only_place(device, connected().nodes())
    key = connected().get_runtime_context().get_job_id(), place, question
    if again or key not in _answers:
        actor = take(NodeActor, place)
        try:
            _answers[key] = ask(actor)
        except BaseException:
            actor.end()
            raise
        actor.leave()
    answered: T = _answers[key]
    return answered
