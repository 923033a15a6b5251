"""A channel is first in first out and bounded, and any thread can close it."""

import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.execution.edges import Channel, Closed
from tests.hardware.fakes import PATIENCE_S, in_time


def in_background(work):
    """Start ``work`` in a thread; returns the thread and a list that gets the result or Closed."""
    results = []

    def run():
        try:
            results.append(work())
        except Closed as closed:
            results.append(closed)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


@given(st.lists(st.integers(), max_size=20))
def test_messages_are_taken_in_order(messages):
    channel = Channel(20)
    for message in messages:
        channel.put(message)
    assert [channel.take() for _ in messages] == messages


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_a_sender_waits_while_the_channel_is_full(capacity):
    channel = Channel(capacity)
    for i in range(capacity):
        in_time(lambda i=i: channel.put(i))
    sender, _ = in_background(lambda: channel.put("last"))
    sender.join(0.1)
    assert sender.is_alive()
    assert channel.take() == 0
    sender.join(PATIENCE_S)
    assert not sender.is_alive()
    assert [channel.take() for _ in range(capacity)] == [*range(1, capacity), "last"]


def test_a_reader_waits_while_the_channel_is_empty():
    channel = Channel(1)
    reader, results = in_background(channel.take)
    reader.join(0.1)
    assert reader.is_alive()
    channel.put("x")
    reader.join(PATIENCE_S)
    assert results == ["x"]


def test_a_message_may_be_none_or_empty():
    channel = Channel(3)
    for message in (None, (), 0):
        channel.put(message)
    assert [in_time(channel.take) for _ in range(3)] == [None, (), 0]


@pytest.mark.parametrize("waits", ["put", "take"])
def test_closing_wakes_everybody_who_waits(waits):
    channel = Channel(1)
    if waits == "put":
        channel.put(0)
    waiting = [
        in_background((lambda: channel.put(1)) if waits == "put" else channel.take)
        for _ in range(3)
    ]
    channel.close()
    for thread, results in waiting:
        thread.join(PATIENCE_S)
        assert isinstance(results[0], Closed)


def test_close_is_idempotent_and_final():
    channel = Channel(2)
    channel.put("message")
    for _ in range(2):
        channel.close()
    with pytest.raises(Closed):
        channel.take()
    with pytest.raises(Closed):
        channel.put("more")


def test_close_discards_the_messages():
    class Message:
        pass

    channel, message = Channel(1), Message()
    reference = weakref.ref(message)
    channel.put(message)
    del message
    channel.close()
    assert reference() is None


def test_many_senders_and_readers_lose_and_repeat_nothing():
    channel = Channel(3)
    senders = [
        in_background(lambda k=k: [channel.put((k, i)) for i in range(50)]) for k in range(4)
    ]
    readers = [in_background(lambda: [channel.take() for _ in range(100)]) for _ in range(2)]
    for thread, _ in senders + readers:
        thread.join(PATIENCE_S)
    taken = [message for _, (messages,) in readers for message in messages]
    assert sorted(taken) == [(k, i) for k in range(4) for i in range(50)]
