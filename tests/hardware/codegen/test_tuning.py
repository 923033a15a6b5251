import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit import api
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.codegen import tuning
from autosplit.hardware.codegen.schedules import RECORDS, database
from autosplit.hardware.codegen.tuning import MOST, shares, tune, work_of
from autosplit.hardware.devices.device import Cores, along
from tests.nets import judge, net

CORE = Cores((0,))
WORK = st.dictionaries(st.text(min_size=1), st.floats(0, 1e12), min_size=1, max_size=8)


@pytest.fixture
def small(save):
    text = """g (float[1,16,14,14] x) => (float[1,32,14,14] y) {
        c = Conv<pads=[1,1,1,1]>(x, w)  y = Relu(c)
    }"""
    return save(net(text, {"w": (32, 16, 3, 3)}))


@given(WORK, st.integers(1, 64))
def test_every_kernel_is_tried_and_the_heavier_no_less(work, samples):
    tries = shares(work, samples)
    assert all(1 <= tries[name] <= MOST * samples for name in work)
    assert all(tries[a] <= tries[b] for a in work for b in work if work[a] <= work[b])


def test_work_counts_every_call_of_a_kernel(branches):
    work = sum(work_of(branches.graph).values())
    assert work == pytest.approx(sum(op.flops for op in branches.graph.ops))


@pytest.mark.integration
def test_a_database_is_filled_known_again_and_serves_a_right_pipeline(small, tmp_path, monkeypatch):
    # Any schedule is faster than none.
    monkeypatch.setattr(tuning, "schedule", lambda functions, target: functions)
    model = api.load_model(small)
    first = list(tune(model.lowered.kernels, model.kernels.target, tmp_path / "db", samples=2))
    again = list(tune(model.lowered.kernels, model.kernels.target, tmp_path / "db", samples=2))
    improved = [t.kernel for t in first if not t.note]
    assert improved
    assert [t.kernel for t in again if t.note == "known to the database"] == improved
    tuned = api.load_model(small, tuning=tmp_path / "db")
    assert tuned.identity["tuning"] != model.identity["tuning"]
    assert tuned.kernels.on(CORE).symbols != model.kernels.on(CORE).symbols
    judge(tuned, tuned.unsplit(along(1)[0]))


@pytest.mark.integration
def test_a_schedule_by_rule_is_replaced_only_by_a_faster_one(small, tmp_path):
    model = api.load_model(small)
    results = list(tune(model.lowered.kernels, model.kernels.target, tmp_path / "db", samples=2))
    replaced = {t.kernel for t in results if t.after_ms is not None and t.after_ms < t.before_ms}
    assert replaced == {t.kernel for t in results if not t.note}
    tuned = api.load_model(small, tuning=tmp_path / "db").kernels.on(CORE).symbols
    by_rule = model.kernels.on(CORE).symbols
    assert replaced == {name for name in by_rule if tuned[name] != by_rule[name]}


def test_a_time_limit_ends_before_the_next_kernel(small, tmp_path):
    model = api.load_model(small)
    tuned = tune(model.lowered.kernels, model.kernels.target, tmp_path / "db", is_over=lambda: True)
    assert list(tuned) == []


def test_two_processes_do_not_tune_into_one_folder(tmp_path):
    with pytest.raises(MachineError, match=r"process tunes into '.*'; give another folder"):
        list(tune({"kernel": None}, None, tmp_path, is_over=lambda: list(tune({}, None, tmp_path))))
    assert list(tune({}, None, tmp_path)) == []


def test_a_damaged_database_is_one_line(tmp_path):
    database(tmp_path, create=True)
    (tmp_path / RECORDS).write_text("{ no record")
    with pytest.raises(ConfigError, match="is damaged"):
        database(tmp_path)
    with pytest.raises(ConfigError, match="has no tuning database"):
        database(tmp_path / "nowhere")


def test_a_stack_asked_for_meanwhile_has_all_but_its_source_lines(monkeypatch):
    names = []
    monkeypatch.setattr(
        tuning, "import_module", lambda _: names.extend(f.function for f in inspect.stack())
    )
    tuning._define_intrinsics()
    assert "test_a_stack_asked_for_meanwhile_has_all_but_its_source_lines" in names
