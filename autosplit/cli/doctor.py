"""Check this machine: package versions, linker, cores, cache, optional packages.

The exit code is 3 if something required is missing or wrong; its line says what to do.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from autosplit.cli import output
from autosplit.errors import MachineError

HELP = "check versions, linker, cores and cache"


def configure(parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print one line a check."""
    from autosplit.report.doctor import examine

    checks = examine()
    ok = all(check.ok for check in checks if check.needed)
    if args.format == "json":
        output.emit_json({"ok": ok, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            failed = "MISSING" if check.needed else "absent"
            state = "ok" if check.ok else failed
            # No table: the few remedies are long, and would make it wider than a terminal.
            remedy = f"; {check.remedy}" if check.remedy else ""
            output.emit_line(f"{state:7} {check.name:16} {check.value}{remedy}")
    return 0 if ok else MachineError.exit_code
