import subprocess
import sys
import time

import pytest

from autosplit.hardware.devices.system_files import ProcessUsage
from autosplit.hardware.measurement import disturbance
from autosplit.hardware.measurement.disturbance import Conditions, Counters, since, wait_until_calm
from autosplit.hardware.measurement.results import Spread
from tests.hardware.fakes import wait_for

CALM = Counters(100.0, 50.0, 0.0, 10.0, 0)


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        (Conditions(), None),
        (Conditions(load=0.3, idle=0.3), None),  # another core was free for it
        (Conditions(load=0.66, idle=0.3), "other processes took 66% of the processor"),
        (Conditions(load=0.4, idle=0.0), "other processes took 40% of the processor"),
        (Conditions(load=0.01, idle=0.0), None),
        (Conditions(stolen=0.1), "the hypervisor took 10% of the processor"),
        (Conditions(throttled=True), "the processor was throttled"),
    ],
)
def test_load_steal_and_throttling_disturb(conditions, reason):
    assert conditions.reasons == ((reason,) if reason else ())


def test_a_wide_interval_and_a_period_above_the_latency_are_signs():
    alone = Spread(20.0, 19.0, 21.0)
    assert not disturbance.signs(Spread(10.0, 9.9, 10.1), alone)
    assert disturbance.signs(Spread(10.0, 1.5, 158.0), alone)
    assert disturbance.signs(Spread(40.0, 39.9, 40.1), alone)


def test_conditions_are_shares_of_all_cores(monkeypatch):
    later = Counters(200.0, 60.0, 20.0, 40.0, 3)
    monkeypatch.setattr(Counters, "now", lambda: later)
    conditions = since(CALM)
    assert (conditions.idle, conditions.stolen, conditions.throttled) == (0.1, 0.2, True)
    assert conditions.load == pytest.approx(0.4)
    monkeypatch.setattr(Counters, "now", lambda: CALM)
    assert since(CALM) == Conditions()


def test_the_time_of_children_is_not_that_of_others():
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        start, here = Counters.now(), time.process_time()

        def seconds_of_child():
            time.sleep(0.05)
            return Counters.now().process - start.process - (time.process_time() - here)

        assert any(seconds_of_child() > 0.2 for _ in range(200))
        later = Counters.now()
    finally:
        child.kill()
        child.wait()
    # What it took is kept when it has ended.
    assert Counters.now().process > later.process - 1e-6


def test_the_time_of_servers_here_is_not_that_of_others(monkeypatch):
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "tvm.exec.rpc_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as server:
        of_session, other = ProcessUsage(server.pid, 4.0), ProcessUsage(1, 8.0)
        usages = {server.pid: ProcessUsage(1, 2.0), -1: of_session, -2: other}
        monkeypatch.setattr(disturbance, "processes", lambda: usages)
        wait_for(lambda: Counters.now().process == 6.0)


def test_waiting_ends_when_it_is_calm_and_at_its_limit(monkeypatch):
    stolen = iter([0.5, 0.0, *[0.5] * 9])
    monkeypatch.setattr(disturbance, "since", lambda start: Conditions(stolen=next(stolen)))
    pauses = []
    assert wait_until_calm(20.0, pauses.append) == sum(pauses) == 2.0
    assert wait_until_calm(5.0, pauses.append) == 5.0


def test_a_container_that_tells_nothing_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(disturbance, "CPUS", tmp_path)
    monkeypatch.setattr(disturbance, "CONTROL_GROUP", tmp_path / "cpu.stat")
    assert {"governor", "throttling"} <= set(disturbance.unreadable())
    assert "governor" not in disturbance.state()
    folder = tmp_path / "cpu0" / "cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_governor").write_text("powersave\n", encoding="ascii")
    (tmp_path / "cpu.stat").write_text("nr_throttled 1\nthrottled_usec 250\n", encoding="ascii")
    assert disturbance.state().endswith("governor powersave")
    assert not {"governor", "throttling"} & set(disturbance.unreadable())
    assert Counters.now().throttled == 250
