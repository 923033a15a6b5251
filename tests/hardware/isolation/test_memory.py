import subprocess
import sys

import pytest

SCRIPT = """
from pathlib import Path
from autosplit.hardware.memory import give_back
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
blocks = [bytearray(50_000) for _ in range(2_000)]  # 100 MB in pieces that malloc takes from its heap
kept = bytearray(50_000)  # above them, so that the heap cannot shrink by itself
del blocks
before = resident()
give_back()
print(before - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_what_was_freed_is_given_back() -> None:
    freed = int(
        subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True).stdout
    )
    if not hasattr(__import__("ctypes").CDLL(None), "malloc_trim"):
        pytest.skip("this C library has no malloc_trim")
    assert freed > 50_000_000
