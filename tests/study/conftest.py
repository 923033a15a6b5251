import numpy as np
import pytest
from optuna.trial import TrialState, create_trial

from autosplit.report.documents.record import read
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop import benches
from autosplit.study.loop.open import open_study, silent
from autosplit.study.loop.run import run_study
from autosplit.study.record import RECORD, RESULT, record_of
from autosplit.study.space import Space
from autosplit.study.storage import storage_url
from studies.simulation.bench import Hardware, SimulatedBench, chain_of, costs_of, on_devices
from tests.hardware.fakes import graph


def branchy(blocks, branches, seed=0):
    """A chain of blocks, each an op, parallel branches of two ops, and an op that joins them."""
    ops, last = [], "in"
    for b in range(blocks):
        ops.append((f"f{b}", [last]))
        for i in range(branches):
            ops += [(f"l{b}_{i}", [f"f{b}"]), (f"r{b}_{i}", [f"l{b}_{i}"])]
        last = f"j{b}"
        ops.append((last, [f"r{b}_{i}" for i in range(branches)]))
    times = np.random.default_rng(seed).lognormal(0, 0.7, len(ops))
    return graph(ops, ["in"], [last]), times.tolist()


def bench_of(net, costs, devices, auto=False, **simulation):
    """A bench of a graph along devices, or with any deployment on some of them."""
    question = on_devices(costs, devices, auto)
    return SimulatedBench(net, costs, question, devices, Hardware(**simulation))


def space_of(bench):
    """The candidates of a study on a bench, without what a study file limits."""
    names = [kind.name for kind in bench.costs.kinds]
    devices = bench.description.devices
    kinds = [names[n % len(names)] for n in range(len(devices))]
    return Space(bench.costs, bench.question, tuple(zip(kinds, devices, strict=True)))


def cores(count):
    return [f"cores:{number}" for number in range(count)]


def chain_bench(ops=20, stages=3, **simulation):
    net, costs = chain_of(ops, simulation.get("seed", 0))
    return bench_of(net, costs, cores(stages), **simulation)


def branchy_bench(blocks=3, branches=3, stages=3, **simulation):
    net, times = branchy(blocks, branches, simulation.get("seed", 0))
    return bench_of(net, costs_of(net, times), cores(stages), **simulation)


@pytest.fixture
def new_study(tmp_path):
    """Open a study over a bench in a database of the test's own; ``asked`` is of its file."""

    def open_it(bench, force=False, name="s", notify=silent, asked=None, **search):
        document = {"name": name, "model": "net.onnx", "stages": len(bench.description.devices)}
        config = StudyConfig.model_validate({**document, **(asked or {}), "search": search})
        url = storage_url("s", str(tmp_path / "s.db"))
        return open_study(config, bench, url, notify, force=force)

    return open_it


@pytest.fixture
def ran(new_study):
    def run(bench, **options):
        opened = new_study(bench, **options)
        run_study(opened)
        return opened

    return run


@pytest.fixture
def on_hardware(tmp_path, monkeypatch):
    """Run a study of what a file asks for on simulated hardware, which an export opens again."""

    def run(hardware=Hardware(contention=0.02), name="c", trials=5, **asked):  # noqa: B008
        monkeypatch.setattr(benches, "open_bench", hardware.bench)
        document = {"name": name, "model": "net.onnx", "search": {"trials": trials}}
        config = StudyConfig.model_validate(document | asked)
        url = storage_url("s", str(tmp_path / "s.db"))
        run_study(opened := open_study(config, benches.open_bench(config), url))
        return opened

    return run


def frozen(number, state, value=None, record=None):
    """A trial of Optuna as it is stored."""
    attributes, of_state = {RECORD: record or {}}, TrialState[state]
    trial = create_trial(state=of_state, value=value, user_attrs=attributes)
    trial.number = number
    return trial


def states(opened):
    return [trial.state.name for trial in opened.study.trials]


def keys(opened):
    """The candidates of the complete trials."""
    trials = [trial for trial in opened.study.trials if trial.state.name == "COMPLETE"]
    return [record_of(trial).key for trial in trials]


def stopped(opened):
    return str(opened.study.user_attrs[RESULT]["stopped"])


def verdict(opened):
    return opened.study.user_attrs[RESULT]["verdict"]


def loss(opened):
    """How far the true period of the best trial is above the true optimum, relative."""
    candidate = opened.space.candidate(read(opened.study).best().record.key)
    return opened.bench.truth(candidate).period / opened.bench.optimum().period - 1
