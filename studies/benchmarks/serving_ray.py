"""Ray Serve as a rival: a replica of the model a core in onnxruntime, with its default batching."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from studies.benchmarks.serving_http import Client, Clients, http

PORT = 8123
CLIENTS = 32
SECONDS = 2.0  # that its capacity is measured for


def of_any_batch(path: Path) -> bytes:
    """The model with a dynamic first axis, as one exports it for a server."""
    import onnx

    model = onnx.load(path)
    for tensor in (*model.graph.input, *model.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "N"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())


def application(content: bytes, replicas: int) -> Any:
    """A deployment that stacks the requests of a batch, or runs them singly where it must."""
    from ray import serve

    @serve.deployment(num_replicas=replicas, max_ongoing_requests=CLIENTS)
    class Net:
        def __init__(self) -> None:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            self.session = onnxruntime.InferenceSession(content, options)
            self.inputs = [(i.name, i.shape[1:], i.type) for i in self.session.get_inputs()]

        @serve.batch
        async def run(self, bodies: list[bytes]) -> list[bytes]:
            items = [self.item(body) for body in bodies]
            outputs: list[Any]
            try:
                stacked = {
                    name: np.concatenate([i[name] for i in items]) for name, *_ in self.inputs
                }
                outputs = [np.split(o, len(items)) for o in self.session.run(None, stacked)]
            except Exception:  # its nodes have the batch of one item in them
                outputs = list(zip(*(self.session.run(None, item) for item in items), strict=True))
            return [b"".join(o.tobytes() for o in each) for each in zip(*outputs, strict=True)]

        def item(self, body: bytes) -> dict[str, Any]:
            item, start = {}, 0
            for name, shape, kind in self.inputs:
                dtype = np.dtype({"tensor(float)": "f4", "tensor(int64)": "i8"}[kind])
                end = start + dtype.itemsize * int(np.prod(shape))
                item[name] = np.frombuffer(body[start:end], dtype).reshape(1, *shape)
                start = end
            return item

        async def __call__(self, request: Any) -> Any:
            from starlette.responses import Response

            return Response(await self.run(await request.body()))

    net: Any = Net
    return net.bind()


@contextlib.contextmanager
def served(path: Path, model: Any, cores: int) -> Iterator[tuple[Clients, float]]:
    """Clients of the model in Ray Serve, whose outputs are equal, and its items a second."""
    import ray
    from ray import serve

    items = model.items(3)
    (order,) = {tuple(port.name for port in model.wiring([range(len(model.graph.ops))]).inputs)}
    local = threading.local()

    def ask(item: Any) -> bytes:
        if not hasattr(local, "client"):
            local.client = Client(("127.0.0.1", PORT))
        status, _, body = local.client.ask(http("/", b"".join(item[n].tobytes() for n in order)))
        assert status == 200, body
        return bytes(body)

    ray.init("local", num_cpus=2 * cores, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
        serve.run(application(of_any_batch(path), cores))
        clients = Clients(ask, CLIENTS)
        for item, expected in zip(items, model.expected(items), strict=True):
            outputs = np.frombuffer(ask(item), "f4")
            flat = np.concatenate([array.ravel() for array in expected.values()])
            assert np.abs(outputs - flat).max() <= 1e-3 * np.abs(flat).max(), "wrong outputs"
        start, count = time.perf_counter(), 0
        while time.perf_counter() < start + SECONDS:
            count += len(clients.run([items[n % 3] for n in range(2 * CLIENTS)]))
        yield clients, count / (time.perf_counter() - start)
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()
