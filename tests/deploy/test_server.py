import contextlib
import http.client
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import Mock, call, patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autosplit
from autosplit.deploy.manifest import Manifest
from autosplit.deploy.server import app, protocol
from autosplit.deploy.server.hints import hint
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.execution.stage_spec import Port
from autosplit.hardware.execution.wiring import Variant
from autosplit.zoo.catalog import cached
from tests.deploy.exports import put, sound
from tests.hardware import fakes
from tests.hardware.fakes import PATIENCE_S, graph, in_time, items, sequential, wait_for

triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

CHAIN = graph([("a", ["x"]), ("b", ["a"])], ["x"], ["b"])
STATE = graph([("s", ["x", "h"]), ("b", ["s"])], ["x", "h"], ["b", "s"])


@contextlib.contextmanager
def served(load, collector=Mock(), **limits):  # noqa: B008
    """The address of a server of a pipeline; no collection of garbage holds it up."""
    options = {"most_bytes": 1000, "queue": None, **limits}
    with app.listen("127.0.0.1", 0) as listener, patch.object(app, "gc", collector):
        server = app.Server(load, "net", **options)
        http_server = app.http_server(server)
        thread = threading.Thread(target=http_server.run, args=([listener],))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            http_server.should_exit = True
            in_time(thread.join)


def chain(**options):
    return lambda: fakes.fake_pipeline(CHAIN, [[0], [1]], ["b"], **options)[0].with_delay(0)


@pytest.fixture(scope="module")
def address():
    with served(chain(batch=4)) as here:
        yield here


def connected(address):
    return contextlib.closing(triton.InferenceServerClient(address))


def tensors(item, binary=True):
    """An item as Triton's client sends it."""
    values = []
    for name, array in item.items():
        values.append(triton.InferInput(name, array.shape, protocol.DATATYPES[str(array.dtype)]))
        values[-1].set_data_from_numpy(array, binary_data=binary)
    return values


def infer(client, item, binary=True, **options):
    asked = [triton.InferRequestedOutput("b", binary_data=binary)]
    return client.infer("net", tensors(item, binary), outputs=asked, **options).as_numpy("b")


@pytest.mark.parametrize("batch", [1, 4])
def test_items_of_a_request_are_answered_in_order(batch):
    asked_items = items(6)
    together = {"x": np.concatenate([item["x"] for item in asked_items])}
    expected = [sequential(CHAIN, item, ["b"])["b"] for item in asked_items]
    with served(chain(batch=batch)) as address, connected(address) as client:
        np.testing.assert_array_equal(infer(client, together), np.concatenate(expected))


def test_inputs_of_unlike_numbers_of_items_and_those_of_a_variant_are_one_item():
    x, h = Port("x", (2, 3), "float32"), Port("h", (1,), "float32")
    four = Variant((Port("x", (8, 3), "float32"),))
    for ports, variants, rows, count in (
        ([x, h], [], (4, 2), 2), ([x, h], [], (4, 1), 1), ([x, h], [], (3, 2), 1),
        ([x, h], [], (2, 1), 1), ([x], [four], (8,), 1), ([x], [four], (6,), 3),
    ):  # fmt: skip
        shapes = zip(ports, rows, strict=True)
        tensors = {p.name: np.zeros((n, *p.shape[1:]), np.float32) for p, n in shapes}
        assert len(protocol.items_of(tensors, ports, count, variants)) == count
    with pytest.raises(ConfigError, match="the request has 10000 items; give 2 at most"):
        protocol.items_of({"x": np.broadcast_to(np.float32(), (20_000, 3))}, [x], 2)


def test_more_items_than_fit_and_those_of_a_stream_are_refused():
    with served(chain(), queue=2) as address:
        status, _, answer = post(address, asked(shape=[6], data=[0] * 6))
    assert (status, answer["error"]) == (400, "the request has 3 items; give 2 at most")
    with served(stateful) as address:
        document = of_sequence(1) | asked(shape=[4], data=[0] * 4)
        status, _, answer = post(address, document)
    assert (status, "a stream takes one at a time" in answer["error"]) == (400, True)


@pytest.mark.parametrize("binary", [True, False])
def test_clients_at_once_get_their_own_outputs(address, binary):
    wrong = []

    def ask(item):
        with connected(address) as client:
            for _ in range(10):
                expected = sequential(CHAIN, item, ["b"])["b"]
                if not np.array_equal(infer(client, item, binary), expected):
                    wrong.append(item)

    with ThreadPoolExecutor(8) as threads:
        in_time(lambda: list(threads.map(ask, items(8))))
    assert not wrong


