import importlib
import json
import re

import pytest

from autosplit.hardware.measurement.open_loop import load_test
from autosplit.hardware.measurement.results import Spread
from autosplit.planner.workload import Workload
from autosplit.study.config.study_file import load
from autosplit.zoo import catalog
from studies.benchmarks import __main__ as all_benchmarks
from studies.benchmarks import planner, result, winners
from studies.benchmarks.serving_http import Clients
from studies.tools import tables
from tests.cli.test_plan import GRAPH, node
from tests.studies.conftest import STUDIES

FAST, SAME, SLOW = Spread(2.0, 1.9, 2.1), Spread(2.2, 2.1, 2.3), Spread(4.0, 3.9, 4.1)
COMMANDS = ["studies.benchmarks.__main__"]
FILES = sorted(STUDIES.rglob("*.toml"))
MODULES = {command.split()[0] for command in all_benchmarks.COMMANDS.values()}
COMMANDS += [f"studies.benchmarks.{module}" for module in MODULES]
CHAIN = GRAPH | {
    "maxFPGAs": 3,
    "maxSizePerFPGA": 1e9,
    "nodes": [node(i, 1 + i % 3, size=1) for i in range(8)],
    "edges": [{"sourceId": i, "destId": i + 1, "cost": 0.1} for i in range(7)],
}


@pytest.fixture
def workloads(tmp_path):
    """A folder with a graph file."""
    (folder := tmp_path / "w").mkdir()
    (folder / "tiny.json").write_text(json.dumps(CHAIN))
    return folder


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_answers_help(name, bench, capsys):
    with pytest.raises(SystemExit) as exit:
        bench(importlib.import_module(name), "--help")
    assert exit.value.code == 0
    assert f"python -m {name.removesuffix('.__main__')}" in capsys.readouterr().out


def test_every_module_with_a_main_function_is_run_by_the_command_for_all():
    files = (STUDIES / "benchmarks").glob("*.py")
    modules = {file.stem for file in files if "def main" in file.read_text()}
    assert modules - {"__main__"} == MODULES


def test_every_benchmark_has_its_table_on_a_page_and_no_other_has():
    pages = "".join(page.read_text() for page in tables.PAGES)
    marked = set(re.findall(r"<!-- results: (\w+) -->", pages)) - {"summary"}
    # A result of a larger machine is called after it.
    assert {re.sub(r"_\d+_cores$", "", name) for name in marked} == set(all_benchmarks.COMMANDS)
    assert {file.stem for file in tables.RESULTS.glob("*.json")} <= marked


def test_the_planner_proves_what_it_finds(bench, workloads, tmp_path):
    assert bench(planner, workloads, "-o", tmp_path / "planner.json") == 0
    outcome = result.read(tmp_path / "planner.json")
    assert [row[:3] for row in outcome.rows] == [("tiny", "9", "2"), ("tiny", "9", "3")]
    assert outcome.command == "python -m studies.benchmarks.planner w"


def test_the_plan_for_unlike_devices_is_as_good_as_every_rule(bench, workloads, tmp_path):
    assert bench(planner, workloads, "--clusters", 12, "-o", tmp_path / "clusters.json") == 0
    rows = result.read(tmp_path / "clusters.json").rows
    assert len(rows) == 7
    assert all(row[-1] == "" or float(row[-1]) >= 1 for row in rows)


def test_a_benchmark_that_fails_is_reported(bench, workloads, tmp_path, monkeypatch, capsys):
    commands = {"fails": "planner --no-such-option", "tables": "planner {workloads}"}
    monkeypatch.setattr(all_benchmarks, "COMMANDS", commands)
    assert bench(all_benchmarks, "--folder", tmp_path, "--workloads", workloads) == 1
    assert "failed with exit code 2" in capsys.readouterr().out
    assert result.read(tmp_path / "tables.json").name == "planner"


def test_winners_gain_tie_or_are_the_same():
    def won(period, rival, unsplit=None):
        return winners.Winner("", unsplit, period, 1.0, "tvm, 1 thread", rival, (9.0,))

    compared = [won(FAST, SLOW), won(FAST, SAME), won(SLOW, FAST), won(FAST, SLOW, "tvm, 1 thread")]
    assert [w.outcome for w in compared] == ["gain", "tie", "loss", "same"]
    bars = {bar.what: bar for bar in winners.bars_of(compared, "auto")}
    assert [bar.value for bar in bars.values()] == ["1", "0", "9", "1"]
    assert not any(bar.holds for what, bar in bars.items() if "difference" not in what)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(STUDIES).as_posix())
def test_every_study_file_is_sound(file):
    config = load(file)
    assert config.zoo in catalog.NAMES
    assert f"autosplit run studies/{file.relative_to(STUDIES)}" in file.read_text().splitlines()[0]


def test_a_load_test_measures_clients_of_a_server_as_a_pipeline():
    clients = Clients(lambda item: b"", 2)
    test = load_test(clients, [{}], Workload(limit_ms=1e3), seconds=0.05, capacity=500.0)
    assert test.goodput > 0
