"""The command line: one module per command, and ``main``, which runs one of them.

The module of a command has a docstring, which is its help, ``OPTIONS``, and ``run(args)``, which
returns an exit code or None for 0. ``AFTER_INTERRUPT``, if there is one, tells the user what an
interrupt leaves behind. A command combines parts of other packages and has no logic of its own.
``options`` holds options that several commands share, ``output`` everything that is printed. Other
packages are imported late, so that ``--help`` loads nothing heavy.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import textwrap
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
from autosplit.errors import AutosplitError, ConfigError, MachineError, nearest
from autosplit.hardware import native_log
from autosplit.versions import VERSION

_MODULES = (
    inspect, profile, split, extract, plan, run, show, report, export, verify, bench, serve, tune,
    dashboard, zoo, doctor,
)  # fmt: skip
COMMANDS = {module.__name__.rpartition(".")[2]: module for module in _MODULES}
# Options of earlier versions, and what replaces them.
FORMER_OPTIONS = {
    "--backend": "is now called --runtime",
    "--items-per-second": "is now called --rate",
    "--baselines": "is gone; `autosplit run` measures the baselines",
    "--count": "is gone; `autosplit inspect` counts the cuts",
    "--k-best": "is gone; autosplit.planner.k_best lists plans",
    "--max-period": "is gone; autosplit.planner.partition takes max_period",
    "--objective": "is gone, and so are plans of least latency, which nothing could run",
    "--pareto": "is gone; autosplit.planner.front lists plans",
    "--precision": "is gone, and so are the less exact kernels; leave it out",
}
INTERRUPTED = 130
EXPORTING = ("export", "split")  # commands whose --format is the format of the export


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code.

    0 done, 1 nothing feasible, 2 usage, model or config, 3 environment, 130 interrupted.
    """
    _open_closed_streams()
    args = argparse.Namespace(command=None, debug=False)
    try:
        return _run(args, argv)
    finally:
        output.erase_progress()
        output.drop_unwritten()


def _run(args: argparse.Namespace, argv: Sequence[str] | None) -> int:
    """Parse and run a command; every exception becomes a line and an exit code."""
    try:
        _parse(args, argv)
        command = COMMANDS[args.command]
        with contextlib.ExitStack() as stack:
            stack.enter_context(native_log.hidden(not args.debug, in_program=True))
            if args.progress or sys.stderr.isatty():
                stack.enter_context(phases.listening(output.PhaseLines()))
            code = int(command.run(args) or 0)
        # A closed pipe is noticed here rather than when Python exits.
        output.flush()
        return code
    except AutosplitError as error:
        return _report(error, error.exit_code, args.debug, str(error))
    except KeyboardInterrupt as error:
        text = f"interrupted{getattr(COMMANDS.get(args.command), 'AFTER_INTERRUPT', '')}"
        return _report(error, INTERRUPTED, args.debug, text)
    except BrokenPipeError:
        return 0
    except MemoryError as error:
        text = f"not enough memory: {str(error) or 'nothing left'}"
        return _report(error, MachineError.exit_code, args.debug, text)
    except Exception as error:
        message = " ".join(str(error).split())
        text = f"unexpected {type(error).__name__}: {message}; --debug shows where"
        return _report(error, MachineError.exit_code, args.debug, text)


def _parse(args: argparse.Namespace, argv: Sequence[str] | None) -> None:
    """Parse the arguments into ``args``; without any arguments, print the help."""
    parser = _parser()
    _, unknown = parser.parse_known_args(argv, args)
    if args.command is None and not unknown:
        parser.parse_args(["--help"])
    if unknown:
        (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = commands.choices.get(str(args.command), parser)
        option = unknown[0].partition("=")[0]
        if option in parser._option_string_actions:
            parser.error(f"{option!r} stands before the command; write it after")
        if option in FORMER_OPTIONS:
            parser.error(f"{option!r} {FORMER_OPTIONS[option]}")
        remedy = nearest(option, parser._option_string_actions)
        parser.error(f"unknown argument {unknown[0]!r}{remedy.removesuffix('?')}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error as one line, worded like other messages, and exit."""
        message = message.replace("the following arguments are required:", "missing")
        if unknown := re.match(r"argument COMMAND: invalid choice: (['\"])(.*)\1 \(", message):
            commands = f"; commands are {', '.join(COMMANDS)}"
            remedy = nearest(unknown[2], COMMANDS).removesuffix("?") or commands
            message = f"unknown command '{unknown[2]}'{remedy}"
        output.note(f"{self.prog}: {message}; see `{self.prog} --help`")
        raise SystemExit(ConfigError.exit_code)

    def _print_message(self, message: str, file: object = None) -> None:
        """Print help or version like any result: argparse would ignore a full disk."""
        output.write(message)
        output.flush()


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of examples, and fills paragraphs to the width of the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = []
        for part in text.strip().split("\n\n"):
            is_example = part.startswith(("  ", "autosplit "))
            parts.append(part if is_example else textwrap.fill(part, width))
        return "\n\n".join(parts)


def _open_closed_streams() -> None:
    """Open the null device for a stream that the parent closed; escape what encodings lack."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    with contextlib.suppress(AttributeError):  # an encoding may lack what a table has
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _parser() -> argparse.ArgumentParser:
    summary = (autosplit.__doc__ or "").splitlines()[0]
    parser = _Parser(prog="autosplit", description=summary)
    parser.add_argument("--version", action="version", version=f"autosplit {VERSION}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, module in COMMANDS.items():
        line = (module.__doc__ or "").partition(".\n")[0]
        line = line[:1].lower() + line[1:]
        # The formatter keeps the lines of the examples in a command's docstring.
        command = commands.add_parser(
            name, help=line, description=module.__doc__, formatter_class=_HelpFormatter
        )
        for names, settings in module.OPTIONS:
            command.add_argument(*names, **settings)
        _add_common(command, name)
        # The usage line leaves out the options, since a command may have twenty.
        places = [a.metavar for a in command._actions if not a.option_strings]
        command.usage = " ".join(["%(prog)s", "[options]", *map(str, places)])
    return parser


def _add_common(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the options of every command; if it exports, --format is the format of the export."""
    common = parser.add_argument_group("options of every command")
    flags = ("-f",) if command in EXPORTING else ("-f", "--format")
    choices = ("table", "csv", "json")
    common.add_argument(
        *flags, dest="format", choices=choices, default="table", help="how to print the result"
    )
    common.add_argument("--progress", action="store_true", help="show progress even off a terminal")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _report(error: BaseException, code: int, debug: bool, text: str) -> int:
    if debug:
        for part in traceback.format_exception(error):
            for line in part.splitlines():
                output.note(line)
    else:
        output.note(f"autosplit: {text}")
    return code
