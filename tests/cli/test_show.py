import re
from pathlib import Path

import optuna
import pytest

from autosplit.cli import output
from autosplit.hardware.measurement.results import Spread
from autosplit.report.dashboard.optuna_copy import copy
from autosplit.report.documents.record import Study, read
from autosplit.report.documents.study import shown
from autosplit.study.record import FORMAT, Figures, StudyRecord, record_of
from tests.report.studies import trial

pytestmark = pytest.mark.usefixtures("finished")


@pytest.mark.parametrize(
    "args", [["net.toml"], ["net.db"], ["net", "--storage", "net.db"], ["net"]]
)
def test_a_study_is_found_by_file_database_and_name(as_json, args):
    document = as_json("show", *args)
    assert document["study"]["name"] == "net"
    assert len(document["trials"]) == 2
    assert document["best"]["number"] in (0, 1)
    assert [b["name"] for b in document["baselines"]] == ["one device", "replicas"]
    assert document["verdict"]["choice"] in ("split", "replicate", "leave")
    assert document["bound_ms"] > 0


TRIALS = (
    trial(
        0, Spread(2.0, 1.0, 3.0), cuts=(("p", "q"), ("r",)), stage_ms=(1.5, 0.0, 2.25),
        live=((("t", 2048),), (("u", 1024), ("v", 512))), stages=((0,), (1,), (2,)),
        final=Figures(period_ms=Spread(2.5, 2.0, 3.0)),
    ),
    trial(1, cuts=(("p",),), state="fail", error="no room"),
)  # fmt: skip
RECORD = {
    "config": {"model": "net", "stages": "auto"},
    "devices": ("a", "b", "c"),
    "stopped": "stopped: 3 trials (limit)",
    "bound_ms": 1.5,
    "baselines": [{"name": "replicas", "period_ms": Spread(4.0, 4.0, 4.0), "copies": 2}],
    "verdict": {"text": "Split: it wins.", "trial": 0},
}


def test_the_tables_tell_what_the_document_holds(capsys):
    study = Study("s", StudyRecord.model_validate(RECORD), None, TRIALS)
    output.emit("table", {}, shown(study, "out"))
    lines = capsys.readouterr().out.splitlines()
    rows = [re.split(r" {2,}", line.strip()) for line in lines]
    assert lines[:2] == [
        "Split: it wins.",  # the answer first
        "study s: net, up to 3 stages; stopped: 3 trials (limit)",
    ]
    for row in (
        ["0", "complete", "*", "2 (1 to 3)", "2.5 (2 to 3)", "p, q | r", "1.5, -, 2.25"],
        ["1", "fail", "no room"], ["1", "p, q", "t (2.05 kB)"],
        ["2", "r", "u (1.02 kB), v (512 B)"], ["replicas", "4", "250"],
    ):  # fmt: skip
        assert row in rows
    assert "best split: trial 0, 2.5 (2 to 3) ms an item, in the final comparison" in lines
    assert "predicted bound 1.5 ms by the profile" in lines
    assert lines[-1] == "exported to out"


@pytest.mark.parametrize(
    ("batch", "profiled", "lines"),
    [("auto", (1, 2, 4, 2), ["batches tried: 1, 2, 4"]), ("auto", (1,), ["batches tried: 1"]),
     ([1], (1,), []), ("auto", (), [])],
)  # fmt: skip
def test_the_batches_that_were_tried_are_named(capsys, batch, profiled, lines):
    profile = [{"op_ms": (1.0,), "batch": each} for each in profiled]
    record = RECORD | {"config": {"batch": batch}, "profile": profile}
    output.emit("table", {}, shown(Study("s", StudyRecord.model_validate(record), None, TRIALS)))
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("batches")] == lines


def test_names_of_columns_and_states_that_tell_nothing_are_left_out(capsys):
    whole = trial(0, Spread(2.0, 1.0, 3.0), stages=((0,),), replicas=(2,), threads=(1,))
    output.emit("table", {}, shown(Study("s", StudyRecord.model_validate(RECORD), None, (whole,))))
    printed = capsys.readouterr().out
    assert "2 x 1" in printed
    assert "trial 0, 2 (1 to 3) ms an item\n\n" in printed
    assert not {"complete", "state", "live tensors"} & set(re.split(r"\n| {2,}", printed))


def test_a_study_without_attributes_says_so(as_text):
    study = optuna.create_study(study_name="empty", storage="sqlite:///empty.db")
    study.set_user_attr("autosplit", {"format": FORMAT})
    assert as_text("show", "empty.db").startswith("study empty: nothing is stored yet\n")


def test_an_export_is_told_in_lines_and_its_study_in_one(monkeypatch, as_text):
    lines = ["wrote out/split.json", "outputs equal"]
    module = "autosplit.study.export.export_stored_split"
    monkeypatch.setattr(module, lambda *args: Path("out/split.json"))
    monkeypatch.setattr("autosplit.report.documents.exported.lines", lambda file: lines)
    assert as_text("export", "net.db", "-o", "out").splitlines()[:2] == lines


def test_search_and_final_comparison_are_never_mixed(as_json):
    printed = as_json("show", "net.db")
    study = optuna.load_study(study_name="net", storage="sqlite:///net.db")
    entries = {entry["number"]: entry for entry in study.user_attrs["final_comparison"]["entries"]}
    for stored, document in zip(study.trials, printed["trials"], strict=True):
        assert Spread(**document["period_ms"]) == record_of(stored).period_ms
        assert stored.value == document["period_ms"]["median"]
        entry = entries.get(stored.number)
        assert (document["final"] is None) == (entry is None)
        for key in ("period_ms", "latency_ms", "stage_ms"):
            assert entry is None or document["final"][key] == entry[key] != document[key]
    best = printed["best"]
    assert best == {**best, **printed["trials"][best["number"]]}
    final = best["final"]
    assert max(final["stage_ms"]) == pytest.approx(final["period_ms"]["median"])
    assert final["period_ms"]["median"] == min(e["period_ms"]["median"] for e in entries.values())
    of_optuna_dashboard = copy(study, read(study)).trials
    assert [t.value for t in of_optuna_dashboard] == [t.value for t in study.trials]
