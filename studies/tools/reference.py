"""Write the page of the command line, the public signatures and the schema of split.json:

python -m studies.tools.reference
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import autosplit
from autosplit import cli, deployment, errors, graph, planner
from autosplit.deploy import manifest

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "reference" / "command-line.md"
SIGNATURES = ROOT / "tests" / "docs" / "signatures.txt"
PUBLIC_MODULES = (autosplit, planner, graph, deployment, errors)
HEAD = """\
# The command line

Made from the commands themselves by `python -m studies.tools.reference`.

Results go to standard output, progress and messages to standard error. Exit codes: 0 success; 1 it
ran, but nothing was feasible or outputs differ; 2 usage, model or configuration; 3 environment
(package, disk, storage, device); 130 interrupted.

Every command takes `-f json` for one JSON document in place of tables, `--debug` for the traceback
of an error, `--progress` for progress even where standard error is no terminal, and `--help`.
"""
COMMON = {"--help", "-f", "--debug", "--progress"}
TICK = "`"
SHARED = 3  # an argument of at least this many commands is listed once, above all of them


def main() -> None:
    FILE.write_text(command_line(), encoding="utf-8")
    SIGNATURES.write_text(signatures(), encoding="utf-8")
    schema = json.dumps(manifest.schema(), indent=1) + "\n"
    Path(manifest.__file__).with_name("split.schema.json").write_text(schema, encoding="utf-8")


def signatures() -> str:
    """A line for each public name of Python and each public method: its parameters and result."""
    lines: list[str] = []
    for module in PUBLIC_MODULES:
        for name in sorted(module.__all__):
            lines += signature_lines(f"{module.__name__}.{name}", getattr(module, name))
    return "\n".join(lines) + "\n"


def signature_lines(name: str, value: Any) -> Iterator[str]:
    """The line of a name, and for a class those of its own public methods and properties."""
    if not inspect.isclass(value):
        yield f"{name}{inspect.signature(value)}" if callable(value) else name
        return
    yield f"{name}{inspect.signature(value)}" if dataclasses.is_dataclass(value) else name
    for member, attribute in vars(value).items():
        method = getattr(attribute, "__func__", attribute)
        if inspect.isfunction(method) and not member.startswith("_"):
            yield f"{name}.{member}{inspect.signature(method)}"
        elif isinstance(attribute, property | cached_property):
            yield f"{name}.{member}"


def command_line() -> str:
    """The whole page."""
    (commands,) = (a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction))
    rows = {name: list(arguments(parser)) for name, parser in commands.choices.items()}
    shared = [row for row, count in Counter(chain(*rows.values())).items() if count >= SHARED]
    parts = [HEAD, f"## Options of several commands\n\n{items(shared)}\n"]
    for name, parser in commands.choices.items():
        description = inspect.cleandoc(parser.description or "")
        names = [f"`{row[0].split()[0].strip(TICK)}`" for row in rows[name] if row in shared]
        others = [row for row in rows[name] if row not in shared]
        others += [(", ".join(names), "see above")] if names else []
        listed = f"\n{items(others)}\n" if others else ""
        parts.append(f"## {name}\n\n```text\n{description}\n```\n{listed}")
    return "\n".join(parts)


def items(rows: Sequence[tuple[str, str]]) -> str:
    """Arguments with their meanings."""
    return "\n".join(f"- {shown}: {meaning}" for shown, meaning in rows)


def arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Each argument as it is written, and what it means."""
    for action in parser._actions:
        if COMMON & set(action.option_strings) or action.help == argparse.SUPPRESS:
            continue
        value = "" if action.nargs == 0 else shown_value(action)
        names = action.option_strings or [value]
        spelled = ", ".join(
            f"`{n} {value}`" if action.option_strings and value else f"`{n}`" for n in names
        )
        needed = " (required)" if action.required and action.option_strings else ""
        yield spelled, (action.help or "").replace("%%", "%") + needed


def shown_value(action: argparse.Action) -> str:
    if action.choices:
        return "{" + ",".join(map(str, action.choices)) + "}"
    metavar = action.metavar or action.dest.upper()
    return metavar if isinstance(metavar, str) else " ".join(metavar)


if __name__ == "__main__":
    main()
