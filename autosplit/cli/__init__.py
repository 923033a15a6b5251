"""The command line: one file a command, no logic. A command module has ``HELP``, ``configure(parser)`` and ``run(args)``, and
``AFTER_INTERRUPT`` where its user should know what an interrupt leaves behind.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import autosplit
from autosplit.cli import output
from autosplit.errors import AutosplitError, MachineError
from autosplit.printable import printable
from autosplit.versions import VERSION

COMMANDS = (
    "inspect",
    "profile",
    "split",
    "extract",
    "plan",
    "run",
    "show",
    "report",
    "export",
    "verify",
    "bench",
    "tune",
    "dashboard",
    "zoo",
    "doctor",
)
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (0, 1 nothing feasible, 2 usage, 3 environment, 130 interrupted)."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by whoever started the program
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  for the whole run
    args = _parser().parse_args(argv)
    try:
        code = int(args.run(args) or 0)
        sys.stdout.flush()  # a reader that has left is noticed here, not when Python ends
        return code
    except AutosplitError as error:
        return _report(error, error.exit_code, args.debug)
    except KeyboardInterrupt as error:
        return _report(error, INTERRUPTED, args.debug, f"interrupted{args.after_interrupt}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        return _report(
            error,
            MachineError.exit_code,
            args.debug,
            f"not enough memory: {str(error) or 'nothing left'}",
        )
    except Exception as error:
        text = f"unexpected {type(error).__name__}: {' '.join(str(error).split())}; --debug shows where"
        return _report(error, MachineError.exit_code, args.debug, text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="autosplit", description=(autosplit.__doc__ or "").splitlines()[0])
    parser.add_argument("--version", action="version", version=f"autosplit {VERSION}")
    common = _Parser(add_help=False)
    common.add_argument(
        "-f", "--format", choices=("table", "json"), default="table", help="how to print the result"
    )
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"autosplit.cli.{name}")
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            parents=[common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(command)
        command.set_defaults(run=module.run, after_interrupt=getattr(module, "AFTER_INTERRUPT", ""))
    return parser


def _report(error: BaseException, code: int, debug: bool, text: str | None = None) -> int:
    if debug:
        for lines in traceback.format_exception(error):
            for line in lines.splitlines():
                output.note(line)
    else:
        output.note(f"autosplit: {text or error}")
    return code
