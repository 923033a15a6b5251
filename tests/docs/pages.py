"""The pages under docs/ as what a reader does with them: files to save, commands to run, in order.

A line ``<!-- … -->`` before a block says what the test does with it; more than one may stand there:

- ``file: NAME``: the block is saved under that name instead of run.
- ``prints``: the block before printed these lines, with other numbers and runtimes.
- ``serves``: the block ends with a server; the test reads the page at the address it prints, then
  interrupts it.
- ``exit: N``: the block ends with that exit code.
- ``not run: WHY``: the block is shown only.
- ``slow``: only the slow tests run it; at the top of a page, about all of it.
- ``needs: THING`` at the top of a page: what the test starts for it, or skips it for the lack of.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OTHER_PAGES = (*sorted(ROOT.glob("*.md")), ROOT / "studies" / "README.md")
RUN = ("sh", "python")
_BLOCK = re.compile(r"((?:^<!--[^\n]*-->\n+)*)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!--\s*([\w ]+?)(?::\s*(.*?))?\s*-->")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and what the comments before it say."""

    language: str
    text: str
    marks: Mapping[str, str]

    @property
    def runs(self):
        return self.language in RUN and not {"file", "not run"} & self.marks.keys()


@dataclass(frozen=True)
class Page:
    """A page by its path; ``marks`` are about all of it."""

    path: Path
    text: str

    @property
    def marks(self):
        """What the comments above the title say."""
        return marks(self.text.partition("\n# ")[0]) if not self.text.startswith("# ") else {}

    def blocks(self):
        for comments, language, text in _BLOCK.findall(self.text):
            yield Block(language, text, marks(comments))

    def links(self):
        """Where its links lead, those to the web left out."""
        bare = re.sub(r"```.*?```", "", self.text, flags=re.DOTALL)
        yield from (t for t in re.findall(r"\]\(([^)\s]+)\)", bare) if "://" not in t)


def pages():
    return list(map(page_of, sorted(DOCS.rglob("*.md"))))


def linked_pages():
    """The pages whose links are checked: those under docs/ and the others of the project."""
    return [*pages(), *map(page_of, OTHER_PAGES)]


def page_of(file):
    return Page(file, file.read_text(encoding="utf-8"))


def marks(comments):
    """Comments as a mapping: what stands before the colon to what stands after it."""
    return {name: value or "" for name, value in _MARK.findall(comments)}


def anchor_of(heading):
    """What a link to a heading has after '#': lower case, spaces as hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def table(text, heading):
    """The cells of the first table below a heading, without its head."""
    below = text.partition(f"\n{heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n?)+", below, re.MULTILINE)
    rows = [line.strip().strip("|") for line in lines.group().splitlines()] if lines else []
    cells = [re.split(r"(?<!\\)\|", row) for row in rows[2:]]
    return [tuple(cell.replace("\\|", "|").strip() for cell in row) for row in cells]
