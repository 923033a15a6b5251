"""Ray Serve as a rival: one replica per core in onnxruntime, with Ray's default batching."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.hardware.measurement.parity import compare
from studies.benchmarks.serving_http import Clients, asking, http

PORT = 8123
CLIENTS = 32
SECONDS = 2.0  # of the measurement of its capacity
TOLERANCE = 1e-3  # of outputs, relative


def of_any_batch(path: Path) -> bytes:
    """The model with a dynamic first axis, as models are exported for a server."""
    import onnx

    model = onnx.load(path)
    for tensor in (*model.graph.input, *model.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "N"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())


def application(content: bytes, replicas: int) -> Any:
    """A deployment that stacks the requests of a batch, or runs them singly if that fails."""
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
            results: Any
            try:
                stacked = {name: np.concatenate([i[name] for i in items]) for name in items[0]}
                outputs = self.session.run(None, stacked)
                results = zip(*(np.split(output, len(items)) for output in outputs), strict=True)
            except Exception:  # nodes of the model are fixed to a batch of one item
                results = [self.session.run(None, item) for item in items]
            return [b"".join(array.tobytes() for array in each) for each in results]

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
    """Clients of the model in Ray Serve, and its items per second; its outputs are checked."""
    import ray
    from ray import serve

    items = model.items(3)
    order = [port.name for port in model.wiring([range(len(model.graph.ops))]).inputs]

    def request(item: Any) -> bytes:
        return http("/", b"".join(item[name].tobytes() for name in order))

    ask = asking(("127.0.0.1", PORT), request)
    ray.init("local", num_cpus=2 * cores, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
        serve.run(application(of_any_batch(path), cores))
        clients = Clients(ask, CLIENTS)
        for item, expected in zip(items, model.expected(items), strict=True):
            flat = {"all": np.concatenate([array.ravel() for array in expected.values()])}
            outputs = {"all": np.frombuffer(ask(item), "f4")}
            assert compare([outputs], [flat], TOLERANCE).equal, "wrong outputs"
        start, count = time.perf_counter(), 0
        while time.perf_counter() < start + SECONDS:
            count += len(clients.run([items[n % 3] for n in range(2 * CLIENTS)]))
        yield clients, count / (time.perf_counter() - start)
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()
