"""Sessions of onnxruntime, for stages and as a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import ModelError, explained, line_of
from autosplit.extras import require
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.devices.processor import CPUINFO, cpu_features
from autosplit.hardware.profiling.timing import on_cores

Array = np.ndarray[Any, np.dtype[Any]]
# An error is raised as an exception, so it need not be logged too.
_OPTIONS = {"inter_op_num_threads": 1, "log_severity_level": 4}


def onnxruntime_session(
    model: Path | bytes, threads: int = 1, entries: Mapping[str, str] | None = None, **options: Any
) -> Any:
    """Create a session on the processor with ``threads`` intra-op threads.

    ``entries`` are its configuration entries, ``options`` fields of its SessionOptions. Raises
    ModelError if onnxruntime refuses the model, MachineError without onnxruntime.
    """
    onnxruntime = require("onnxruntime", "onnx")
    session_options = onnxruntime.SessionOptions()
    for name, value in {**_OPTIONS, "intra_op_num_threads": threads, **options}.items():
        setattr(session_options, name, value)
    has_vnni = any("vnni" in feature for feature in cpu_features(CPUINFO))
    # Without VNNI, sums of 8-bit products would saturate; with VNNI the option doubles the time.
    exact = {} if has_vnni else {"session.x64quantprecision": "1"}
    for name, value in {**exact, **(entries or {})}.items():
        session_options.add_session_config_entry(name, value)
    try:
        return onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            session_options,
            providers=["CPUExecutionProvider"],
            enable_fallback=False,  # the fallback prints a message and tries the same again
        )
    except Exception as error:
        # onnxruntime lacks many ops in bfloat16, and its messages name no remedy.
        is_lacking = any(word in str(error) for word in ("bfloat16", "NOT_IMPLEMENTED"))
        remedy = "; use --runtime tvm, or float32" if is_lacking else ""
        raise ModelError(f"onnxruntime cannot load the model: {line_of(error)}{remedy}") from error


def session_on(
    model: Path | bytes, cores: Cores, entries: Mapping[str, str], **options: Any
) -> Any:
    """Create a session whose threads run on ``cores``; see ``onnxruntime_session``."""
    threads = len(cores.numbers)
    return on_cores(cores, lambda: onnxruntime_session(model, threads, entries, **options))


def onnxruntime_step(model: Path | bytes) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """A function that computes an item's outputs by name. Raises as ``onnxruntime_session``."""
    session = onnxruntime_session(model)
    names = [o.name for o in session.get_outputs()]

    def step(item: Mapping[str, Array]) -> dict[str, Array]:
        with explained(ModelError, "onnxruntime cannot run the model", last=False):
            return dict(zip(names, session.run(names, dict(item)), strict=True))

    return step
