"""Check what this machine has: versions that fit together, a linker, cores, the cache, optional packages.

Exit code 3 where something that is needed is missing or wrong; the line says what to do.
"""

from __future__ import annotations

import argparse

from autosplit.cli import output

HELP = "check versions, linker, cores and cache"


def configure(parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print one line a check."""
    from autosplit.report.doctor import examine

    checks = examine()
    if args.format == "json":
        output.emit_json(
            {
                "ok": all(c.ok for c in checks if c.needed),
                "checks": [
                    {
                        "name": c.name,
                        "ok": c.ok,
                        "needed": c.needed,
                        "found": c.found,
                        "remedy": c.remedy,
                    }
                    for c in checks
                ],
            }
        )
    else:
        rows = [
            ("ok" if c.ok else "MISSING" if c.needed else "absent", c.name, c.found, c.remedy)
            for c in checks
        ]
        output.emit_table("", ("", "what", "found", "what to do"), rows)
    return 0 if all(c.ok for c in checks if c.needed) else 3
