"""A study over servers of which one dies in mid-trial and comes back."""

import contextlib
import json
import subprocess
import sys
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


def study_file(tmp_path, save, devices, search, measure):
    (tmp_path / "study.toml").write_text(
        f"""
        model = "{save(nets.residual())}"
        runtime = "tvm"
        devices = {json.dumps(devices)}
        [search]
        trials = {search}
        converge = false
        [measure]
        {measure}
        """
    )
    return tmp_path / "study.toml"


def test_a_study_goes_on_when_a_killed_server_is_back(save, servers, tmp_path):  # noqa: F811
    dying, other = (servers(core=processes.own_core(n)) for n in (0, -1))
    names, timers = [dying.device, other.device], []

    def kill_in_the_second_trial(line):
        if line.startswith("trial 0:"):
            for seconds, work in ((0.4, dying.kill), (3.0, dying.start)):
                timers.append(threading.Timer(seconds, work))
                timers[-1].start()

    config = load(study_file(tmp_path, save, names, 5, "seconds = 1.5\n        share = 0.0001"))
    url = storage_url("s", str(tmp_path / "s.db"))
    with contextlib.closing(open_bench(config)) as bench:
        study = open_study(config, bench, url, kill_in_the_second_trial)
        run_study(study)
        for timer in timers:
            timer.join()
    trials = study.study.get_trials()
    failed = [t for t in trials if t.state.name == "FAIL"]
    assert [t.number for t in failed] == [1]
    assert f"device '{dying.device}' was lost" in record_of(failed[0]).error
    assert "DeviceLost" in record_of(failed[0]).log
    assert [t.state.name for t in trials[2:]] == ["COMPLETE"] * 3
    links = records.read(LinkCost, study.study.user_attrs["autosplit"]["links"])
    assert [link.device for link in links] == names
    compared = {b.name for b in study_record(study.study.user_attrs).compared_baselines()}
    assert compared == {*(f"tvm, {name}" for name in names), "tvm, 2 replicas"}


def test_two_workers_take_turns_at_the_same_servers(save, servers, tmp_path):  # noqa: F811
    names = [servers().device, f"cores:{device.available()[0]}"]
    file = study_file(tmp_path, save, names, 4, "seconds = 0.3")
    command = [sys.executable, "-m", "autosplit", "run", file, "--storage", tmp_path / "s.db"]
    workers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    printed = [w.communicate(timeout=300) for w in workers]
    assert [w.returncode for w in workers] == [0, 0], printed
