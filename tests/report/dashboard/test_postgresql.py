"""The dashboard over a study in PostgreSQL: shown as from a file, and never written to."""

import pytest

from autosplit.errors import MachineError
from autosplit.report.dashboard import app
from autosplit.report.documents.study_reader import find_study
from tests.report import graphs
from tests.report.serving import dashboard
from tests.report.studies import make_study

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def reader(database_server):
    make_study(database_server.url, graphs.fire_net())
    return find_study("fire", database_server.url)


def test_the_database_itself_refuses_to_be_written_through_a_reader(reader):
    refused = pytest.raises(Exception, match=r"read-only|exception is raised during the commit")
    with refused, reader.open() as study:
        study.set_user_attr("mine", 1)
    with reader.open() as study:
        assert "mine" not in study.user_attrs


def test_a_server_that_stops_leaves_what_was_read(reader, database_server, monkeypatch, capsys):
    monkeypatch.setattr(app, "REFRESH", 0.0)
    with dashboard(reader) as client:
        database_server.stop()
        try:
            assert len(client.study()["trials"]) == 12
            assert "showing what was read before: storage 'post" in capsys.readouterr().err
            with pytest.raises(MachineError, match=r"cannot be read: .*; repair it"):
                app.open_server(reader, port=0)
        finally:
            database_server.start()