def test_health_and_metadata_are_what_the_client_expects(address):
    with connected(address) as client:
        ready = [client.is_model_ready(*words) for words in (["net"], ["net", "1"], ["other"])]
        assert [client.is_server_live(), client.is_server_ready(), *ready] == [True] * 4 + [False]
        assert client.get_server_metadata()["name"] == "autosplit"
        metadata = client.get_model_metadata("net")
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [2]}]
    assert [output["name"] for output in metadata["outputs"]] == ["b"]


def request(address, method, path, body=None, **headers):
    """The status, the headers and the text of an answer."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def post(address, document, path="/v2/models/net/infer", **headers):
    """The status, the headers and the document of an answer."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    *head, text = request(address, "POST", path, body, **headers)
    return *head, json.loads(text)


def metrics(address):
    return request(address, "GET", "/metrics")[2]


def asked(**changes):
    return {"inputs": [{"name": "x", "shape": [2], "datatype": "FP64", "data": [1, 2]} | changes]}


SEVERAL = asked(shape=[4], data=[0] * 4)["inputs"]
BINARY = {"data": None, "parameters": {"binary_data_size": 16}}
LONG_ID = json.dumps(asked() | {"parameters": {"sequence_id": "n" * 1001}}).encode()


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (b"{", "the request is not JSON: "),
        (b"[" * 100_000, "the request is not JSON: "),
        ([], "the request is list in JSON; give an object"),
        ({}, "the request has no list of inputs"),
        ({"inputs": [3]}, "an input is int in JSON"),
        (asked(name="y"), "unknown input 'y'; the model's inputs are x"),
        ({"inputs": []}, "item lacks the input 'x'"),
        ({"inputs": asked()["inputs"] * 2}, "input 'x' is there twice"),
        (asked(shape=[1, 2]), r"input 'x' is float64\[1, 2\], but the model takes float64\[2\]"),
        (asked(shape=[8, 2], data=[0] * 16), r"float64\[8, 2\], but the model takes float64\[2\]"),
        (asked(shape=[3]), "data of input 'x' does not fit"),
        (asked(shape=[-2]), r"input 'x' has the shape \[-2\]"),
        (asked(datatype="INT64"), r"input 'x' is int64\[2\], but the model takes float64"),
        (asked(datatype="BYTES"), "input 'x' has the datatype 'BYTES'; those here are BOOL"),
        (asked(datatype="INT8", data=[1, 300]), "data of input 'x' does not fit"),
        (asked(datatype="INT8", data=[1, 2.5]), "data of input 'x' is not INT8"),
        (asked(data=["1", "2"]), "data of input 'x' is not FP64"),
        (asked(data=[[1], [2, 3]]), "data of input 'x' does not fit"),
        (asked(datatype="FP32", data=[1, 1e39]), "data of input 'x' does not fit"),
        (asked(shape=[0, 2**62], data=None, parameters={"binary_data_size": 0}), "is too large"),
        (asked(shape=[10**400], **BINARY), r"input 'x' has the shape \[10+; give a list"),
        (asked(shape=[2] * 65, **BINARY), r"input 'x' has the shape \[2, 2, .*; give a list"),
        ({"inputs": SEVERAL + asked(name="z", shape=[], data=5)["inputs"]}, "unknown input 'z'"),
        (asked(**BINARY), "input 'x' has 0 bytes of 16; its shape and datatype need 16"),
        (json.dumps(asked()).encode() + b"{}", "the request is not JSON"),
        (asked() | {"outputs": [{"name": "c"}]}, "unknown output 'c'; the model's outputs are b"),
        (asked() | {"parameters": {"sequence_id": [1]}}, r"sequence_id is \[1\]"),
        (LONG_ID, "sequence_id is 'nnn"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_in_one_line(address, document, line):
    if isinstance(document, bytes) and len(document) > 1000:
        with pytest.raises(ConfigError, match=line):
            protocol.read(document, None, ())
        return
    status, _, answer = post(address, document)
    assert (status, "\n" in answer["error"]) == (400, False)
    assert re.search(line, answer["error"])


@pytest.mark.parametrize(("shape", "size"), [([2], 16.0), ([0], 0), ([2], 16)])
def test_bytes_of_any_number_that_json_has_are_an_array(shape, size):
    head = asked(data=None, shape=shape, parameters={"binary_data_size": size})
    head = json.dumps(head).encode()
    request = protocol.read(head + bytes(int(size)), str(len(head)), ())
    assert request.item["x"].tolist() == [0.0] * shape[0]


@pytest.mark.parametrize(
    ("datatype", "data"), [("BF16", [1, 2.5]), ("UINT64", [2**63, 1]), ("FP64", [10**20, 0.5])]
)
def test_numbers_of_any_type_are_read_and_what_is_empty_is_not_asked_for(datatype, data):
    document = asked(datatype=datatype, data=data, parameters=None)
    document |= {"id": None, "outputs": [], "parameters": None}
    request = protocol.read(json.dumps(document).encode(), None, [Port("y", (), "bool")])
    assert (request.id, request.item["x"].tolist()) == ("", data)
    assert request.outputs == {"y": False}  # all that there are, as JSON


@pytest.mark.parametrize("length", ["9999", "-1", "x", "1" * 5000])
def test_a_length_that_is_none_is_refused(address, length):
    status, _, answer = post(address, asked(), inference_header_content_length=length)
    assert (status, "the body has" in answer["error"]) == (400, True)


def test_another_model_a_long_body_and_a_compressed_one_are_refused(address):
    status, _, answer = post(address, asked(), path := "/v2/models/net/versions/2/infer")
    assert status == 404
    assert answer == {"error": f"unknown path '{path}'; the model is 'net', version 1"}
    status, headers, _ = post(address, asked(), "/v2/health/live")
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    status, _, answer = post(address, asked(data=[0] * 1000))
    assert (status, answer) == (413, {"error": "the body has more than 1000 bytes"})
    assert post(address, asked(), content_encoding="gzip")[0] == 415


def test_metrics_count_requests_batches_and_times(address):
    post(address, asked())
    text = metrics(address)
    count = int(re.search(r'autosplit_requests_total\{code="200"\} (\d+)', text)[1])
    for name in ("batch_size", "queue_seconds", "compute_seconds"):
        assert int(re.search(rf"autosplit_{name}_count (\d+)", text)[1]) == count > 0
        assert f'autosplit_{name}_bucket{{le="+Inf"}} {count}' in text


def test_the_time_of_an_item_in_the_stages_does_not_last_until_its_whole_request_is_done():
    with served(chain(before={0: lambda _: threading.Event().wait(0.1)})) as address:
        assert post(address, asked(shape=[8], data=[0] * 8))[0] == 200
        seconds = re.search(r"autosplit_compute_seconds_sum (\S+)", metrics(address))[1]
    assert 0.4 < float(seconds) < 0.8  # of four items


def test_beyond_the_queue_requests_are_told_to_come_again():
    release = threading.Event()
    before = {0: lambda _: release.wait(PATIENCE_S)}
    with served(chain(before=before), queue=2) as address, ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(post, address, asked()) for _ in range(2)]
        wait_for(lambda: "autosplit_items_inside 2" in metrics(address))
        refused = post(address, asked())
        release.set()
        assert [answer.result(PATIENCE_S)[0] for answer in answers] == [200, 200]
    assert (refused[0], refused[1]["retry-after"]) == (503, "1")


