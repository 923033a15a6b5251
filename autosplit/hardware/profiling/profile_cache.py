"""Measured op times in the file cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from autosplit import phases
from autosplit.hardware import cache
from autosplit.hardware.measurement import disturbance
from autosplit.hardware.measurement.results import Profile
from autosplit.serialization import load

_WAIT_S = 5.0  # for a calm machine, before a disturbed profile is measured again
_settled: set[Path] = set()  # used by this process, which does not measure them again
_is_patient = True  # until this process has waited in vain


def cached(key: Sequence[str], measure: Callable[[], Profile], force: bool = False) -> Profile:
    """The profile of a key, from the cache or by ``measure()``; with ``force`` measured again.

    A disturbed profile is measured again once the machine is calm, now or in a later process.
    """
    file = cache.folder() / "profiles" / f"{cache.digest(*key)}.json"
    is_settled = file in _settled and not force
    _settled.add(file)
    if force or not cache.is_whole(file):
        profile = _measured(file, measure)  # if it fails, the stored one stays
    else:
        profile = load(Profile, json.loads(file.read_text(encoding="utf-8")))
    if profile.disturbances and not is_settled:
        phases.report(f"profile of {profile.device} disturbed: {'; '.join(profile.disturbances)}")
        if _is_calm_soon():
            profile = _measured(file, measure)
    return profile


def _is_calm_soon() -> bool:
    """Whether the machine is calm soon; a process that has waited in vain does not wait again."""
    global _is_patient
    if _is_patient:
        _is_patient = disturbance.wait_until_calm(_WAIT_S) < _WAIT_S
    return _is_patient


def _measured(file: Path, measure: Callable[[], Profile]) -> Profile:
    """A new profile, which replaces the stored one."""
    start = disturbance.Counters.now()
    profile = measure()
    conditions = disturbance.since(start)
    profile = replace(
        profile,
        load=conditions.load,
        disturbances=conditions.reasons,
        measured_at=datetime.now(UTC).isoformat(" ", "seconds"),
    )
    text = json.dumps(asdict(profile))
    cache.keep(file, lambda new: new.write_text(text, encoding="utf-8"), again=True)
    return profile
