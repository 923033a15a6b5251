"""Measured op times in the file cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from autosplit import phases
from autosplit.hardware import cache
from autosplit.hardware.measurement import disturbance
from autosplit.hardware.measurement.results import Profile
from autosplit.serialization import load

_WAIT_S = 5.0  # for a calm machine, before a disturbed profile is taken again
_taken: set[Path] = set()  # by this process, which takes none a third time


def cached(key: Sequence[str], measure: Callable[[], Profile], force: bool = False) -> Profile:
    """The profile of a key, from the cache or by ``measure()``; with ``force`` measured again.

    One that was disturbed is taken again, at once and by later processes.
    """
    file = cache.folder() / "profiles" / f"{cache.digest(*key)}.json"
    if force:
        file.unlink(missing_ok=True)

    def write(temporary: Path) -> None:
        _taken.add(file)
        profile = _in_known_conditions(measure)
        if profile.disturbances:
            disturbance.wait_until_calm(_WAIT_S)
            profile = _in_known_conditions(measure)
        temporary.write_text(json.dumps(asdict(profile)), encoding="utf-8")

    profile = _read(cache.keep(file, write))
    if profile.disturbances and file not in _taken:
        file.unlink(missing_ok=True)
        profile = _read(cache.keep(file, write))
    if profile.disturbances:
        phases.report(f"profile of {profile.device} disturbed: {'; '.join(profile.disturbances)}")
    return profile


def _in_known_conditions(measure: Callable[[], Profile]) -> Profile:
    start = disturbance.Counters.now()
    profile = measure()
    conditions = disturbance.since(start)
    return replace(profile, load=conditions.load, disturbances=conditions.reasons)


def _read(file: Path) -> Profile:
    # Only the caller knows the runtime, and profiles of before lack some of the fields.
    document = json.loads(file.read_text(encoding="utf-8"))
    return load(Profile, {key: document[key] for key in document if key != "runtime"})
