"""Outputs of a stage in memory for other actors."""

from __future__ import annotations

import os

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autosplit.hardware.cluster.shared_outputs import SharedOutputs


@given(st.lists(st.booleans(), max_size=60))
def test_outputs_stay_until_they_are_freed(puts: list[bool]) -> None:
    outputs, expected = SharedOutputs(2), {}
    for number, put in enumerate(puts):
        if put:
            first, second = outputs.put([np.full(3, number), np.array(number / 2)])
            expected[first], expected[second] = [number] * 3, number / 2
        elif expected:
            # The outputs of an item need not be freed together.
            key = list(expected)[number % len(expected)]
            expected.pop(key)
            outputs.free(key)
        assert {key: outputs.get(key).tolist() for key in expected} == expected


def test_the_memory_of_freed_items_is_used_again() -> None:
    outputs, before = SharedOutputs(1), len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        (key,) = outputs.put([np.zeros(1)])
        outputs.free(key)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_many_items_take_few_open_files() -> None:
    outputs, before = SharedOutputs(3), len(os.listdir("/proc/self/fd"))
    for _ in range(800):
        outputs.put([np.zeros(1)] * 3)
    assert len(os.listdir("/proc/self/fd")) <= before + 250


def test_memory_holds_the_outputs_of_its_keys() -> None:
    outputs = SharedOutputs(2)
    for number in range(20):
        outputs.put([np.array(number), np.array(-number)])
    keys, memory = outputs.memory(17)
    assert 17 in keys
    assert [outputs.get(key).tolist() for key in keys] == [a.tolist() for a in memory.arrays]
