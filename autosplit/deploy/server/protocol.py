"""Requests and responses of the Open Inference Protocol v2, with its binary tensor extension.

A body is a JSON document, after which the bytes of binary tensors may follow; the header
``Inference-Header-Content-Length`` then says how long the document is. Streams with states are
named by the parameter ``sequence_id``, as Triton's clients send it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, explained, line_of
from autosplit.hardware.execution.stage_spec import Port
from autosplit.hardware.execution.wiring import Variant
from autosplit.hardware.runtimes.arrays import dtype_of

HEADER_LENGTH = "inference-header-content-length"
Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = {
    "BOOL": "bool",
    **{f"INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
}
DATATYPES = {dtype: name for name, dtype in DTYPES.items()}
_KNOWN = ", ".join(DTYPES)
# By the kind of a datatype: the kinds that numpy may infer for its data, and the Python types.
_KINDS: dict[str, tuple[str, set[type]]]
_KINDS = {"b": ("b", {bool}), "i": ("iu", {int}), "u": ("iu", {int})}
_MOST_DIMENSIONS, _MOST_SIZE = 64, 2**63 - 1  # of an array of numpy
_LONGEST_ID = 1000  # characters of a sequence's name, which is kept


@dataclass(frozen=True)
class Request:
    """A request: an ``item``, and the ``outputs`` asked for, each with whether in binary.

    ``item`` may be several items, one after the other along the first axis; see ``items_of``.
    ``sequence``: the stream it belongs to, or None; the request may ``start`` or ``end`` it.
    """

    item: Mapping[str, Array]
    outputs: Mapping[str, bool]
    id: str = ""
    sequence: int | str | None = None
    start: bool = False
    end: bool = False


def read(body: bytes, header_length: str | None, outputs: Sequence[Port]) -> Request:
    """Parse the body of a request. Raises ConfigError, one line, for an invalid request."""
    length = _length(header_length, len(body))
    try:
        document = json.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the request is not JSON: {line_of(error)}") from None
    document = _table(document, "the request")
    parameters = _parameters(document)
    sequence = parameters.get("sequence_id") or None
    is_name = isinstance(sequence, int | str) and not isinstance(sequence, bool)
    if sequence is not None and not (is_name and len(str(sequence)) <= _LONGEST_ID):
        raise ConfigError(f"sequence_id is {sequence!r:.200}; give a number or a short text")
    return Request(
        _items(document.get("inputs"), memoryview(body)[length:]),
        _asked(document.get("outputs"), bool(parameters.get("binary_data_output")), outputs),
        str(document.get("id") or ""),
        sequence,
        bool(parameters.get("sequence_start")),
        bool(parameters.get("sequence_end")),
    )


def items_of(
    tensors: Mapping[str, Array], ports: Sequence[Port], most: int, variants: Iterable[Variant] = ()
) -> list[Mapping[str, Array]]:
    """The items of a request: n items where each input has n times the rows of an item, else one.

    The shapes of one of ``variants`` are one item, too. Raises ConfigError for more than ``most``.
    """
    shapes = {name: array.shape for name, array in tensors.items()}
    if any(shapes == {p.name: p.shape for p in variant.inputs} for variant in variants):
        return [tensors]
    counts = {_count(tensors[port.name], port) for port in ports if port.name in tensors}
    count = counts.pop() if len(counts) == 1 else 1
    # Tensors that are not inputs are refused later, by the pipeline.
    if count == 1 or tensors.keys() != {port.name for port in ports}:
        return [tensors]
    if count > most:
        raise ConfigError(f"the request has {count} items; give {most} at most")
    parts = {name: np.split(array, count) for name, array in tensors.items()}
    return [{name: arrays[i] for name, arrays in parts.items()} for i in range(count)]


def _count(array: Array, port: Port) -> int:
    """How many items lie in an array; 1 where it does not fit."""
    rows = port.shape[0] if port.shape else 0
    fits = rows and array.shape[1:] == port.shape[1:] and array.size
    return array.shape[0] // rows if fits and array.shape[0] % rows == 0 else 1


def write(
    request: Request, results: Sequence[Mapping[str, Array]], model: str
) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a response with the outputs of each item."""
    tensors, parts = [], []
    for name, is_binary in request.outputs.items():
        arrays = [result[name] for result in results]
        array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        tensor: dict[str, Any] = {"name": name, "shape": list(array.shape)}
        tensor["datatype"] = DATATYPES[str(array.dtype)]
        if is_binary:
            parts.append(np.ascontiguousarray(array).tobytes())
            tensor["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            tensor["data"] = array.ravel().tolist()
        tensors.append(tensor)
    document = {"model_name": model, "model_version": "1", "outputs": tensors}
    if request.id:
        document["id"] = request.id
    with explained(ConfigError, "some numbers are not finite; ask for binary data, not for JSON"):
        head = json.dumps(document, allow_nan=False).encode()
    if not parts:
        return head, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(head))}
    return b"".join((head, *parts)), headers


