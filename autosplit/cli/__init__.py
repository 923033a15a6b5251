"""The command line: one file a command, and ``main``, which runs one of them.

A command has ``HELP``, ``configure(parser)``, ``run(args)`` and, where its user should know what an
interrupt leaves behind, ``AFTER_INTERRUPT``. It puts parts together and holds no logic of its own.
``options`` holds what several commands read, ``output`` everything they print. Commands import
every other package, late: ``--help`` loads nothing heavy.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import autosplit
from autosplit import phases
from autosplit.cli import (
    bench,
    dashboard,
    doctor,
    export,
    extract,
    inspect,
    output,
    plan,
    profile,
    report,
    run,
    serve,
    show,
    split,
    tune,
    verify,
    zoo,
)
from autosplit.errors import AutosplitError, ConfigError, MachineError
from autosplit.hardware import native_log
from autosplit.versions import VERSION

_MODULES = (
    inspect, profile, split, extract, plan, run, show, report, export, verify, bench, serve,
    tune, dashboard, zoo, doctor,
)  # fmt: skip
COMMANDS = {module.__name__.rpartition(".")[2]: module for module in _MODULES}
INTERRUPTED = 130
EXPORTING = ("export", "split")  # their --format is that of the export
AFTER_INTERRUPT = {"run": run.AFTER_INTERRUPT, "tune": tune.AFTER_INTERRUPT}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code.

    0 done, 1 nothing feasible, 2 usage, model or config, 3 environment, 130 interrupted.
    """
    _open_closed_streams()
    args = _parser().parse_args(argv)
    shows_progress = args.progress or sys.stderr.isatty()
    with contextlib.ExitStack() as stack:
        stack.enter_context(native_log.hidden(not args.debug, in_program=True))
        if shows_progress:
            stack.enter_context(phases.listening(output.PhaseLines()))
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    """Run a parsed command; every exception becomes a line and an exit code."""
    try:
        code = int(COMMANDS[args.command].run(args) or 0)
        # A reader that has left is noticed here, not when Python ends.
        output.flush()
        return code
    except AutosplitError as error:
        return _report(error, error.exit_code, args.debug, str(error))
    except KeyboardInterrupt as error:
        text = f"interrupted{AFTER_INTERRUPT.get(args.command, '')}"
        return _report(error, INTERRUPTED, args.debug, text)
    # The interpreter flushes standard output once more at its end; devnull takes that.
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        text = f"not enough memory: {str(error) or 'nothing left'}"
        return _report(error, MachineError.exit_code, args.debug, text)
    except Exception as error:
        message = " ".join(str(error).split())
        text = f"unexpected {type(error).__name__}: {message}; --debug shows where"
        return _report(error, MachineError.exit_code, args.debug, text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line: the usage of a command with many options fills a screen."""
        output.note(f"{self.prog}: {message}; see `{self.prog} --help`")
        raise SystemExit(ConfigError.exit_code)


def _open_closed_streams() -> None:
    """Whoever started the program may have closed its output; what is printed then goes nowhere."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _parser() -> argparse.ArgumentParser:
    summary = (autosplit.__doc__ or "").splitlines()[0]
    parser = _Parser(prog="autosplit", description=summary)
    parser.add_argument("--version", action="version", version=f"autosplit {VERSION}")
    commands = parser.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    for name, module in COMMANDS.items():
        # Raw, since the examples in a command's docstring are lines of their own.
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            parents=[_common(name)],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(command)
    return parser


def _common(command: str) -> _Parser:
    """The options of every command; where something is exported, --format is that of the export."""
    common = _Parser(add_help=False)
    flags = ("-f",) if command in EXPORTING else ("-f", "--format")
    choices = ("table", "json")
    common.add_argument(
        *flags, dest="format", choices=choices, default="table", help="how to print the result"
    )
    common.add_argument("--progress", action="store_true", help="show progress even off a terminal")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return common


def _report(error: BaseException, code: int, debug: bool, text: str) -> int:
    if debug:
        for part in traceback.format_exception(error):
            for line in part.splitlines():
                output.note(line)
    else:
        output.note(f"autosplit: {text}")
    return code
