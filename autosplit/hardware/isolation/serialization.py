"""Our value types as plain JSON and back, checked."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def dump(value: object) -> Any:
    """A frozen dataclass of ours as what JSON can hold."""
    return _adapter(type(value)).dump_python(value, mode="json")


def load(kind: type[T], document: object) -> T:
    """The value a document stands for; raises pydantic's ValidationError where it is none."""
    value: T = _adapter(kind).validate_python(document)
    return value


def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
