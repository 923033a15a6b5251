"""Check this machine: package versions, linker, cores, cache, optional packages.

The exit code is 3 if something required is missing or wrong; its line says what to do.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from autosplit.cli import options, output
from autosplit.errors import MachineError

OPTIONS: tuple[options.Option, ...] = ()


def run(args: argparse.Namespace) -> int:
    """Print one line per check."""
    from autosplit.report.doctor import examine

    checks = examine()
    ok = all(check.ok for check in checks if check.needed)
    document = {"ok": ok, "checks": [asdict(check) for check in checks]}
    output.emit(args.format, document, map(str, checks))
    return 0 if ok else MachineError.exit_code
