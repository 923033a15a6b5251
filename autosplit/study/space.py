"""The space of a study: legal splits into K stages, and how a trial of Optuna stands for one.

A trial's parameters are the share of the profiled cost that lies before each cut, ``cut_1`` to ``cut_K-1``, and
``branch``, how parallel branches are laid out; any values decode to a legal split. Not every split is the nearest to
some values, so a trial also carries its exact split as the attribute ``key``, which is what counts where it is set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from autosplit.cuts import bitset, count_splits, downsets, full, members
from autosplit.errors import ConfigError, Infeasible, SplitError
from autosplit.hardware.bench import Stages
from autosplit.planner import CostModel, decode, evaluate, k_best, plan, shares_of
from autosplit.planner.orders import successors, topological
from autosplit.planner.split import check_stages
from autosplit.study.pool import Placing

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

KEY = "key"
LISTED = 20_000  # splits that are listed at most


@dataclass(frozen=True, eq=False)
class Space:
    """All legal splits of ``costs`` into ``stages`` stages, none empty; ``costs`` are those of the profile."""

    costs: CostModel
    stages: int

    def __post_init__(self) -> None:
        if self.stages > (most := len(self.costs.contraction.groups)):
            raise ConfigError(
                f"stages is {self.stages}, but '{self.costs.name}' has {most} ops that can be parted; use fewer stages"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters of a trial, all from 0 to 1; none for a single stage."""
        return (*(f"cut_{i}" for i in range(1, self.stages)), "branch") if self.stages > 1 else ()

    def distributions(self) -> dict[str, BaseDistribution]:
        """The parameters with their ranges, for ``study.ask``."""
        import optuna

        return {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in self.names}

    def parameters(self, stages: Stages) -> dict[str, float]:
        """The parameters of a split, ``branch`` such that they decode to it where one of the plain layouts does."""
        if self.stages == 1:
            return {}
        cuts = tuple(accumulate(map(bitset, stages[:-1]), int.__or__))
        shares = [min(1.0, share) for share in shares_of(self.costs, cuts)]
        branch = next((b for b in (0.0, 1.0, 0.5) if decode(self.costs, shares, b) == cuts), 0.0)
        return dict(zip(self.names, map(float, (*shares, branch)), strict=True))

    def key(self, stages: Stages) -> str:
        """The canonical text of a split: the number of stages, then each cut as the hexadecimal bitset of its ops."""
        cuts = accumulate(map(bitset, stages[:-1]), int.__or__)
        return f"{len(stages)}:" + ".".join(f"{cut:x}" for cut in cuts)

    def split(self, key: str) -> Stages:
        """The split of a key. Raises SplitError where the text is no key of a legal split of this space."""
        if key not in self._split:
            self._split[key] = self._read(key)
        return self._split[key]

    @cached_property
    def _split(self) -> dict[str, Stages]:
        """The keys read so far: the history of a study is read again for every trial."""
        return {}

    def _read(self, key: str) -> Stages:
        head, _, tail = key.partition(":")
        try:
            cuts = [int(text, 16) for text in tail.split(".")] if tail else []
        except ValueError:
            raise SplitError(f"'{key[:60]}' is no key of a split; keys are made by Space.key") from None
        ends = (0, *cuts, full(self.costs))
        if head != str(self.stages) or len(cuts) != self.stages - 1 or any(a & ~b or a < 0 for a, b in pairwise(ends)):
            raise SplitError(
                f"'{key[:60]}' is no split into {self.stages} stages; decode it with the space it was made in"
            )
        stages = self._parts(cuts)
        check_stages(self.costs, stages, False)
        return stages

    def _parts(self, cuts: Iterable[int]) -> Stages:
        return tuple(tuple(members(after & ~before)) for before, after in pairwise((0, *cuts, full(self.costs))))

    def decode(self, parameters: Mapping[str, float]) -> Stages:
        """The legal split nearest to some parameters; the cuts' may stand in any order."""
        if self.stages == 1:
            return (tuple(range(len(self.costs.names))),)
        *shares, branch = (parameters[name] for name in self.names)
        return self._parts(decode(self.costs, shares, branch))

    def suggest(self, trial: Trial) -> Stages:
        """The split a trial stands for, its parameters suggested: what an objective function starts with.

        With a sampler of this package that is its exact proposal, with any other the split nearest to its shares.
        Raises Infeasible where the sampler found no split left.
        """
        parameters = {name: trial.suggest_float(name, 0.0, 1.0) for name in self.names}
        if (key := trial.user_attrs.get(KEY)) == "":
            raise Infeasible(f"no unmeasured split of '{self.costs.name}' into {self.stages} stages is left")
        if isinstance(key, str):
            return self.split(key)
        stages = self.decode(parameters)
        trial.set_user_attr(KEY, self.key(stages))
        return stages

    def fits(self, stages: Stages) -> bool:
        """Whether each device can run its ops and hold what they need."""
        plan = evaluate(self.costs, stages)
        limits = self.costs.memory
        return plan.period < math.inf and all(
            held <= limits[d if len(limits) > 1 else 0] for d, held in enumerate(plan.memory)
        )

    def random(self, rng: np.random.Generator) -> Stages | None:
        """A random split: K-1 random places in a random order of the ops; None where one that fits was not found."""
        contraction = self.costs.contraction
        groups = len(contraction.groups)
        for _ in range(100):
            rank = rng.random(groups).tolist()
            order = topological(contraction.predecessors, lambda group, when, rank=rank: rank[group])  # type: ignore[misc]
            ends = (0, *sorted(1 + rng.choice(groups - 1, self.stages - 1, replace=False)), groups)
            stages = tuple(tuple(members(contraction.expand(bitset(order[a:b])))) for a, b in pairwise(ends))
            if self.fits(stages):
                return stages
        return None

    def neighbours(self, stages: Stages) -> Iterator[Stages]:
        """The legal splits that have one group of ops on the stage before or after its own."""
        contraction, readers = self.costs.contraction, self._readers
        cuts = list(accumulate(map(bitset, stages[:-1]), int.__or__))
        for c, cut in enumerate(cuts):
            lower, upper = (0, *cuts)[c], (*cuts, full(self.costs))[c + 1]
            inside = bitset(g for g, ops in enumerate(contraction.groups) if not ops & ~cut)
            for g, ops in enumerate(contraction.groups):
                open_ = readers[g] & inside if ops & cut else contraction.predecessors[g] & ~inside
                moved = cut ^ ops
                if open_ or lower & ~moved or moved & ~upper or moved in (lower, upper):
                    continue
                found = self._parts((*cuts[:c], moved, *cuts[c + 1 :]))
                if self.fits(found):
                    yield found

    @cached_property
    def _readers(self) -> tuple[int, ...]:
        """For each group the bitset of the groups that read from it."""
        return tuple(map(bitset, successors(self.costs.contraction.predecessors)))

    def plan(self) -> Stages:
        """The best split under the profile. Raises Infeasible where none fits the devices."""
        return plan(self.costs, self.stages).stages

    def best(self, costs: CostModel, count: int, seconds: float = 10.0) -> list[Stages]:
        """The ``count`` best splits under ``costs``, best first; fewer where there are no more or the time is up."""
        end = time.monotonic() + seconds
        plans = k_best(costs, self.stages, count, deadline=lambda: time.monotonic() > end)
        return [found.stages for found in plans]

    @cached_property
    def placing(self) -> Placing:
        """What makes arrays of many splits of this space."""
        return Placing(self.costs)

    @cached_property
    def size(self) -> int | None:
        """How many splits there are (memory and devices aside); None where counting them takes too long."""
        found = count_splits(self.costs.contraction, self.stages, limit=100_000)
        return found.total if found.complete else None

    @cached_property
    def listed(self) -> tuple[Stages, ...]:
        """All splits that fit, best first under the profile. Raises ConfigError where they are too many to list."""
        if self.size is None or self.size > LISTED:
            count = "very many" if self.size is None else self.size
            raise ConfigError(
                f"sampler 'exhaustive': '{self.costs.name}' has {count} splits into {self.stages} stages, "
                f"more than {LISTED}; use sampler 'planner'"
            )
        found = [stages for stages in self._all() if self.fits(stages)]
        return tuple(sorted(found, key=lambda stages: (evaluate(self.costs, stages).period, self.key(stages))))

    def _all(self) -> Iterator[Stages]:
        contraction = self.costs.contraction
        cuts = [contraction.expand(d) for d in downsets(contraction)][1:-1]

        def chains(start: int, before: int, left: int) -> Iterator[tuple[int, ...]]:
            if not left:
                yield ()
                return
            for n in range(start, len(cuts)):
                if not before & ~cuts[n]:
                    for rest in chains(n + 1, cuts[n], left - 1):
                        yield (cuts[n], *rest)

        for chain in chains(0, 0, self.stages - 1):
            yield self._parts(chain)
