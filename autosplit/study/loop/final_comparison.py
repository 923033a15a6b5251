"""The end of a run: the best candidates compete once more, then the verdict against the baselines. Both are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from autosplit.cuts.stages import Stages
from autosplit.hardware.measurement.results import Baseline, Spread
from autosplit.study.acquisition.expected_improvement import corrected_costs
from autosplit.study.acquisition.samplers import history_of
from autosplit.study.config.objectives import of_study
from autosplit.study.loop.open import OpenStudy
from autosplit.study.loop.progress import Progress
from autosplit.study.loop.stopping import tally
from autosplit.study.loop.verdict import judge
from autosplit.study.persistence import records
from autosplit.study.persistence.storage import guarded
from autosplit.study.space.search_space import KEY
from autosplit.study.surrogate.cost_correction import Corrected, Measured
from autosplit.units import counted

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

RIVALS = 4  # candidates in the final comparison at most


@runtime_checkable
class Duelling(Protocol):
    """A bench that can measure candidates and baselines side by side, in turns, so that what drifts meets all alike."""

    def duel(self, candidates: Sequence[Stages]) -> tuple[Sequence[Spread], Sequence[Spread]]:
        """The periods, in ms, of the candidates in their order, and of the baselines in the order of ``baselines``."""
        ...


def conclude(on: OpenStudy, progress: Progress) -> None:
    """Compare the best candidates, judge, and store corrected costs, duel and verdict."""
    with guarded(on.url):
        trials = on.study.get_trials(deepcopy=False)
        attributes = on.study.user_attrs
    history = history_of(on.space, trials)
    corrected = corrected_costs(on.space, tuple(on.bench.devices), history.measured)
    results: dict[str, Any] = {"corrected": _document(corrected)}
    rivals = finalists(corrected, history.measured) if "throughput" in on.config.objectives else []
    if (
        rivals
        and isinstance(on.bench, Duelling)
        and not _covers(attributes.get("duel"), rivals, len(history.measured))
    ):
        progress.note(
            f"comparing the best {counted(len(rivals), 'split')} and the baselines once more, in turns"
        )
        with on.measuring():
            results["duel"] = _compete(on.bench, rivals, len(history.measured))
    stored = {**attributes, **results}
    fastest = fastest_trial(trials, stored)
    if fastest is not None:
        used = sum(map(bool, on.space.split(fastest[0].user_attrs[KEY])))
        word = "best" if on.config.objectives[0] == "throughput" else "fastest"
        verdict = judge(used, fastest[1], compared_baselines(stored), word)
        results["verdict"] = {"choice": verdict.choice, "text": verdict.text}
    with guarded(on.url):
        for key, value in results.items():
            on.study.set_user_attr(key, value)


def compared_baselines(attributes: dict[str, Any]) -> list[Baseline]:
    """The baselines of a study, their periods as measured beside the best candidates where they were."""
    found = records.read_baselines(attributes.get("baselines"))
    duel = attributes.get("duel")
    again = (
        [records.read_spread(d) for d in duel.get("baselines") or ()]
        if isinstance(duel, dict)
        else []
    )
    if len(again) != len(found):
        return found
    return [
        replace(b, period_ms=spread or b.period_ms) for b, spread in zip(found, again, strict=True)
    ]


def _compete(bench: Duelling, rivals: Sequence[Measured], measured: int) -> dict[str, Any]:
    spreads, baselines = bench.duel([m.stages for m in rivals])
    return {
        "measured": measured,
        "entries": [
            {"number": m.number, "period_ms": records.spread_document(s)}
            for m, s in zip(rivals, spreads, strict=True)
        ],
        "baselines": [records.spread_document(s) for s in baselines],
    }


def best_trial(
    trials: Sequence[FrozenTrial], attributes: dict[str, Any]
) -> tuple[FrozenTrial, Spread] | None:
    """The best trial by the first objective, with its period; for throughput see ``fastest_trial``."""
    fastest = fastest_trial(trials, attributes)
    if fastest is None or of_study(attributes)[0] == "throughput":
        return fastest
    told = [(list(t.values), t.number, t) for t in tally(trials).complete if t.values]
    best = min(told)[2] if told else fastest[0]
    period = records.read_spread(best.user_attrs.get("period_ms"))
    return (best, period) if period else fastest


def fastest_trial(
    trials: Sequence[FrozenTrial], attributes: dict[str, Any]
) -> tuple[FrozenTrial, Spread] | None:
    """The trial of least period: the winner of the final comparison, or before one the least measured."""
    complete = tally(trials).complete
    duel = attributes.get("duel")
    periods: dict[int, Spread] = {}
    if isinstance(duel, dict) and duel.get("measured") == len(complete):
        for entry in duel.get("entries", ()):
            if spread := records.read_spread(entry.get("period_ms")):
                periods[entry.get("number")] = spread
    if not periods:
        for t in complete:
            if (period := records.period_of(t)) is not None:
                fallback = Spread(period, period, period)
                periods[t.number] = records.read_spread(t.user_attrs.get("period_ms")) or fallback
    entered = [t for t in complete if t.number in periods]
    if not entered:
        return None
    best = min(entered, key=lambda t: (periods[t.number].median, t.number))
    return best, periods[best.number]


def finalists(corrected: Corrected, measured: Sequence[Measured]) -> list[Measured]:
    """The measured splits that may be the best: the likeliest few by all that was measured, and the one measured fastest."""
    expected = {m.number: corrected.period(m.stages) for m in measured}
    least = min(expected.values(), default=0.0)
    near = [m for m in measured if expected[m.number] <= least * (1 + 3 * corrected.noise)]
    chosen = sorted(near, key=lambda m: expected[m.number])[:RIVALS]
    fastest = min(measured, key=lambda m: (m.period_ms, m.number), default=None)
    if fastest is not None and fastest not in chosen:
        chosen = [*chosen[: RIVALS - 1], fastest]
    return sorted(chosen, key=lambda m: m.number)


def _covers(duel: object, rivals: Sequence[Measured], measured: int) -> bool:
    """Whether a stored comparison is of these rivals, with nothing measured since."""
    if not isinstance(duel, dict) or duel.get("measured") != measured:
        return False
    return [entry.get("number") for entry in duel.get("entries", ())] == [m.number for m in rivals]


def _document(corrected: Corrected) -> dict[str, Any]:
    return {
        "error": corrected.error,
        "noise": corrected.noise,
        "period_over_slowest_stage": corrected.ratio,
        "op_ms": [[t if t < float("inf") else None for t in row] for row in corrected.costs.times],
        "overhead_ms": list(corrected.costs.overheads),
    }
