"""The references say what the code says: keys, types, defaults; a difference names the row that is
wrong.
"""

import json
import re

import jsonschema
import pytest

from autosplit.deploy import manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.study.config.study_file import StudyConfig, load
from studies.tools import reference
from tests.docs.pages import DOCS, Page, table
from tests.docs.schema_rows import parts

# What reading a study file fills in.
LOADED = {"name": "name of the file", "stages": "one per device"}
# Keys whose default a page may tell in words.
TOLD = {"devices", "target", "storage", "search", "measure"}

PARTS = {name.lower(): name for name in ("Search", "Measure", "Limits", "Regions", "Workload")}
PARTS["states"] = "StatePair"
PAGES = {"study-file.md": StudyConfig.model_json_schema(), "split-json.md": manifest.schema()}


def read(name):
    file = DOCS / "reference" / name
    return Page(file, file.read_text(encoding="utf-8"))


def described(page):
    """By part of the schema the rows of its table."""
    heading = "## The document" if "## The document" in page.text else "## The sections"
    objects = {}
    for name, *row in table(page.text, heading):
        objects.setdefault(PARTS.get(name, name), []).append(tuple(row))
    if "whole" not in objects:
        objects["whole"] = table(page.text, "## The study")
    return objects


@pytest.mark.parametrize("name", PAGES)
def test_every_key_is_there_with_its_type_and_default(name):
    rows = described(read(name))
    expected = parts(PAGES[name])
    assert set(rows) == set(expected)
    for part, keys in expected.items():
        documented = {
            row[0]: (re.sub(r"\[(\w+)\]\(#[^)]*\)", r"\1", row[1]), row[2]) for row in rows[part]
        }
        for key, kind, default in keys:
            kind = re.sub(r"\[(\w+)\]", r"\1", kind)
            bare = key.strip("`")
            assert key in documented, f"{name}: {part} lacks | {key} | {kind} | {default} | … |"
            of_page = documented[key][0]
            assert not kind or of_page == kind, f"{name}: {key} of {part} is of type {kind}"
            is_filled = part == "whole" and name == "study-file.md"
            shown = LOADED.get(bare, default) if is_filled else default
            assert documented[key][1] == shown or (shown == "none" and bare in TOLD), (
                f"{name}: {key} of {part}: {shown}"
            )
        unknown = set(documented) - {key for key, _, _ in keys}
        assert not unknown, f"{name}: {part} has keys that are none"


def test_the_example_of_split_json_is_one():
    blocks = read("split-json.md").blocks()
    (example,) = [json.loads(block.text) for block in blocks if block.language == "json"]
    jsonschema.validate(example, manifest.schema())
    assert len(wired(manifest.Manifest.model_validate(example)).stages) == 2


def test_the_study_files_on_the_page_are_valid(tmp_path):
    blocks = [b for b in read("study-file.md").blocks() if b.language == "toml"]
    assert len(blocks) == 2
    for block in blocks:
        file = tmp_path / block.marks["file"]
        file.write_text(block.text, encoding="utf-8")
        assert load(file).stages == 2


def test_the_commands_are_those_of_the_command_line():
    page = read("command-line.md").text
    assert page == reference.command_line(), "run python -m studies.tools.reference"


def test_public_signatures_change_on_purpose():
    """What changes here is a change of the public API: say it in CHANGELOG.md."""
    assert reference.SIGNATURES.read_text() == reference.signatures(), (
        "run python -m studies.tools.reference, and see CONTRIBUTING.md"
    )
