"""Fixtures of all tests: a cache of their own, and small nets, loaded and compiled once."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sqlalchemy
from alembic.script import ScriptDirectory
from hypothesis.internal.conjecture import providers

# For a small product, a second thread of numpy would spin on the core of another process.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from autosplit import versions
from autosplit.deploy import verify
from autosplit.errors import MachineError
from autosplit.hardware import compiled_model
from autosplit.hardware.measurement import disturbance
from autosplit.hardware.runtimes import registry

# Most tests do not depend on the runtime, and with a single one they need a single profile. Tests
# of runtime "auto" ask for it.
registry.DEFAULT = registry.TVM
VERIFY_APART = verify.verify_apart

# Processes that tests start find the simulated hardware in `studies`, whatever their folder is.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
).rstrip(os.pathsep)
os.environ["COLUMNS"] = "200"  # most tests are about what a table says, not about its width

REUSED = "AUTOSPLIT_TEST_CACHE"  # a folder to keep kernels in from run to run
COMPILER = Path(__file__).parent / "deploy" / "targets" / "compile_once.py"

# HYPOTHESIS_PROFILE=ci, as in .ci/run, tries more examples. No limit of time: compiling takes as
# long as it takes, and a busy or paused machine is no failure.
PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": list(hypothesis.HealthCheck)}
hypothesis.settings.register_profile("dev", max_examples=10, **PATIENT)
hypothesis.settings.register_profile("ci", max_examples=50, **PATIENT)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
hypothesis.settings.load_profile(PROFILE)
if PROFILE == "dev":
    # Hypothesis would parse all our modules for constants, which takes longer than most tests.
    providers._get_local_constants = lambda: providers._local_constants


@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def _do_not_wait_for_the_disk(connection: Any, _: object) -> None:
    """Turn off fsync, which commits mostly wait for: tests' studies need not survive a power cut.

    Processes may still be killed: what they wrote is in the cache of the operating system.
    """
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    """Skip tests that need a compiler if none is installed."""
    try:
        return (yield)
    except MachineError as error:
        if str(error).startswith("no compiler driver"):
            pytest.skip(str(error))
        raise


pytest_runtest_call = pytest_runtest_setup


@pytest.fixture(scope="session", autouse=True)
def _one_load_of_migrations():
    """Load Optuna's migrations once; Optuna would do so again for each database it opens."""
    load, loaded = ScriptDirectory.from_config, {}

    def load_once(config):
        place = config.get_main_option("script_location")
        if place not in loaded:
            loaded[place] = load(config)
        return loaded[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", load_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory):
    """Compile kernels and C++ once per run, or once for many runs with AUTOSPLIT_TEST_CACHE.

    The processes of pytest-xdist share one folder; the user's cache is left alone.
    """
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent
    folder = Path(os.environ.get(REUSED) or run / "cache")
    folder.mkdir(parents=True, exist_ok=True)
    launcher = f"{sys.executable};{COMPILER};{folder / 'c++'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOSPLIT_CACHE", str(folder))
        patch.setenv("CMAKE_CXX_COMPILER_LAUNCHER", launcher)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting():
    """Do not wait for a calm machine, since tests disturb each other, and time ops only briefly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disturbance, "wait_until_calm", lambda limit: limit)
        patch.setattr(compiled_model, "PROFILE_S", 0.1)
        # Starting a process takes longer than the comparison.
        patch.setattr(verify, "verify_apart", verify.verify)
        yield


@pytest.fixture(scope="module")
def database_server():
    """A running PostgreSQL server."""
    from tests.study.server import postgresql

    with postgresql() as running:
        yield running


@pytest.fixture(scope="session")
def zoo_model():
    """A net of the zoo by name, loaded once a run."""
    loaded = {}

    def load(name):
        from autosplit import api
        from autosplit.zoo import catalog

        if name not in loaded:
            loaded[name] = api.load_model(catalog.cached(name))
        return loaded[name]

    return load


@pytest.fixture(scope="session")
def branches(zoo_model):
    return zoo_model("branches")


@pytest.fixture(scope="session")
def transformer(zoo_model):
    return zoo_model("transformer")


@pytest.fixture(scope="session")
def squeezenet(zoo_model):
    return zoo_model("squeezenet")


@pytest.fixture
def save(tmp_path):
    """Write a ModelProto into the test's folder; returns its path."""

    def write(model, name="net.onnx"):
        path = tmp_path / name
        path.write_bytes(model.SerializeToString())
        return path

    return write


@pytest.fixture
def as_text(capsys):
    """Run a command that must succeed; returns what it prints."""

    def run(*arguments):
        from autosplit.cli import main

        capsys.readouterr()
        assert main(list(map(str, arguments))) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def as_json(as_text):
    """Run a command that must succeed; returns the document that it prints with ``-f json``."""
    return lambda *arguments: json.loads(as_text(*arguments, "-f", "json"))


@pytest.fixture
def said(capfd):
    """Run a command that must fail in one line and print nothing.

    Returns its exit code and the line.
    """

    def run(*arguments):
        from autosplit.cli import main

        capfd.readouterr()  # what TVM logs when it frees what an earlier test left
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as ended:  # of argparse
            code = ended.code
        printed = capfd.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert "Traceback" not in printed.err
        return code, printed.err.removeprefix("autosplit: ").strip()

    return run


@pytest.fixture
def pretend(monkeypatch):
    """Pretend that a package has another version, or none."""
    real = versions.installed

    def install(**packages):
        by_name = {name.replace("_", "-"): version for name, version in packages.items()}
        monkeypatch.setattr(
            versions, "installed", lambda name: by_name[name] if name in by_name else real(name)
        )

    return install


@pytest.fixture
def apart(monkeypatch):
    """Let the command ``verify`` start a process, as it does for users."""
    monkeypatch.setattr(verify, "verify_apart", VERIFY_APART)


@pytest.fixture(scope="session")
def exported(branches, tmp_path_factory):
    """Branches in three stages, exported once; a test that changes files uses ``export``."""
    folder = tmp_path_factory.mktemp("exports") / "branches"
    branches.split([["first"], ["hinted"]]).export(folder)
    return folder


@pytest.fixture
def export(exported, tmp_path):
    """A copy of the exported folder, to change."""
    from tests.deploy.exports import Export

    return Export(Path(shutil.copytree(exported, tmp_path / "export")))


# A suite started in the background inherits an ignored SIGINT, and so would the commands that tests
# interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """Exclude modules and tests from all further garbage collections."""
    gc.freeze()
