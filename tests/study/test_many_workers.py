from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from autosplit.errors import ConfigError, MachineError
from autosplit.study.loop.open import OpenStudy, open_study
from autosplit.study.loop.run import run_study
from autosplit.study.storage import connect, storage_url
from studies.simulation.bench import SimulatedBench
from tests.study import faults
from tests.study.server import Server, postgresql

pytestmark = pytest.mark.integration
Make = Callable[..., SimulatedBench]
Open = Callable[..., OpenStudy]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgresql() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return storage_url("w", str(tmp_path / "w.db"))
    return str(request.getfixturevalue("server").url)


def test_a_server_s_database_of_another_program_is_refused_and_left_as_it_is(
    server: Server,
) -> None:
    import sqlalchemy

    with server.database("other") as url:
        engine = sqlalchemy.create_engine(url)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE orders (x integer)"))
        with pytest.raises(ConfigError, match=r"other.* belongs to another program.*--storage"):
            connect(url)
        assert sqlalchemy.inspect(engine).get_table_names() == ["orders"]
        engine.dispose()


def test_four_workers_one_killed_one_stopped_for_longer_than_its_lease(url: str) -> None:
    shared = faults.shared(url, trials=60)
    assert shared.codes == (0, 0, 0), (shared.stopped_output, shared.other_outputs)
    assert "another worker finished it first; this result is dropped" in shared.stopped_output
    assert "its candidate is free again" in shared.other_outputs
    remains = shared.remains
    assert remains.numbers == tuple(range(len(remains.numbers)))
    assert (len(remains.keys), remains.measured_twice) == (60, 0)
    assert set(remains.states) == {"COMPLETE", "FAIL"}
    limit = "other workers started the last trials first"
    assert all("silent" in error or error == limit for error in remains.errors)


def test_a_server_that_is_restarted_under_four_workers_loses_no_trial(server: Server) -> None:
    with server.database("restarted") as url:

        def restart() -> None:
            server.stop()
            server.start()

        shared = faults.restarted(url, restart, trials=40)
    remains = shared.remains
    assert set(shared.codes) <= {0, 3}, shared.other_outputs
    assert shared.codes[-1] == 0, shared.other_outputs
    assert "Traceback" not in shared.other_outputs
    assert remains.numbers == tuple(range(len(remains.numbers)))
    assert (len(remains.keys), remains.measured_twice, remains.running) == (40, 0, 0)


def test_a_server_that_is_lost_is_one_line_and_the_study_goes_on_afterwards(
    server: Server, chain_bench: Make, new_study: Open
) -> None:
    bench = chain_bench()
    config = new_study(bench, trials=4, sampler="random").config
    opened = open_study(config, bench, server.url, name="lost")
    measure, measured = bench.measure, []

    def losing(stages: object) -> object:
        measured.append(stages)
        if len(measured) == 3:
            server.stop()
        return measure(stages)  # type: ignore[arg-type]

    bench.measure = losing  # type: ignore[method-assign, assignment]
    with pytest.raises(
        MachineError, match=r"storage 'postgresql\+psycopg://.*; repair it and run again"
    ):
        run_study(opened)
    server.start()
    run_study(open_study(config, bench, server.url, name="lost"))
    again = optuna.load_study(study_name="lost", storage=connect(server.url))
    assert [t.state.name for t in again.trials] == ["COMPLETE"] * 2 + [
        "RUNNING",
        "COMPLETE",
    ]  # the lease runs on
