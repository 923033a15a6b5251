"""Conversion of frozen dataclasses to plain JSON documents and back, checked by pydantic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")


def dump(value: object) -> Any:
    """Frozen dataclasses, alone or in a list, as dicts, lists, strings and numbers."""
    from pydantic_core import to_jsonable_python

    # An infinite bandwidth stays a number; the default would be null.
    return to_jsonable_python(value, inf_nan_mode="constants")


def load(kind: type[T], document: object) -> T:
    """The object of type ``kind`` in a document. Raises pydantic's ValidationError."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(document)


def problem_of(error: ValidationError, whole: str) -> str:
    """The first problem of a document with its place; ``whole`` is what the document is called."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"
