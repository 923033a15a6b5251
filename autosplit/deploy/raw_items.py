"""Items and outputs as raw arrays in a byte stream, in the order of the model's tensors."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import Port
from autosplit.hardware.runtimes.arrays import aligned_empty, bytes_of, dtype_of


def serve(pipeline: Pipeline, source: BinaryIO, sink: BinaryIO) -> None:
    """Write the outputs of each item of ``source`` to ``sink`` as soon as they are computed.

    Raises ConfigError where ``source`` ends inside an item, MachineError where ``sink`` takes
    nothing, and as ``Pipeline.submit``.
    """
    submitted: queue.Queue[BaseException | bool] = queue.Queue()

    def submit() -> None:
        try:
            for item in _items(source, pipeline.wiring.inputs):
                pipeline.submit(item)
                submitted.put(True)
            submitted.put(False)
        except BaseException as error:  # raised again in the thread that writes
            submitted.put(error)

    threading.Thread(target=submit, daemon=True).start()
    # Ray prints there what it notices of a node, and ``sink`` may be the same stream.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        results = pipeline.results()
        while event := submitted.get():
            if isinstance(event, BaseException):
                raise event
            outputs = next(results)
            _write([bytes_of(outputs[port.name]) for port in pipeline.wiring.outputs], sink)


def _write(arrays: Sequence[memoryview], sink: BinaryIO) -> None:
    try:
        for array in arrays:
            sink.write(array)
        sink.flush()
    except BrokenPipeError:  # its reader has left
        raise
    except OSError as error:
        raise MachineError(
            f"cannot write the outputs: {error.strerror}; free the disk or write them elsewhere"
        ) from error


def _items(source: BinaryIO, ports: Sequence[Port]) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    while True:
        item = {port.name: aligned_empty(port.shape, dtype_of(port.dtype)) for port in ports}
        read = 0
        for array in item.values():
            count = _fill(source, bytes_of(array))
            read += count
            if count < array.nbytes and read:
                raise ConfigError(f"the input ends after {read} bytes of an item; give whole items")
        if not read:
            return
        yield item


def _fill(source: BinaryIO, buffer: memoryview) -> int:
    """Read until the buffer is full or the stream ends; a raw stream gives less at a time."""
    count = 0
    while count < len(buffer):
        read = source.readinto(buffer[count:])  # type: ignore[attr-defined]
        if not read:
            break
        count += read
    return count


def standard_input() -> BinaryIO:
    """Standard input without a buffer: a thread that still reads a buffered one aborts the exit."""
    return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
