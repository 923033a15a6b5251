"""The references say what the code says: keys, types, defaults; a difference names the row."""

import json
import re

import jsonschema
import pytest

from autosplit.deploy import manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.study.config.study_file import StudyConfig, load
from studies.tools import reference
from tests.docs.pages import DOCS, Page, table

# What reading a study file fills in.
LOADED = {"name": "name of the file", "stages": "one per device"}
# Keys whose default a page may tell in words.
TOLD = {"devices", "target", "storage", "search", "measure"}

PARTS = {name.lower(): name for name in ("Search", "Measure", "Limits", "Regions", "Workload")}
PARTS["states"] = "StatePair"
PAGES = {"study-file.md": StudyConfig.model_json_schema(), "split-json.md": manifest.schema()}


def parts(schema):
    """By part, the whole first: (key, type, default) of each key; a key without which nothing works
    is ``required``.
    """
    every = {"whole": schema, **schema.get("$defs", {})}
    return {
        name: [
            (f"`{key}`", type_of(below, schema), default_of(below, key in part.get("required", ())))
            for key, below in part["properties"].items()
        ]
        for name, part in every.items()
    }


def type_of(schema, root):
    """The type of a value in words; empty where the schema does not tell."""
    if "$ref" in schema:
        return f"[{schema['$ref'].rpartition('/')[2]}]"
    if "anyOf" in schema:
        return " or ".join(type_of(s, root) for s in schema["anyOf"] if s.get("type") != "null")
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"`{json.dumps(value)}`" for value in values)
    kind = schema.get("type")
    if kind == "array":
        return f"list of {type_of(schema.get('items') or schema['prefixItems'][0], root)}"
    if kind == "object":
        return f"table of {type_of(schema['additionalProperties'], root)}"
    words = {"string": "text", "boolean": "`true` or `false`"}
    words |= {"integer": "integer", "number": "number"}
    return words.get(str(kind), "") + bounds(schema)


def bounds(schema):
    """What a number is limited to, in words."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']:g}"
    if low is not None and high is not None:
        return f" from {low:g} to {high:.0f}"
    return f", {low:g} or more" if low is not None else ""


def default_of(schema, required):
    """What stands for a key that is left out."""
    if required:
        return "required"
    value = schema.get("default")
    return "none" if value is None or value in ([], {}) else f"`{json.dumps(value)}`"


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
    rows, expected = described(read(name)), parts(PAGES[name])
    assert set(rows) == set(expected)
    for part, keys in expected.items():
        is_filled = part == "whole" and name == "study-file.md"
        documented = {
            row[0]: (re.sub(r"\[(\w+)\]\(#[^)]*\)", r"\1", row[1]), row[2]) for row in rows[part]
        }
        of_code = {}
        for key, kind, default in keys:
            of_page = documented.get(key, ("", ""))
            bare, kind = key.strip("`"), re.sub(r"\[(\w+)\]", r"\1", kind)
            shown = LOADED.get(bare, default) if is_filled else default
            is_told = shown == "none" and bare in TOLD
            of_code[key] = kind or of_page[0], of_page[1] if is_told else shown
        assert documented == of_code, part


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