def test_items_before_a_refused_one_are_inside_until_they_are_computed():
    release = threading.Event()
    pipeline = chain(before={0: lambda _: release.wait(PATIENCE_S)})()
    pipeline.enter = Mock(side_effect=[pipeline.enter(items(1)[0]), ConfigError("too large")])
    with served(lambda: pipeline) as address, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(post, address, asked(shape=[4], data=[0] * 4))
        wait_for(lambda: "autosplit_items_inside 2" in metrics(address))
        release.set()
        assert answer.result(PATIENCE_S)[0] == 400


def test_requests_that_are_being_computed_are_finished_at_the_end():
    begun, release = threading.Event(), threading.Event()
    before = {0: lambda _: begun.set() or release.wait(PATIENCE_S)}
    with ThreadPoolExecutor(1) as threads:
        with served(chain(before=before)) as address:
            answer = threads.submit(post, address, asked())
            begun.wait(PATIENCE_S)
            threading.Timer(0.2, release.set).start()
        assert answer.result(PATIENCE_S)[0] == 200


def test_a_pipeline_that_fails_is_loaded_again():
    broken = chain(before={0: Mock(side_effect=ValueError("broken"))})
    loads = [broken, Mock(side_effect=OSError("a node is gone")), chain()]
    with served(lambda: loads.pop(0)()) as address:
        status, _, answer = post(address, asked())
        assert (status, "ValueError: broken" in answer["error"]) == (500, True)
        wait_for(lambda: post(address, asked())[0] != 503)
        assert post(address, asked())[0] == 200


