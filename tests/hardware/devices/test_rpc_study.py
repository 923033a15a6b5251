"""A study over servers of which one dies in mid-trial and comes back."""

import threading

import pytest

from autosplit.hardware.devices import device
from autosplit.hardware.measurement.results import LinkCost
from autosplit.study import documents as records
from autosplit.study.config.study_file import load
from autosplit.study.loop.benches import open_bench
from autosplit.study.loop.open import open_study
from autosplit.study.loop.run import run_study
from autosplit.study.record import record_of, study_record
from autosplit.study.storage import storage_url
from tests import nets
from tests.hardware import servers as processes
from tests.hardware.servers import servers  # noqa: F401  a fixture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not device.can_pin(), reason="servers are kept on cores, which this system cannot do"
    ),
]


class Kills:
    """Kills a server while the second trial is measured, and starts it again after a while."""

    def __init__(self, server):
        self._server = server
        self._timers = []

    def __call__(self, line):
        if line.startswith("trial 0:"):
            for seconds, work in ((0.4, self._server.kill), (3.0, self._server.start)):
                self._timers.append(threading.Timer(seconds, work))
                self._timers[-1].start()

    def wait(self):
        for timer in self._timers:
            timer.join()


def test_a_study_goes_on_when_a_killed_server_is_back(save, servers, tmp_path):  # noqa: F811
    dying, other = (servers(core=processes.own_core(n)) for n in (0, -1))
    file = tmp_path / "study.toml"
    file.write_text(
        f"""
        model = "{save(nets.residual())}"
        runtime = "tvm"
        devices = ["{dying.device}", "{other.device}"]
        [search]
        trials = 5
        converge = false
        [measure]
        seconds = 1.5
        share = 0.0001
        """
    )
    config = load(file)
    kills = Kills(dying)
    bench = open_bench(config)
    try:
        study = open_study(config, bench, storage_url("s", str(tmp_path / "s.db")), kills)
        run_study(study)
        kills.wait()
    finally:
        bench.close()
    trials = study.study.get_trials()
    failed = [t for t in trials if t.state.name == "FAIL"]
    assert [t.number for t in failed] == [1]
    assert f"device '{dying.device}' was lost" in record_of(failed[0]).error
    assert "DeviceLost" in record_of(failed[0]).log
    assert [t.state.name for t in trials[2:]] == ["COMPLETE"] * 3
    links = records.read(LinkCost, study.study.user_attrs["autosplit"]["links"])
    assert [link.device for link in links] == [dying.device, other.device]
    assert {f"tvm, {dying.device}", f"tvm, {other.device}", "tvm, 2 replicas"} == {
        b.name for b in study_record(study.study.user_attrs).compared_baselines()
    }


def test_two_workers_take_turns_at_the_same_servers(save, servers, tmp_path):  # noqa: F811
    import subprocess
    import sys

    server = servers()
    file = tmp_path / "study.toml"
    file.write_text(
        f"""
        model = "{save(nets.residual())}"
        runtime = "tvm"
        devices = ["{server.device}", "cores:{device.available()[0]}"]
        [search]
        trials = 4
        converge = false
        [measure]
        seconds = 0.3
        """
    )
    command = [
        sys.executable,
        "-m",
        "autosplit",
        "run",
        str(file),
        "--storage",
        str(tmp_path / "s.db"),
    ]
    workers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    printed = [w.communicate(timeout=300) for w in workers]
    assert [w.returncode for w in workers] == [0, 0], printed
