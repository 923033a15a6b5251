"""The channel between two stages: first in first out, bounded, closed by anybody."""

import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.execution.channel import Channel, Closed
from tests.hardware.fakes import PATIENCE_S, in_time


def behind(work):
    """Start ``work`` in a thread; returns the thread and what it returns or raises, once it does."""
    found = []

    def run():
        try:
            found.append(work())
        except Closed as closed:
            found.append(closed)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


@given(st.lists(st.integers(), max_size=20))
def test_what_is_put_first_is_taken_first(messages):
    channel = Channel(20)
    for message in messages:
        channel.put(message)
    assert [channel.take() for _ in messages] == messages


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_a_full_channel_holds_the_sender_until_one_is_taken(capacity):
    channel = Channel(capacity)
    for i in range(capacity):
        in_time(lambda i=i: channel.put(i))
    sender, _ = behind(lambda: channel.put("last"))
    sender.join(0.1)
    assert sender.is_alive()
    assert channel.take() == 0
    sender.join(PATIENCE_S)
    assert not sender.is_alive()
    assert [channel.take() for _ in range(capacity)] == [*range(1, capacity), "last"]


def test_an_empty_channel_holds_the_reader_until_one_is_put():
    channel = Channel(1)
    reader, found = behind(channel.take)
    reader.join(0.1)
    assert reader.is_alive()
    channel.put("x")
    reader.join(PATIENCE_S)
    assert found == ["x"]


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
        behind((lambda: channel.put(1)) if waits == "put" else channel.take) for _ in range(3)
    ]
    channel.close()
    for thread, found in waiting:
        thread.join(PATIENCE_S)
        assert isinstance(found[0], Closed)


def test_a_closed_channel_takes_and_gives_nothing_and_closes_again():
    channel = Channel(2)
    channel.put("held")
    for _ in range(2):
        channel.close()
    with pytest.raises(Closed):
        channel.take()
    with pytest.raises(Closed):
        channel.put("more")


def test_what_a_closed_channel_held_is_gone():
    class Message:
        pass

    channel, message = Channel(1), Message()
    held = weakref.ref(message)
    channel.put(message)
    del message
    channel.close()
    assert held() is None


def test_many_senders_and_readers_lose_and_repeat_nothing():
    channel = Channel(3)
    senders = [behind(lambda k=k: [channel.put((k, i)) for i in range(50)]) for k in range(4)]
    readers = [behind(lambda: [channel.take() for _ in range(100)]) for _ in range(2)]
    for thread, _ in senders + readers:
        thread.join(PATIENCE_S)
    taken = [message for _, (found,) in readers for message in found]
    assert sorted(taken) == [(k, i) for k in range(4) for i in range(50)]
