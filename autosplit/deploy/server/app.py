"""Answers the requests of the Open Inference Protocol with a running pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import logging
import math
import socket
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil

from autosplit.deploy.server import completions, protocol
from autosplit.deploy.server.completions import Decoder
from autosplit.deploy.server.metrics import Metrics
from autosplit.errors import AutosplitError, ConfigError, MachineError, StageError
from autosplit.extras import require
from autosplit.hardware.execution.pipeline import Inside, Item, Pipeline
from autosplit.hardware.execution.streams import Stream
from autosplit.versions import VERSION

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    Answer = Callable[[Request], Awaitable[Response]]

MOST_SEQUENCES = 10_000  # that are open; beyond that the one that was idle for longest is dropped
MOST_OF_MEMORY = 0.3  # of free memory, for their states, and again for bodies being read
MOST_HEAD_BYTES = 64_000  # of a request, before its body
# Long, since a client gets an error if its connection is closed while it sends a request.
KEEP_ALIVE_S = 75
MOST_WAITING = 100  # requests of a connection behind the one that is being answered
GRACE_S = 60  # at the end, for clients that send or read slowly too
RETRY = {"retry-after": "1"}  # in seconds


class Refused(AutosplitError):
    """A request that is answered with a ``status`` and one line."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.headers = status, dict(headers or {})


