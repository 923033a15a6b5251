from studies.benchmarks.quick_search import outcomes, quick_search


def test_a_table_is_searched_from_its_first_place_without_delays():
    rates = {"1 thread, 0 ms": 0, "2 replicas, batch 4, 0 ms": 10, "1 thread, batch 4, 1 ms": 12.5}
    (line,) = outcomes("net", {f"tvm, {way}": (5.0, rate, 4.0) for way, rate in rates.items()})
    assert line.endswith("threads 1: 3 of 4 configurations, then 0.320 of the best")
    grid = {(i, j): 100 / (1 + abs(i - 2) + abs(j - 1)) for i in range(8) for j in range(6)}
    assert quick_search(grid)[3:] == [(2, 2), (3, 3), (3, 4), (4, 3), (1, 1)]
