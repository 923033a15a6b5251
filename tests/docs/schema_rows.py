"""A JSON Schema as the rows of a reference: for each part its keys with type and default."""

import json
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
ROOT_PART = "whole"


def parts(schema):
    """By part, the whole first: (key, type, default) of each key; a key without which nothing works
    is ``required``.
    """
    every = {ROOT_PART: schema, **schema.get("$defs", {})}
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
