import gc
from itertools import cycle, islice
from statistics import median

import numpy as np
import psutil
import pytest

import autosplit

ITEMS, DIFFERENT = 10_000, 101  # a prime number of items, so an exchanged one is noticed
GROWTH = 8e6  # bytes after the first quarter

pytestmark = pytest.mark.slow


def resident():
    gc.collect()
    return psutil.Process().memory_info().rss


def test_ten_thousand_items_come_out_right_and_in_order_and_memory_is_flat(exported):
    random, memory = np.random.default_rng(0), []
    with autosplit.load(exported) as pipeline:
        ports = pipeline.wiring.inputs
        random_item = lambda: {p.name: random.random(p.shape, "float32") for p in ports}  # noqa: E731
        items = [random_item() for _ in range(DIFFERENT)]
        expected = pipeline.run(items)
        results = pipeline.map(islice(cycle(items), ITEMS))
        for number, outputs in enumerate(results):
            right = expected[number % DIFFERENT]
            assert all(np.array_equal(outputs[name], right[name]) for name in right), number
            if number % 100 == 0:
                memory.append(resident())
    quarter = len(memory) // 4
    assert median(memory[-quarter:]) - median(memory[quarter : 2 * quarter]) < GROWTH