@pytest.mark.parametrize("batch", [1, 4])
def test_an_item_that_fails_leaves_others_their_pipeline(batch):
    pipeline, stages = fakes.fake_pipeline(CHAIN, [[0], [1]], ["b"], batch=batch)
    compute = stages[0].run

    def run(values):
        if (values[0] > 100).any():
            raise ValueError("index 101 is out of bounds")
        return compute(values)

    stages[0].run = run
    with served(lambda: pipeline.with_delay(0)) as address:
        assert post(address, asked())[0] == 200
        status, _, answer = post(address, asked(data=[101, 1]))
        assert (status, "failed on this item: ValueError: index" in answer["error"]) == (500, True)
        assert post(address, asked())[0] == 200


def stateful(**options):
    return fakes.fake_pipeline(STATE, [[0], [1]], ["b", "s"], states={"h": "s"}, **options)[0]


def test_a_sequence_has_its_own_states():
    submitted = items(3)
    with served(stateful) as address, connected(address) as client:
        for sequence in (7, "b"):
            state = np.zeros(2)
            for number, item in enumerate(submitted):
                place = {"sequence_start": number == 0, "sequence_end": number == 2}
                expected = sequential(STATE, {**item, "h": state}, ["b", "s"])
                output = infer(client, item, sequence_id=sequence, **place)
                np.testing.assert_array_equal(output, expected["b"])
                state = expected["s"]
        for line, options in (
            ("sequence_id of the stream", {}),
            ("has not begun", {"sequence_id": 7}),  # it has ended
        ):
            with pytest.raises(triton.InferenceServerException, match=line):
                infer(client, submitted[0], **options)


def of_sequence(sequence, **place):
    return asked() | {"parameters": {"sequence_id": sequence, **place}}


def test_a_sequence_may_begin_anew_while_its_last_item_is_computed():
    release, answers = threading.Event(), []
    waits = {0: lambda _: release.wait(PATIENCE_S)}
    with served(partial(stateful, before=waits)) as address, ThreadPoolExecutor(2) as threads:
        for inside, ends in ((1, True), (2, False)):
            document = of_sequence(7, sequence_start=True, sequence_end=ends)
            answers.append(threads.submit(post, address, document))
            wait_for(lambda n=inside: f"autosplit_items_inside {n}" in metrics(address))
        release.set()
        assert [answer.result(PATIENCE_S)[0] for answer in answers] == [200, 200]
        assert post(address, of_sequence(7))[0] == 200


HEAD = b"POST /v2/models/net/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"
CHUNKED = b"POST /v2/models/net/infer HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"


def test_a_client_that_goes_in_the_middle_of_a_request_is_counted():
    with served(chain()) as address:
        with connect(address) as connection:
            connection.sendall(HEAD)
        wait_for(lambda: '"499"' in metrics(address))
        assert post(address, asked())[0] == 200


def connect(address):
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


@pytest.mark.parametrize("first", [0, 20])
def test_a_body_that_comes_with_its_headers_is_no_part_of_them(address, monkeypatch, first):
    monkeypatch.setattr(app, "MOST_HEAD_BYTES", 500)
    head, body = HEAD[:-1].replace(b"9\r\n", b"900\r\n"), json.dumps(asked()).encode().ljust(900)
    with connect(address) as connection:
        connection.sendall(head[:first])
        threading.Event().wait(0.1)  # until the server has read it
        connection.sendall(head[first:] + body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("start", [b"GET /v2 HTTP/1.1\r\n", CHUNKED])
def test_headers_and_trailers_without_an_end_are_refused(address, start):
    with connect(address) as connection:
        connection.sendall(start)
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"a: " + b"b" * 10_000 + b"\r\n")
            while connection.recv(1000):  # an answer and the end, or a reset
                pass


def test_requests_without_end_on_one_connection_are_refused(address):
    with connect(address) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n" * 2000)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    assert b"".join(parts).count(b" 200 ") <= app.MOST_WAITING + 1


def test_a_client_that_stalls_does_not_keep_the_server_from_its_end(monkeypatch, caplog):
    monkeypatch.setattr(app, "GRACE_S", 0.1)
    with contextlib.ExitStack() as later, served(chain()) as address:
        later.enter_context(connect(address)).sendall(HEAD)
        assert post(address, asked())[0] == 200
    assert not [record for record in caplog.records if record.exc_info]


