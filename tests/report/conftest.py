"""A finished study in a SQLite file, its dashboard and a browser, each made once."""

import shutil
from pathlib import Path

import pytest

from autosplit.report.documents.record import read
from autosplit.report.documents.study_reader import StudyReader, find_study
from tests.report import graphs
from tests.report.browser import browsing
from tests.report.serving import dashboard
from tests.report.studies import make_study


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The file of the study ``fire``: 12 trials, the sixth failed. A test must not change it."""
    make_study(file := tmp_path_factory.mktemp("finished") / "fire.db", graphs.fire_net())
    return file


@pytest.fixture
def database(tmp_path, finished):
    """A copy of the finished study, to change."""
    return Path(shutil.copy(finished, tmp_path))


@pytest.fixture(scope="session")
def study(finished):
    """The record of the finished study."""
    with StudyReader(f"sqlite:///{finished}", "fire").open() as stored:
        return read(stored)


@pytest.fixture(scope="session")
def served(finished):
    """The read-only dashboard of the finished study."""
    with dashboard(find_study(str(finished))) as client:
        yield client


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("browser")) as session:
        yield session


@pytest.fixture
def browser(chromium):
    """The browser on a desk, with empty logs."""
    chromium.open("about:blank")
    chromium.view(1400)
    chromium.errors()
    chromium.requested()
    return chromium