class Server:
    """A pipeline behind HTTP; ``load`` creates it, and creates it again after a failure.

    At most ``queue`` items are inside, and a body has at most ``most_bytes``.
    """

    def __init__(
        self, load: Callable[[], Pipeline], name: str, most_bytes: int, queue: int | None = None
    ) -> None:
        self._load, self.name, self._most_bytes = load, name, most_bytes
        self.pipeline = self._started()
        wiring = self.pipeline.wiring
        ports = {"inputs": wiring.inputs, "outputs": wiring.outputs}
        self._ports = {key: protocol.described(value) for key, value in ports.items()}
        self._decoder = Decoder.of(wiring)
        limit = self.pipeline.limit
        if queue is not None and queue > limit:
            raise ConfigError(f"the queue is {queue}; this pipeline holds at most {limit} items")
        self._queue = limit if queue is None else queue
        self.metrics = Metrics()
        self._sequences: OrderedDict[Stream, None] = OrderedDict()
        states = sum(state.nbytes for state in wiring.first_states.values())
        room = int(MOST_OF_MEMORY * psutil.virtual_memory().available)
        self._most_sequences = max(1, min(MOST_SEQUENCES, room // max(1, states)))
        self._most_unread, self._unread = max(most_bytes, room), 0
        self._reloading: asyncio.Task[None] | None = None
        self._paths = self._answers()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application, which answers requests."""
        # uvicorn cancels requests that take too long at shutdown.
        with contextlib.suppress(asyncio.CancelledError):
            response = await self._response(scope, receive)
            await response(scope, receive, send)

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        from starlette.requests import Request

        methods, answer = self._paths.get(scope["path"], ((), None))
        if answer is None:
            text = f"unknown path '{scope['path']}'; the model is '{self.name}', version 1"
            return _json({"error": text}, 404)
        if scope["method"] not in methods:
            text, allowed = f"{scope['method']} is not possible here", ", ".join(methods)
            return _json({"error": text}, 405, {"allow": allowed})
        return await answer(Request(scope, receive))

    def _answers(self) -> dict[str, tuple[tuple[str, ...], Answer]]:
        """The methods that each path allows, and the function that answers them."""
        get, post = ("GET", "HEAD"), ("POST",)
        extensions = ["binary_tensor_data", "sequence"]
        server = {"name": "autosplit", "version": VERSION, "extensions": extensions}
        about = {"name": self.name, "versions": ["1"], "platform": "autosplit", **self._ports}
        paths: dict[str, tuple[tuple[str, ...], Answer]] = {
            "/v2": (get, partial(self._fixed, server)),
            "/v2/health/live": (get, partial(self._fixed, {"live": True})),
            "/v2/health/ready": (get, self._ready),
            "/metrics": (get, self._metrics),
        }
        for model in (f"/v2/models/{self.name}", f"/v2/models/{self.name}/versions/1"):
            paths[model] = (get, partial(self._fixed, about))
            paths[f"{model}/ready"] = (get, self._ready)
            paths[f"{model}/infer"] = (post, partial(self._counted, self._infer))
        if self._decoder:
            paths["/v1/completions"] = (post, partial(self._counted, self._completions))
        return paths

    def _started(self) -> Pipeline:
        pipeline = self._load()
        pipeline.start()
        # Objects that stay are frozen, so that no request waits while the garbage collector looks
        # through them. Those of an earlier pipeline are freed first.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        return pipeline

    async def _ready(self, _: Request) -> Response:
        is_ready = self._reloading is None
        return _json({"ready": is_ready}, 200 if is_ready else 503)

    async def _fixed(self, document: Mapping[str, Any], _: Request) -> Response:
        return _json(document)

    async def _metrics(self, _: Request) -> Response:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _counted(self, answer: Answer, request: Request) -> Response:
        """Answer a request, with its errors as responses, and count the response."""
        from starlette.requests import ClientDisconnect

        try:
            response = await answer(request)
        except Refused as error:
            response = _json({"error": str(error)}, error.status, error.headers)
        except ConfigError as error:
            response = _json({"error": str(error)}, 400)
        except ClientDisconnect:  # nobody reads the answer; the metrics count it
            response = _json({"error": "the client is gone"}, 499)
        self.metrics.answers[response.status_code] += 1
        return response

    async def _infer(self, request: Request) -> Response:
        from starlette.responses import Response

        body = await self._body(request)
        length = request.headers.get(protocol.HEADER_LENGTH)
        asked = protocol.read(body, length, self.pipeline.wiring.outputs)
        items = self._items(asked)
        with self._inside(len(items)):
            ended = asked.sequence if asked.end else None
            results = await self._computed(self.pipeline, items, self._stream(asked), ended)
        content, headers = protocol.write(asked, results, self.name)
        return Response(content, headers=headers)

    async def _completions(self, request: Request) -> Response:
        """The answer with all tokens, or a stream of them."""
        from starlette.responses import StreamingResponse

        assert self._decoder is not None
        asked = self._decoder.read(await self._body(request))
        documents = self._documents(self._decoder, asked, request)
        # Errors that refuse the request are raised here, before the response begins.
        first = await anext(documents)
        if not asked.stream:
            return _json(first)
        events = completions.events(first, documents)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _documents(
        self, decoder: Decoder, asked: completions.Asked, request: Request
    ) -> AsyncIterator[Mapping[str, Any]]:
        """The documents of a completion; its stream in the pipeline ends with them.

        Raises ClientDisconnect if the client is gone; a streaming response notices that by itself.
        """
        from starlette.requests import ClientDisconnect

        pipeline, stream = self.pipeline, object()

        async def compute(item: Item) -> Mapping[str, protocol.Array]:
            if not asked.stream and await request.is_disconnected():
                raise ClientDisconnect
            (outputs,) = await self._computed(pipeline, [item], stream)
            return outputs

        with self._inside(1):
            try:
                tokens = decoder.tokens(asked, compute)
                async for document in completions.documents(asked, tokens, self.name):
                    yield document
            finally:
                with contextlib.suppress(StageError):
                    pipeline.reset(stream)

    @contextlib.contextmanager
    def _inside(self, count: int) -> Iterator[None]:
        """Count items that are inside. Raises Refused where they have no room, or a stage fails."""
        if self._reloading is not None:
            raise Refused(503, "the pipeline is being loaded again", RETRY)
        if self.metrics.inside + count > self._queue:
            raise Refused(503, f"{self.metrics.inside} items of {self._queue} are inside", RETRY)
        self.metrics.inside += count
        try:
            yield
        except StageError as error:
            if self.pipeline.has_failed and self._reloading is None:
                self._reloading = asyncio.create_task(self._reload())
            raise Refused(500, str(error)) from error
        finally:
            self.metrics.inside -= count

    async def _body(self, request: Request) -> bytes:
        """Read the body. Raises Refused for one that is too large, before all of it is read."""
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refused(415, "the body is compressed; send it as it is")
        # The connection ends with a refusal: the rest of the body would be the next request.
        parts, size, last = [], 0, {"connection": "close"}
        try:
            async for part in request.stream():
                size += len(part)
                self._unread += len(part)
                if size > self._most_bytes:
                    raise Refused(413, f"the body has more than {self._most_bytes} bytes", last)
                if self._unread > self._most_unread:
                    raise Refused(503, "other bodies fill the memory", {**RETRY, **last})
                parts.append(part)
        finally:
            self._unread -= size
        return b"".join(parts)

    def _items(self, asked: protocol.Request) -> list[Item]:
        """The items of a request. Raises ConfigError for more than it may have."""
        wiring = self.pipeline.wiring
        items = protocol.items_of(asked.item, wiring.inputs, self._queue, wiring.variants.values())
        if len(items) == 1:
            return items
        if wiring.first_states:
            raise ConfigError(f"the request has {len(items)} items; a stream takes one at a time")
        scalar = next((port.name for port in wiring.outputs if not port.shape), None)
        if scalar is not None:
            raise ConfigError(f"output '{scalar}' is a scalar; give one item a request")
        return items

    async def _computed(
        self, pipeline: Pipeline, items: Sequence[Item], stream: Stream, ended: Stream = None
    ) -> list[dict[str, protocol.Array]]:
        entered = time.perf_counter()
        tickets: list[Inside] = []
        ends: dict[Any, float] = {}
        try:
            for item in items:
                tickets.append(pipeline.enter(item, stream))
                tickets[-1].add_done_callback(lambda done: ends.update({done: time.perf_counter()}))
            self._drop(ended)  # before another request begins the sequence anew
        finally:
            # Wait for all that entered, even where one is refused or fails: ``result`` raises then.
            await asyncio.gather(*map(asyncio.wrap_future, tickets), return_exceptions=True)
        for ticket in tickets:
            start = ticket.started or entered
            self.metrics.queue.add(max(0.0, start - entered))
            self.metrics.compute.add(ends[ticket] - max(start, entered))
            self.metrics.batch.add(ticket.items)
        return list(map(pipeline.result, tickets))

    def _stream(self, asked: protocol.Request) -> int | str:
        """The stream of a request's item; begins it anew where the request asks for that."""
        if not self.pipeline.wiring.first_states:
            return 0
        sequence = asked.sequence
        if sequence is None:
            raise ConfigError("the model has states; give the sequence_id of the stream")
        if asked.start:
            self.pipeline.reset(sequence)
        elif sequence not in self._sequences:
            raise ConfigError(f"sequence {sequence!r} has not begun; send sequence_start first")
        self._sequences[sequence] = None
        self._sequences.move_to_end(sequence)
        if len(self._sequences) > self._most_sequences:
            self._drop(next(iter(self._sequences)))
        return sequence

    def _drop(self, sequence: Stream) -> None:
        """Forget a sequence and its states."""
        if sequence in self._sequences:
            del self._sequences[sequence]
            self.pipeline.reset(sequence)

    async def _reload(self) -> None:
        """Load the pipeline again, and retry until that succeeds."""
        await asyncio.to_thread(self.pipeline.close)
        while True:
            try:
                self.pipeline = await asyncio.to_thread(self._started)
                break
            except Exception:  # Ray raises errors of many kinds
                await asyncio.sleep(1)
        self._sequences.clear()
        self._reloading = None


def _json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(json.dumps(content), status, headers, media_type="application/json")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on a host and port. Raises MachineError where that is impossible."""
    if not 0 <= port <= 65535:
        text = f"port {port} is out of range; give --port 1 to 65535, or 0 for a free one"
        raise ConfigError(text)
    try:
        family, *_, resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(resolved, family=family)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label that is empty or too long
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            text = f"port {port} on {host} is in use; give another with --port, or --port 0"
            raise MachineError(text) from error
        reason = getattr(error, "strerror", None) or error
        text = f"cannot listen on {host}:{port}: {reason}; give an address of this machine"
        raise MachineError(text) from error
    # Otherwise the body of a response would wait 40 ms for the client to acknowledge the headers.
    # Connections inherit it; asyncio sets it only where a socket names its protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def http_server(server: Server) -> Any:
    """The uvicorn server; its ``run``, called with ``sockets``, answers requests until a signal.

    Requests that are being computed then are finished first.
    """
    uvicorn: Any = require("uvicorn", "serve")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # Nothing here asks where a request comes from.
    plain = {"proxy_headers": False, "log_config": None, "access_log": False}
    times = {"timeout_keep_alive": KEEP_ALIVE_S, "timeout_graceful_shutdown": GRACE_S}
    config = uvicorn.Config(
        server.app, interface="asgi3", lifespan="off", ws="none", http=_protocol(), **plain, **times
    )
    return uvicorn.Server(config)


def _protocol() -> Any:
    """uvicorn's protocol with a limit on the length of headers, which uvicorn itself lacks."""
    implementation: Any = require("uvicorn.protocols.http.httptools_impl", "serve")

    class Protocol(implementation.HttpToolsProtocol):  # type: ignore[misc]
        head_bytes = -math.inf  # of headers or trailers, after their first part

        def on_message_begin(self) -> None:
            if len(self.pipeline) >= MOST_WAITING:  # uvicorn would keep any number
                raise ValueError("too many requests")
            self.head_bytes = 0.0
            super().on_message_begin()

        def on_chunk_header(self) -> None:
            self.head_bytes = 0.0

        def on_body(self, body: bytes) -> None:
            self.head_bytes = -math.inf
            super().on_body(body)

        def data_received(self, data: bytes) -> None:
            self.head_bytes += len(data)
            super().data_received(data)  # first: a body may begin there
            if self.head_bytes > MOST_HEAD_BYTES:
                self.send_400_response(f"the headers have more than {MOST_HEAD_BYTES} bytes")

    return Protocol
