"""Items and outputs as bytes: what ``serve`` reads and writes."""

import io
import os

import numpy as np
import pytest

from autosplit.deploy.raw_items import serve
from autosplit.errors import ConfigError, MachineError
from tests.hardware.fakes import fake_pipeline, graph, in_time

NET = graph([("a", ["x", "z"]), ("y", ["a"])], ["x", "z"], ["a", "y"])


def served(data):
    sink = io.BytesIO()
    with fake_pipeline(NET, [[0], [1]], ["a", "y"])[0] as pipeline:
        in_time(lambda: serve(pipeline, io.BytesIO(data), sink))
        items = np.frombuffer(data).reshape(-1, 2, 2)
        expected = pipeline.run([{"x": x, "z": z} for x, z in items])
    return sink.getvalue(), b"".join(o.tobytes() for e in expected for o in e.values())


@pytest.mark.parametrize("count", [0, 1, 40])
def test_outputs_come_in_the_order_of_the_items_and_of_the_model_s_tensors(count):
    written, expected = served(np.arange(4.0 * count).tobytes())
    assert written == expected
    assert len(written) == 32 * count


class Dribble(io.RawIOBase):
    """A pipe that gives some bytes at a time."""

    def __init__(self, data: bytes):
        self._data = io.BytesIO(data)

    def readinto(self, buffer):
        return self._data.readinto(buffer[:7])


def test_a_pipe_may_give_parts_of_an_item():
    data, sink = np.arange(12.0).tobytes(), io.BytesIO()
    with fake_pipeline(NET, [[0], [1]], ["a", "y"])[0] as pipeline:
        in_time(lambda: serve(pipeline, Dribble(data), sink))
    assert sink.getvalue() == served(data)[0]


@pytest.mark.parametrize("cut", [4, 16, 20])
def test_an_item_that_ends_early_is_refused(cut):
    with pytest.raises(ConfigError, match=f"the input ends after {cut} bytes of an item"):
        served(np.arange(8.0).tobytes()[: 32 + cut])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_outputs_that_cannot_be_written_are_named():
    items, line = io.BytesIO(np.arange(4.0).tobytes()), "cannot write the outputs: No space left"
    with (
        open("/dev/full", "wb", buffering=0) as sink,
        fake_pipeline(NET, [[0], [1]], ["a", "y"])[0] as pipeline,
        pytest.raises(MachineError, match=line),
    ):
        in_time(lambda: serve(pipeline, items, sink))
