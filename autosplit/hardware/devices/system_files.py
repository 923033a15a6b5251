"""Reading the small files by which Linux describes the machine and its processes.

psutil is not used, since a machine that only runs exports does not have it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")  # per second


class ProcessUsage(NamedTuple):
    """A running process: its parent, and its processor time with that of its ended children."""

    parent: int
    seconds: float


def system_text(file: Path) -> str:
    """The stripped content of a file below /proc or /sys; empty where it cannot be read."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def processes() -> dict[int, ProcessUsage]:
    """The processes that can be seen from here, by their identifiers."""
    usages = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        # The name, in parentheses, may contain anything; proc(5) numbers the fields.
        fields = system_text(file).rpartition(")")[2].split()
        if fields:  # else it has just ended
            seconds = sum(map(int, fields[11:15])) / _TICKS
            usages[int(file.parent.name)] = ProcessUsage(int(fields[1]), seconds)
    return usages


def is_server(process: int) -> bool:
    """Whether a process, with its children, serves stages: of TVM RPC, or of a Ray node."""
    command, *arguments = system_text(Path(f"/proc/{process}/cmdline")).split("\0")
    return command.endswith(("/raylet", "/tvm_rpc")) or "tvm.exec.rpc_server" in arguments


def cpu_seconds() -> list[float]:
    """Seconds of all cores: user, nice, system, idle, iowait, irq, softirq and, if known, steal."""
    line = system_text(Path("/proc/stat")).partition("\n")[0]
    # The fields after these, the time of guests, are already included in user and nice.
    return [int(ticks) / _TICKS for ticks in line.split()[1:9]]
