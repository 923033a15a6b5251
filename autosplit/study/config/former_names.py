"""Keys that studies of earlier versions hold under another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FORMER_NAMES = {"backend": "runtime"}


def with_current_names(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored study file or identity with the keys of this version."""
    return {FORMER_NAMES.get(key, key): value for key, value in stored.items()}
