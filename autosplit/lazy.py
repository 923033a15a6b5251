"""A property that is computed once, which type checkers know as what it is: read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Pyright takes functools.cached_property for no property: it would fit no protocol that asks
    # for one and could not implement an abstract one.
    cached_property = property
else:
    from functools import cached_property

__all__ = ["cached_property"]
