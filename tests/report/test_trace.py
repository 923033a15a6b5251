import itertools
import json

import pytest

from autosplit.cli import main
from autosplit.report import trace
from tests.hardware.fakes import fake_pipeline, graph, items

# The format's required keys by phase: a complete span, the steps of a flow, and metadata.
REQUIRED = {
    "X": {"name", "ts", "dur", "pid", "tid"},
    **{step: {"name", "ts", "id", "pid", "tid"} for step in "stf"},
    "M": {"name", "pid", "tid", "args"},
}
NET = graph([("a", ["x"]), ("b", ["a"]), ("c", ["b", "a"])], ["x"], ["c"])


@pytest.fixture
def entries(tmp_path):
    pipeline, _ = fake_pipeline(NET, [[0], [1], [2]], ["c"], trace=True, replicas=[1, 2, 1])
    with pipeline:
        pipeline.run(items(20))
    names = [["cores:0"], ["cores:1", "cores:\x1b2"], ["cores:3"]]
    trace.write(pipeline.events, pipeline.submitted, pipeline.wiring, names, tmp_path / "run.json")
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    document = json.loads(text)
    return list(document["traceEvents"])


def spans(entries):
    return [entry for entry in entries if entry["ph"] == "X"]


def test_every_entry_has_the_keys_of_its_phase(entries):
    for entry in entries:
        assert REQUIRED[entry["ph"]] <= entry.keys()
        assert entry.get("ts", 0.0) >= 0.0


def test_the_spans_of_a_replica_do_not_overlap(entries):
    ends = {}
    for entry in sorted(spans(entries), key=lambda e: (e["ts"], e["dur"])):
        track = entry["pid"], entry["tid"]
        assert entry["ts"] >= ends.get(track, 0.0) - 1e-3
        ends[track] = entry["ts"] + entry["dur"]


def test_an_item_flows_from_its_first_stage_to_its_last(entries):
    flow = [(e["ph"], e["pid"]) for e in entries if e["ph"] in "stf" and e["id"] == 7]
    assert flow == [("s", 0), ("t", 1), ("f", 2)]


def test_tracks_have_the_names_of_their_devices(entries):
    names = [e["args"]["name"] for e in entries if e["name"] == "thread_name"]
    assert names[:2] == ["replica 0 on cores:0", "replica 0 on cores:1"]
    assert "\x1b" not in "".join(names)


def test_a_run_without_items_is_a_trace(tmp_path):
    pipeline, _ = fake_pipeline(NET, [[0], [1], [2]], ["c"], trace=True)
    trace.write([], [], pipeline.wiring, [["cores:0"]] * 3, tmp_path / "run.json")
    pipeline.close()
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["traceEvents"]


def test_bench_writes_the_events_of_its_run(export, tmp_path):
    file = tmp_path / "run.json"
    assert main(["bench", str(export.folder), "--seconds", "0.1", "--trace", str(file)]) == 0
    entries = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    computed = [(e["pid"], e["args"]["item"]) for e in spans(entries) if e["cat"] == "item"]
    assert sorted(computed) == list(itertools.product(range(3), sorted({i for _, i in computed})))
