"""Work on the cores that it is timed for."""

import os

import pytest

from autosplit.errors import MachineError
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.profiling.timing import on_cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no threads")
def test_a_core_that_is_gone_is_named():
    with pytest.raises(MachineError, match="device 'cores:4000' is not there any more"):
        on_cores(Cores((4000,)), lambda: None)