def described(ports: Sequence[Port]) -> list[dict[str, Any]]:
    """Inputs or outputs for the metadata of a model."""
    return [{"name": p.name, "datatype": datatype(p), "shape": list(p.shape)} for p in ports]


def datatype(port: Port) -> str:
    """The name of a port's type. Raises ConfigError where the protocol has none."""
    if port.dtype not in DATATYPES:
        raise ConfigError(f"'{port.name}' is {port.dtype}, which cannot be served; use {_KNOWN}")
    return DATATYPES[port.dtype]


def _items(inputs: object, binary: memoryview) -> dict[str, Array]:
    if not isinstance(inputs, list):
        raise ConfigError("the request has no list of inputs; give name, shape, datatype and data")
    arrays: dict[str, Array] = {}
    for tensor in inputs:
        tensor = _table(tensor, "an input")
        name = str(tensor.get("name"))
        if name in arrays:
            raise ConfigError(f"input '{name}' is there twice")
        size = _parameters(tensor).get("binary_data_size")
        if size is None:
            arrays[name] = _of_json(name, tensor)
        else:
            arrays[name], binary = _of_bytes(name, tensor, size, binary)
    if binary:
        raise ConfigError(f"{len(binary)} bytes follow the last input; give binary_data_size")
    return arrays


def _of_json(name: str, tensor: Mapping[str, Any]) -> Array:
    dtype, shape = _type(name, tensor)
    try:
        data = tensor.get("data")
        source = np.asarray(data)
        # Otherwise fractions would be cut off, and booleans taken for numbers.
        kinds, types = _KINDS.get(dtype.kind, ("iuf", {int, float}))  # bfloat16 is of kind V
        # Numpy infers floats or objects for some integers of 64 bits, so Python's types decide too.
        is_odd = source.size and source.dtype.kind not in kinds
        if is_odd and not all(type(number) in types for number in np.asarray(data, object).flat):
            raise ConfigError(f"data of input '{name}' is not {tensor['datatype']}")
        with np.errstate(over="raise"):
            return np.array(data, dtype=dtype).reshape(shape)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ConfigError(f"data of input '{name}' does not fit: {line_of(error)}") from None


def _of_bytes(
    name: str, tensor: Mapping[str, Any], size: object, binary: memoryview
) -> tuple[Array, memoryview]:
    """The array of the first bytes, and the bytes that are left."""
    dtype, shape = _type(name, tensor)
    expected = math.prod(shape) * dtype.itemsize
    if size != expected or expected > len(binary):
        raise ConfigError(
            f"input '{name}' has {min(len(binary), expected)} bytes of {size!r}; its shape and "
            f"datatype need {expected}"
        )
    try:
        return np.frombuffer(binary[:expected], dtype).reshape(shape), binary[expected:]
    except ValueError as error:  # one size is 0, another beyond what an array can have
        raise ConfigError(f"shape of input '{name}' is too large: {error}") from None


def _type(name: str, tensor: Mapping[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    datatype, shape = tensor.get("datatype"), tensor.get("shape")
    try:
        dtype = dtype_of(DTYPES[datatype])  # type: ignore[index]
    except (KeyError, TypeError):
        problem = f"input '{name}' has the datatype {datatype!r}; those here are {_KNOWN}"
        raise ConfigError(problem) from None
    # The product of more sizes, or of larger ones, would take long.
    is_list = isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS
    sizes: Any = shape if is_list else [None]
    if not all(type(n) is int and 0 <= n <= _MOST_SIZE for n in sizes):
        raise ConfigError(f"input '{name}' has the shape {shape!r:.200}; give a list of sizes")
    return dtype, tuple(sizes)


def _asked(asked: object, is_binary: bool, ports: Sequence[Port]) -> dict[str, bool]:
    """The outputs that are asked for, by default all, each with whether in binary."""
    names = [port.name for port in ports]
    if asked is None or asked == []:
        return dict.fromkeys(names, is_binary)
    if not isinstance(asked, list):
        raise ConfigError("outputs is no list; name each output")
    outputs = {}
    for tensor in asked:
        name = _table(tensor, "an output").get("name")
        if name not in names:
            raise ConfigError(
                f"unknown output {name!r}; the model's outputs are {', '.join(names)}"
            )
        parameters = _parameters(tensor)
        if parameters.get("classification"):
            raise ConfigError(f"output '{name}' is asked for as classes; ask for the tensor")
        outputs[str(name)] = bool(parameters.get("binary_data", is_binary))
    return outputs


def _parameters(table: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = table.get("parameters")  # some clients send null
    return {} if parameters is None else _table(parameters, "parameters")


def _table(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is {type(value).__name__} in JSON; give an object")
    return value


def _length(text: str | None, total: int) -> int:
    if text is None:
        return total
    if not text.isdecimal() or len(text) > 20 or int(text) > total:
        raise ConfigError(f"{HEADER_LENGTH} is {text[:20]!r}; the body has {total} bytes")
    return int(text)
