import optuna
import pytest

from autosplit.errors import ConfigError, MachineError
from autosplit.study.loop.open import open_study
from autosplit.study.loop.run import run_study
from autosplit.study.storage import connect, storage_url
from tests.study import faults
from tests.study.server import postgresql

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server():
    with postgresql() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return storage_url("w", str(tmp_path / "w.db"))
    return str(request.getfixturevalue("server").url)


def test_a_server_s_database_of_another_program_is_refused_and_left_as_it_is(server):
    import sqlalchemy

    with server.database("other") as url:
        engine = sqlalchemy.create_engine(url)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE orders (x integer)"))
        with pytest.raises(ConfigError, match=r"other.* belongs to another program.*--storage"):
            connect(url)
        assert sqlalchemy.inspect(engine).get_table_names() == ["orders"]
        engine.dispose()


def test_four_workers_one_killed_one_stopped_for_longer_than_its_lease(url):
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


def test_a_server_that_is_restarted_under_four_workers_loses_no_trial(server):
    with server.database("restarted") as url:

        def restart():
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
    server, chain_bench, new_study
):
    bench = chain_bench()
    config = new_study(bench, trials=4, sampler="random").config
    opened = open_study(config, bench, server.url, name="lost")
    measure, measured = bench.measure, []

    def losing(stages):
        measured.append(stages)
        if len(measured) == 3:
            server.stop()
        return measure(stages)

    bench.measure = losing
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
