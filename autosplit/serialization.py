"""Frozen dataclasses as plain JSON documents and back, checked by pydantic."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def dump(value: object) -> Any:
    """A frozen dataclass as a document of dicts, lists, strings and numbers."""
    return _adapter(type(value)).dump_python(value, mode="json")


def load(kind: type[T], document: object) -> T:
    """The ``kind`` that a document stands for. Raises pydantic's ValidationError."""
    value: T = _adapter(kind).validate_python(document)
    return value


def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
