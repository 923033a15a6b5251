"""A property that is computed once, and that type checkers treat as read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Pyright does not treat functools.cached_property as a property: it would not match a protocol
    # with a property and could not implement an abstract one.
    cached_property = property
else:
    from functools import cached_property

__all__ = ["cached_property"]