def has_memory(monkeypatch, size):
    monkeypatch.setattr(app.psutil, "virtual_memory", lambda: Mock(available=size))


def test_bodies_that_come_slowly_do_not_fill_the_memory(monkeypatch):
    has_memory(monkeypatch, 0)
    with served(chain(), most_bytes=300) as address:
        with connect(address) as connection:
            connection.sendall(HEAD.replace(b"9\r\n\r\n", b"299\r\n\r\n") + b" " * 250)
            wait_for(lambda: post(address, asked())[0] == 503)
        wait_for(lambda: post(address, asked())[0] == 200)


def test_states_of_sequences_that_nobody_ends_do_not_fill_the_memory(monkeypatch):
    has_memory(monkeypatch, 2 * 16 / app.MOST_OF_MEMORY + 1)  # for two streams
    with served(stateful) as address:
        for is_first, statuses in ((True, [200, 200, 200]), (False, [400, 200, 200])):
            documents = [of_sequence(n, sequence_start=is_first) for n in (1, 2, 3)]
            assert [post(address, document)[0] for document in documents] == statuses


def test_no_answer_waits_for_the_client_s_acknowledgement():
    with app.listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("host", ["a" * 70, "a..b", "192.0.2.1", "no such host"])
def test_an_address_that_is_none_of_this_machine_is_refused(host):
    with pytest.raises(MachineError, match=f"cannot listen on {host}:0: "):
        app.listen(host, 0)
    with app.listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(MachineError, match=f"port {port} on 127.0.0.1 is in use"):
            app.listen("127.0.0.1", port)


def test_a_queue_longer_than_the_pipeline_is_refused():
    with pytest.raises(ConfigError, match="the queue is 1000; this pipeline holds at most"):
        app.Server(chain(), "net", 1000, 1000)


@given(
    dtype=st.sampled_from(["bool", "int8", "uint64", "float16", "float32", "float64"]),
    shape=st.lists(st.integers(0, 3), max_size=3),
    is_binary=st.booleans(),
    number=st.integers(0, 2**32),
)
def test_a_response_is_read_as_what_was_written(dtype, shape, is_binary, number):
    random = np.random.default_rng(number)
    array = (random.random(shape) * 100).astype(dtype)
    request = protocol.Request({}, {"y": is_binary})
    body, headers = protocol.write(request, [{"y": array}], "net")
    length = int(headers.get(protocol.HEADER_LENGTH, len(body)))
    head = json.dumps({"inputs": json.loads(body[:length])["outputs"]}).encode()
    item = protocol.read(head + body[length:], str(len(head)), ()).item
    assert item["y"].dtype == array.dtype
    np.testing.assert_array_equal(item["y"], array)


def test_numbers_that_json_lacks_are_refused_as_json_alone():
    results = [{"y": np.array([1.0, np.nan, np.inf])}]
    with pytest.raises(ConfigError, match="ask for binary data"):
        protocol.write(protocol.Request({}, {"y": False}), results, "net")
    assert protocol.write(protocol.Request({}, {"y": True}), results, "net")


@contextlib.contextmanager
def served_by_command(folder, *words, **environment):
    """Triton's client of the command ``serve``, which is interrupted at the end."""
    command = [sys.executable, "-m", "autosplit", "serve", str(folder), "--port", "0", *words]
    environment = os.environ | environment
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        url, _, name = process.stdout.readline().partition(" serves ")
        with connected(url.removeprefix("http://")) as client:
            yield partial(client.infer, name.strip().strip("'"))
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


@pytest.mark.integration
def test_the_command_serves_an_export_until_it_is_ended(tmp_path):
    (tmp_path / "net.onnx").write_bytes(cached("transformer").read_bytes())
    model = autosplit.load_model(tmp_path / "net.onnx", runtime="onnxruntime")
    model.split([]).export(tmp_path / "out")
    (item,) = model.items(1)
    with served_by_command(tmp_path / "out") as infer:
        result = infer(tensors(item))
    with autosplit.load(tmp_path / "out") as pipeline:
        (expected,) = pipeline.run([item])
    for key, array in expected.items():
        np.testing.assert_array_equal(result.as_numpy(key), array)


