import optuna
import pytest

from autosplit.deployment import Option, Stage
from autosplit.errors import ConfigError
from autosplit.planner import Transfer
from autosplit.report.dashboard.optuna_copy import copy
from autosplit.report.documents.record import read
from autosplit.report.documents.study import written
from autosplit.study.export import export_stored_split
from autosplit.study.record import record_of
from studies.simulation.bench import graph_of
from tests.planner.graphs import chain, on_unlike_devices
from tests.report.studies import store
from tests.study.conftest import bench_of, loss, stopped, verdict


def asked(bench, objective="throughput", **more):
    """What a study file says of the bench; on local cores alone, replicas would be searched too."""
    return {"devices": list(bench.description.devices), "objective": objective, **more}


def along(costs, auto, **simulation):
    """A bench over costs, with a device of each kind or three of the only one."""
    devices = [f"cuda:{n}" for n in range(len(costs.kinds) if len(costs.kinds) > 1 else 3)]
    return bench_of(graph_of(costs), costs, devices, auto, **simulation)


def weighted(auto=False, **simulation):
    """A chain with weights that do not follow the times, and tensors that cost to transfer."""
    times = [float(3 + (7 * i) % 5) for i in range(10)]
    sizes = tuple(float(20 + (11 * i) % 13) for i in range(10))
    tensors = tuple(Transfer(f"t{i}", i, (i + 1,), 8.0 + i % 3) for i in range(9))
    moves = {"send": [0.5 + i % 2 for i in range(9)], "receive": [0.5 + i % 2 for i in range(9)]}
    costs = chain(*times, **moves, tensors=tensors, sizes=sizes, activations=True)
    return along(costs, auto, error=0.05, **simulation)


def unlike(*speeds, **simulation):
    """A chain on devices of some speeds, all different."""
    times = [[(1 + i % 3) / speed for i in range(24)] for speed in speeds]
    return along(on_unlike_devices(chain(*times[0]), *times), True, error=0.2, **simulation)


def test_the_least_latency_leaves_most_devices_unused(ran):
    bench = weighted(auto=True, noise=0.001)
    opened = ran(bench, asked=asked(bench, "latency", stages="auto"), trials=5)
    best = read(opened.study).best()
    assert len(best.record.stages) == 1
    value = opened.study.trials[best.number].value
    assert value == opened.study.best_value == best.record.latency_ms.median
    whole = Stage(tuple(range(10)), (Option(bench.costs.rows[0].row),))
    assert value <= 1.03 * bench.truth((whole,)).latency
    record = read(opened.study)
    assert written(record, opened.url)["best"]["number"] == record.best().number == best.number
    names = copy(opened.study, record).metric_names
    assert names == opened.study.metric_names == ["latency in ms"]
    assert " latency;" in verdict(opened)["text"]


def test_ten_stage_times_are_the_least_to_stop_for(ran):
    bench = weighted(noise=1e-6)
    opened = ran(bench, asked=asked(bench, "latency"), trials=20)
    assert stopped(opened).startswith("converged")
    assert len(opened.study.trials) >= 4  # of three stages


def test_a_study_of_optuna_with_other_directions_is_refused(new_study, tmp_path):
    two = ["minimize", "minimize"]
    optuna.create_study(storage=f"sqlite:///{tmp_path / 's.db'}", study_name="s", directions=two)
    with pytest.raises(ConfigError, match="was not created by autosplit"):
        new_study(weighted())


def test_a_study_whose_file_no_longer_reads_is_not_exported(ran, tmp_path):
    opened = ran(weighted(), trials=1)
    store(opened.study, config={"zoo": "branches", "stages": 2, "gone": 1})
    unread = "was not stored by this version of autosplit: unknown key 'gone'"
    with pytest.raises(ConfigError, match=unread):
        export_stored_split(opened.study, tmp_path / "out")


def test_a_device_that_slows_the_others_down_is_left_out(ran):
    bench = unlike(1.0, 0.01, contention=0.3)
    judged = verdict(ran(bench, asked=asked(bench, stages="auto"), trials=4))
    assert judged["choice"] == "leave"
    assert judged["text"].startswith("Leave the model whole: simulated on cuda:0.")


def test_replicas_on_unlike_devices_take_items_as_fast_as_they_can(ran):
    bench = unlike(1.0, 0.5)
    opened = ran(bench, asked=asked(bench, stages="auto"), trials=6)
    assert loss(opened) < 0.02
    shapes = [record_of(t).devices for t in opened.study.trials]
    assert (("cuda:0", "cuda:1"),) in shapes


def test_no_baseline_is_advised_that_exceeds_the_memory_of_its_device(ran):
    costs = on_unlike_devices(chain(*(1.0,) * 8, sizes=(1.0,) * 8), (1.0,) * 8, (9.0,) * 8)
    bench = along(costs, True)
    limits = asked(bench, stages="auto", memory=[4.0, 8.0])
    judged = verdict(ran(bench, asked=limits, trials=2))
    assert "baseline" not in judged
    assert "one device, which this study does not export, " in judged["text"]
