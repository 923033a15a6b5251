"""Text completion on token ids, by an export that takes the inputs of a decoder.

A prompt is computed in the largest items that the export takes; then each new token is the next
item. The route is that of OpenAI's API, with token ids only: there is no tokenizer here.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, FailFast, Field, NonNegativeInt, PositiveInt, ValidationError

from autosplit.errors import AutosplitError, ConfigError, StageError
from autosplit.hardware.execution.stage_spec import Port
from autosplit.hardware.execution.wiring import Wiring
from autosplit.serialization import problem_of

Array = np.ndarray[Any, Any]
Compute = Callable[[Mapping[str, Array]], Awaitable[Mapping[str, Array]]]
_INTEGERS, _MASKS = ("int32", "int64"), ("bool", "float32", "float64")
# Words in the names of masks of partial attention, whose reach is not known here.
_PARTIAL = ("sliding", "chunk", "window", "local")
# The kind of an input, by the first of these words that is in its name.
_KINDS = {"mask": "mask", "position": "position", "ids": "token", "token": "token"}


class Asked(BaseModel, strict=True, extra="forbid", allow_inf_nan=False):
    """The fields of a request, named as in the APIs of OpenAI and vLLM."""

    # FailFast, because a list of all errors could take more memory than the body.
    prompt: Annotated[list[NonNegativeInt], Field(min_length=1), FailFast()]
    model: str = ""
    max_tokens: PositiveInt = 16
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    seed: NonNegativeInt | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=1000), FailFast()] = []
    stream: bool = False


@dataclass(frozen=True)
class Decoder:
    """Makes the items of a decoder; ``shapes`` has the inputs of each variant, the longest first.

    The decoder's only output has the scores of ``vocabulary`` tokens. A stream has at most ``room``
    tokens, where that is known.
    """

    shapes: tuple[tuple[Port, ...], ...]
    vocabulary: int
    room: int | None

    @classmethod
    def of(cls, wiring: Wiring) -> Decoder | None:
        """The decoder of a pipeline; None where its inputs and outputs are not those of one."""
        shapes = (wiring.inputs, *(variant.inputs for variant in wiring.variants.values()))
        scores = wiring.outputs[0] if len(wiring.outputs) == 1 else None
        if not (scores and scores.shape and "float" in scores.dtype and wiring.first_states):
            return None
        if not all(map(_is_decoders, shapes)) or _length(wiring.inputs) != 1:
            return None
        masks = [port.shape[-1] for port in wiring.inputs if _kind(port) == "mask"]
        room = wiring.steps or min(masks, default=None)
        return cls(tuple(sorted(shapes, key=_length, reverse=True)), scores.shape[-1], room)

    def item(self, tokens: Sequence[int], position: int) -> tuple[Mapping[str, Array], int]:
        """The longest item that the first ``tokens`` fill, and how many tokens it has."""
        ports = next(ports for ports in self.shapes if _length(ports) <= len(tokens))
        count = _length(ports)
        places = np.arange(position, position + count)
        item = {}
        for port in ports:
            values: Any = places if _kind(port) == "position" else np.array(tokens[:count])
            if _kind(port) == "mask":  # a token sees itself and what is before it
                values = np.arange(port.shape[-1]) <= places[:, None]
                if "float" in port.dtype:  # attention adds it to its scores
                    values = np.where(values, 0, np.finfo(port.dtype).min)
            item[port.name] = np.broadcast_to(values, port.shape).astype(port.dtype)
        return item, count

    def read(self, body: bytes) -> Asked:
        """Parse the body of a request. Raises ConfigError, one line, for an invalid request."""
        try:
            asked = Asked.model_validate_json(body)
        except ValidationError as error:
            text = problem_of(error, "the request")
            raise ConfigError(text.replace("valid array", "list of numbers of tokens")) from None
        largest, size = max(asked.prompt), len(asked.prompt)
        if largest >= self.vocabulary:
            raise ConfigError(f"prompt has token {largest}; the model has {self.vocabulary} tokens")
        # The last token is returned, but it is not an input of the model.
        if self.room is not None and size + asked.max_tokens - 1 > self.room:
            raise ConfigError(
                f"the prompt has {size} tokens and max_tokens is {asked.max_tokens}, but the "
                f"model's cache holds {self.room}"
            )
        return asked

    async def tokens(self, asked: Asked, compute: Compute) -> AsyncIterator[int]:
        """The tokens that follow a prompt, one by one; the last one may be a stop token."""
        random = np.random.default_rng(asked.seed)
        rest, position = asked.prompt, 0
        for _ in range(asked.max_tokens):
            outputs: Mapping[str, Array] = {}
            while rest:
                item, count = self.item(rest, position)
                outputs = await compute(item)
                rest, position = rest[count:], position + count
            (scores,) = outputs.values()
            token = chosen(scores.reshape(-1, self.vocabulary)[-1], asked.temperature, random)
            yield token
            if token in asked.stop_token_ids:
                return
            rest = [token]


def chosen(scores: Array, temperature: float, random: np.random.Generator) -> int:
    """Choose a token: the best one at temperature 0, else drawn. Raises StageError for NaN."""
    scores = scores.astype(np.float64)
    if np.isnan(scores).any():
        raise StageError("the scores of the next token are not numbers")
    # Gumbel's noise draws a token with the probability that softmax gives it.
    return int(np.argmax(scores + temperature * random.gumbel(size=scores.shape)))


async def documents(
    asked: Asked, tokens: AsyncIterator[int], model: str
) -> AsyncIterator[Mapping[str, Any]]:
    """The response: one document for each token where a stream is asked for, else one in all."""
    head: dict[str, Any] = {"id": f"cmpl-{uuid.uuid4()}", "object": "text_completion"}
    head |= {"created": int(time.time()), "model": model}
    ids: list[int] = []
    async for token in tokens:
        ids.append(token)
        is_stop = token in asked.stop_token_ids
        reason = "stop" if is_stop else "length" if len(ids) == asked.max_tokens else None
        if asked.stream or reason:
            choice = {"index": 0, "text": "", "token_ids": [token] if asked.stream else ids}
            document = {**head, "choices": [{**choice, "finish_reason": reason}]}
            if reason:
                counts = {"prompt_tokens": len(asked.prompt), "completion_tokens": len(ids)}
                document["usage"] = {**counts, "total_tokens": sum(counts.values())}
            yield document


async def events(
    first: Mapping[str, Any], further: AsyncIterator[Mapping[str, Any]]
) -> AsyncIterator[str]:
    """The documents as server-sent events; an error is the last document."""
    yield _event(first)
    try:
        async for document in further:
            yield _event(document)
    except AutosplitError as error:
        yield _event({"error": str(error)})
    yield "data: [DONE]\n\n"


def _event(document: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(document)}\n\n"


def _kind(port: Port) -> str:
    """What an input of a decoder is: "token", "position" or "mask"; empty for none of them."""
    kind = next((kind for word, kind in _KINDS.items() if word in port.name), "")
    types = (*_INTEGERS, *(_MASKS if kind == "mask" else ()))
    is_partial = any(word in port.name for word in _PARTIAL)
    return kind if port.dtype in types and not is_partial else ""


def _length(ports: Sequence[Port]) -> int:
    """How many tokens an item of a decoder has."""
    return next(port.shape[-1] for port in ports if _kind(port) == "token")


def _is_decoders(ports: Sequence[Port]) -> bool:
    """Whether all inputs are those of a decoder of one text."""
    kinds = [_kind(port) for port in ports]
    if "" in kinds or kinds.count("token") != 1 or not all(port.shape for port in ports):
        return False
    # A mask has a row a token.
    sizes = [p.shape[:-1] if k == "mask" else p.shape for p, k in zip(ports, kinds, strict=True)]
    return {math.prod(size) for size in sizes} == {_length(ports)}
