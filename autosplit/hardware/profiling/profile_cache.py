"""Measured op times in the file cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from autosplit.hardware import cache
from autosplit.hardware.measurement.results import Profile


def cached(key: Sequence[str], measure: Callable[[], Profile], force: bool = False) -> Profile:
    """The profile of a key, from the cache or by ``measure()``; with ``force`` measured again."""
    file = cache.folder() / "profiles" / f"{cache.digest(*key)}.json"
    if force:
        file.unlink(missing_ok=True)

    def write(temporary: Path) -> None:
        temporary.write_text(json.dumps(asdict(measure())), encoding="utf-8")

    document = json.loads(cache.keep(file, write).read_text(encoding="utf-8"))
    op_ms, spread_ms = tuple(document["op_ms"]), tuple(document["spread_ms"])
    return Profile(document["device"], op_ms, spread_ms, call_ms=document.get("call_ms", 0.0))