def one_stage(runtime="onnxruntime", batch=1, dtype="float32"):
    document = sound(dtype)
    replicas = [{"device": "cores:0-1"}, {"device": "cores:2-3"}]
    for port in (*document["stages"][0]["inputs"], *document["stages"][0]["outputs"]):
        port["shape"][0] *= batch
    stage = document["stages"][0] | {"runtime": runtime, "replicas": replicas}
    measured = {"points": [], "lone_ms": 1.0, "capacity": 9.0, "delay_ms": 2.5}
    return document | {"stages": [stage], "batch": batch, "load": measured}


def hinted(document, server):
    return hint(Manifest.model_validate(document), server)


def triton_config(text):
    """A ``config.pbtxt``, read by Triton's own message; its package would import grpc."""
    from google.protobuf import text_format

    file = Path(triton.__file__).parents[1] / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return text_format.Parse(text, module.ModelConfig())


@pytest.mark.parametrize("batch", [1, 4])
def test_triton_reads_how_an_export_was_measured(batch):
    config = triton_config(hinted(one_stage(batch=batch), "triton"))
    assert (config.name, config.backend) == (sound()["model"]["name"], "onnxruntime")
    assert [group.count for group in config.instance_group] == [2]
    assert config.parameters["intra_op_thread_count"].string_value == "2"
    (port, *_), (described, *_) = config.input, sound()["model"]["inputs"]
    size = described["shape"][0] * batch if batch > 1 else 0
    assert (port.name, config.max_batch_size) == (described["name"], size)
    assert list(port.dims) == (described["shape"][1:] if batch > 1 else described["shape"])
    assert config.HasField("dynamic_batching") == (batch > 1)
    if batch > 1:
        assert list(config.dynamic_batching.preferred_batch_size) == [size]
        assert config.dynamic_batching.max_queue_delay_microseconds == 2500


def test_names_are_texts_for_triton_and_a_number_an_item_has_a_dimension():
    document = put(one_stage(batch=4), "model.outputs.0.shape", [1])
    document["model"]["name"] = document["model"]["inputs"][0]["name"] = 'a"\\\n{} é'
    config = triton_config(text := hinted(document, "triton"))
    assert config.name == config.input[0].name == document["model"]["name"]
    assert "dims: [ 1 ] reshape: { shape: [ ] } }" in text


def test_openvino_model_server_reads_how_an_export_was_measured():
    document = json.loads(hinted(one_stage("openvino", 4), "ovms"))
    (config,) = [entry["config"] for entry in document["model_config_list"]]
    assert (config["name"], config["batch_size"]) == (sound()["model"]["name"], "8")  # of 2 rows
    assert config["plugin_config"] == {"NUM_STREAMS": "2", "INFERENCE_NUM_THREADS": "4"}
    assert "batch_size" not in hinted(one_stage("openvino"), "ovms")


def test_ray_serve_reads_how_an_export_was_measured():
    yaml = pytest.importorskip("yaml")
    (deployment,) = yaml.safe_load(hinted(one_stage(batch=4), "ray"))["deployments"]
    assert deployment == {
        "name": sound()["model"]["name"], "num_replicas": 2, "max_ongoing_requests": 8,
        "ray_actor_options": {"num_cpus": 2},
        "user_config": {"max_batch_size": 4, "batch_wait_timeout_s": 0.0025},
    }  # fmt: skip


def test_a_hint_may_be_a_json_document(tmp_path, as_json):
    (tmp_path / "split.json").write_text(json.dumps(one_stage()))
    document = as_json("serve", tmp_path, "--hint", "triton")
    assert document == {"server": "triton", "configuration": hinted(one_stage(), "triton")}


@pytest.mark.parametrize(
    ("document", "server", "line"),
    [(sound(), "triton", "'triton' runs one stage, not 3"),
     (one_stage("tvm"), "triton", "'triton' does not run stages in tvm"),
     ({**one_stage(), "model": sound()["model"] | {"states": {"h": "n"}}}, "ray", "the states"),
     (put(one_stage(), "model.outputs.0.shape", []), "triton", "no scalars, such as 'b'; use"),
     (one_stage(), "ovms", "'ovms' does not run stages in onnxruntime"),
     (one_stage(dtype="float8_e4m3fn"), "triton", "float8_e4m3fn, which cannot be served; use")],
)  # fmt: skip
def test_a_server_that_cannot_run_an_export_gets_no_hint(document, server, line):
    with pytest.raises(ConfigError, match=line):
        hinted(document, server)


def test_the_garbage_collector_leaves_alone_what_was_loaded():
    with served(chain(), collector := Mock()):
        assert collector.method_calls == [call.unfreeze(), call.collect(), call.freeze()]
