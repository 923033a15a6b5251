from pathlib import Path

import pytest

from tests.study import faults


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_change_nothing(tmp_path: Path) -> None:
    found = faults.killed(tmp_path, kills=20, trials=40)
    assert found.lost == 0
    assert set(found.remains.states) == {
        "COMPLETE"
    }  # a killed trial is adopted, none is left running
    assert (len(found.remains.keys), found.remains.measured_twice) == (40, 0)
    assert found.remains.deaths <= found.kills
    assert found.remains.best is not None
    assert found.same_end
