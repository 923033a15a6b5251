from pathlib import Path

import pytest

from tests.study import faults


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_change_nothing(tmp_path: Path) -> None:
    result = faults.killed(tmp_path, kills=20, trials=40)
    assert result.lost == 0
    assert set(result.remains.states) == {
        "COMPLETE"
    }  # a killed trial is adopted, none is left running
    assert (len(result.remains.keys), result.remains.measured_twice) == (40, 0)
    assert result.remains.deaths <= result.kills
    assert result.remains.best is not None
    assert result.same_end
