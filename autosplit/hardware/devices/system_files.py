"""Reading the small files by which Linux describes the machine and its processes."""

from __future__ import annotations

from pathlib import Path


def system_text(file: Path) -> str:
    """The stripped content of a file below /proc or /sys; empty where it cannot be read."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
