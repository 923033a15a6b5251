"""Open the study of a study file: create it, or continue one that measures the same thing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from autosplit.deployment import Deployment, resources_of
from autosplit.errors import ConfigError, Infeasible
from autosplit.hardware.bench.interface import Bench, deployed
from autosplit.hardware.measurement.results import Baseline, LinkCost, Profile, left_out
from autosplit.hardware.profiling.cost_model import over_memory, place_regions
from autosplit.planner import CostModel
from autosplit.planner.batch.deployments import DeployedSplit
from autosplit.planner.placement.shared_resources import slowed, with_shared_loads
from autosplit.study.acquisition.sampler import SplitSampler
from autosplit.study.config.objectives import METRICS
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop import time_left
from autosplit.study.persistence import records
from autosplit.study.persistence.optuna_internals import write_once
from autosplit.study.persistence.storage import connect, redact_password, storage_errors
from autosplit.study.progress import Progress, duration
from autosplit.study.space.candidate_space import CandidateSpace
from autosplit.study.space.deployment_space import DeploymentSpace
from autosplit.study.space.search_space import Space
from autosplit.study.trials.host_lock import HostLock
from autosplit.units import size
from autosplit.versions import VERSION, machine

if TYPE_CHECKING:
    import optuna

HoldLock = Callable[[], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True)
class OpenStudy:
    """A study ready to run: its Optuna study, the bench that measures, the space of candidates.

    ``notify`` receives what a user should know of locks that last.
    """

    study: optuna.Study
    url: str
    config: StudyConfig
    bench: Bench
    space: CandidateSpace
    notify: Callable[[str], None] = field(default=Progress().note)

    @property
    def is_local(self) -> bool:
        """Whether all workers are on this host, so that its locks hold all of them back."""
        return self.url.startswith("sqlite")

    def deployment(self, candidate: Any, runtimes: Sequence[str]) -> Deployment:
        """What the bench measures for a candidate of the space in some runtimes."""
        if isinstance(candidate, DeployedSplit):
            return cast("DeploymentSpace", self.space).deployment(candidate, runtimes)
        return deployed(self.bench, candidate, runtimes)

    @cached_property
    def sampler(self) -> SplitSampler:
        """What gives a trial its split."""
        search = self.config.search
        return SplitSampler(search.sampler, self.space, search.seed, self.config.objective)

    @cached_property
    def start_lock(self) -> HostLock:
        """The right to start a trial of this study, which one process has at a time."""
        name = self.study.study_name
        return HostLock(
            f"{self.url}\n{name}",
            f"the lock of study '{name}'",
            f"study '{name}'",
            self.notify,
            timeout=self.config.search.lease,
        )

    @cached_property
    def device_lock(self) -> HoldLock:
        """The right to measure on this host."""
        return device_lock(self.config, self.notify)


def device_lock(config: StudyConfig, notify: Callable[[str], None]) -> HoldLock:
    """Holds the lock among all that measure on this host; simulated hardware needs none.

    A holder that is stopped for longer than the lease does not keep others out.
    """
    if config.runtime == "simulated":
        return contextlib.nullcontext
    return HostLock(
        "devices of this host",
        "the devices of this host",
        f"study '{config.name}'",
        notify,
        stalled_after=config.search.lease,
    ).hold


def open_study(
    config: StudyConfig,
    bench: Bench,
    url: str,
    progress: Progress,
    *,
    name: str | None = None,
    force: bool = False,
) -> OpenStudy:
    """Open or create the study in the storage at ``url``; measure profile and baselines it lacks.

    With ``force`` a new study is started beside one of the same name. Raises ConfigError where a
    study of that name measures something else, MachineError where the storage fails.
    """
    identity = identity_of(config, bench)
    shown = redact_password(url)
    holder = f"study '{name or config.name}', which is being opened"
    # Optuna's tables are made at the first connection, which two processes must not do at once.
    lock = HostLock(url, f"storage '{shown}'", holder, progress.note)
    with lock.hold(), storage_errors(url):
        storage = connect(url, config.search.lease)
        chosen = name or config.name
        study = _load_or_create(storage, url, chosen, identity, force)
        if force:
            progress.note(
                f"started study '{study.study_name}'; continue it with --name {study.study_name}"
            )
        space = _prepare(study, config, bench, progress)
    return OpenStudy(study, url, config, bench, space, progress.note)


def identity_of(config: StudyConfig, bench: Bench) -> dict[str, str]:
    """What all trials of a study share."""
    identity = {
        **bench.identity,
        "backend": config.runtime,  # the key of stored studies
        "objective": config.objective,
        "stages": str(config.stages),
    }
    if config.cores is not None:
        kinds = (",".join(map(str, numbers)) for numbers in config.core_kinds)
        identity["cores"] = "; ".join(kinds)
    if config.memory is not None:
        identity["memory"] = ", ".join(map(size, config.memory))
    if config.streams > 1:
        identity["streams"] = str(config.streams)
    placed = _region_devices(config)
    if placed:
        identity["regions on"] = " ".join(f"{b} {d}" for b, d in sorted(placed.items()))
    return identity


def _load_or_create(
    storage: optuna.storages.BaseStorage,
    url: str,
    name: str,
    identity: Mapping[str, str],
    force: bool,
) -> optuna.Study:
    import optuna

    known = set(optuna.get_all_study_names(storage))
    if force and name in known:
        numbered = (f"{name}-{number}" for number in count(2))
        name = next(candidate for candidate in numbered if candidate not in known)
    # Splits come from SplitSampler; Optuna only asks its own sampler for what nobody suggests.
    unused = optuna.samplers.RandomSampler()
    if name not in known:
        # A worker on another host may create it at the same time.
        with contextlib.suppress(optuna.exceptions.DuplicatedStudyError):
            created = optuna.create_study(storage=storage, study_name=name, sampler=unused)
            created.set_metric_names([METRICS[identity["objective"]]])
    study = optuna.load_study(storage=storage, study_name=name, sampler=unused)
    _refuse_other_study(study, url, identity)
    return study


def _refuse_other_study(study: optuna.Study, url: str, identity: Mapping[str, str]) -> None:
    attributes = study.user_attrs
    where = f"study '{study.study_name}' in '{redact_password(url)}'"
    remedy = "--force starts a new study beside it, --name gives it another name"
    mark = attributes.get("autosplit")
    # A new study, or one that a process left between its creation and its first attribute.
    if not isinstance(mark, dict) or not isinstance(attributes.get("identity"), dict):
        if study.get_trials(deepcopy=False) or len(study.directions) != 1:
            raise ConfigError(f"{where} was not created by autosplit; {remedy}")
        mark = {"format": records.FORMAT, "version": VERSION}
        study.set_user_attr("autosplit", mark)
        write_once(study, "identity", dict(identity))
        attributes = study.user_attrs
    if mark.get("format") != records.FORMAT:
        raise ConfigError(
            f"{where} was measured by autosplit {mark.get('version')}, whose trials this version "
            f"does not continue; {remedy}"
        )
    # Times of another model, machine or version cannot be compared with those to come.
    different = records.differences(attributes["identity"], identity)
    if different:
        raise ConfigError(f"{where} measures something else: {'; '.join(different)}; {remedy}")


def _prepare(
    study: optuna.Study, config: StudyConfig, bench: Bench, progress: Progress
) -> CandidateSpace:
    """Measure and store profile, links, bound and baselines that the study lacks.

    Workers of several hosts may measure them at once; all continue with what was stored first.
    """
    hold_devices = device_lock(config, progress.note)
    seconds = time_left.before_trials(config, bench)
    left = f", up to {duration(seconds)} of measurements left" if seconds else ""
    stored = study.user_attrs

    def stored_or_measured(key: str, measure: Callable[[], Sequence[Any]]) -> Any:
        if isinstance(stored.get(key), list):
            return stored[key]
        with hold_devices():
            measured = measure()
        return write_once(study, key, list(map(records.document_of, measured)))

    def profile() -> Sequence[Profile]:
        progress.note(f"profiling every op on each device{left}")
        profiles = bench.profile()
        for line in left_out(profiles):
            progress.note(line)
        return profiles

    profiles = records.read(Profile, stored_or_measured("profile", profile))
    for profile_of_device in profiles:
        if profile_of_device.doubt:
            progress.note(profile_of_device.doubt)
    links = records.read(LinkCost, stored_or_measured("links", bench.links))
    costs = bench.cost_model(profiles, links)
    if config.cores is None:
        costs = place_regions(costs, bench.regions, _region_devices(config), bench.devices)
    if config.memory is not None:
        costs = _with_memory(costs, tuple(config.memory))
    costs = replace(costs, streams=config.streams)
    space = _space(config, bench, costs, progress)
    if "bound_ms" not in stored:
        plan = space.best_plan
        if config.cores is None:
            plan = with_shared_loads(plan, costs, list(map(resources_of, bench.devices)))
        graph = records.graph_document(bench.graph)
        # The report shows the cuts, bitsets in hexadecimal, and has no cost model to plan with.
        periods = [[f"{cut:x}", float(period)] for cut, period in space.cut_periods().items()]
        _store(study, {"graph": graph, "cut_periods": periods, "bound_ms": float(plan.lower_bound)})

    def baselines() -> Sequence[Baseline]:
        if exceeds := over_memory(costs):
            progress.note(f"no baselines: {exceeds}")
            return ()
        progress.note(f"measuring the baselines: the unsplit model in each runtime{left}")
        return bench.baselines()

    stored_or_measured("baselines", baselines)
    described: dict[str, Any] = {
        "config": config.model_dump(mode="json"),
        "devices": list(bench.devices),
        "machine": machine(),
        "sampler": {"name": config.search.sampler, "seed": config.search.seed},
    }
    # Only what changed: a write takes a transaction.
    _store(study, {key: value for key, value in described.items() if stored.get(key) != value})
    return space


def _with_memory(costs: CostModel, limits: tuple[float, ...]) -> CostModel:
    """The costs where each device has so many bytes. Raises Infeasible for an op with more."""
    largest = max(range(len(costs.names)), key=lambda op: costs.sizes[op])
    if costs.sizes[largest] > max(limits):
        raise Infeasible(
            f"memory is {size(max(limits))}, but op '{costs.names[largest]}' alone has weights of "
            f"{size(costs.sizes[largest])}; give more memory"
        )
    return replace(costs, memory=limits)


def _space(
    config: StudyConfig, bench: Bench, costs: CostModel, progress: Progress
) -> CandidateSpace:
    """The candidates of a study with these profiled costs."""
    if config.cores is not None:
        cores, counts = config.core_kinds, config.thread_counts
        return DeploymentSpace.of_profile(costs, cores, counts, bench.runtimes[0])
    slow_costs = slowed(costs, list(map(resources_of, bench.devices)))
    if slow_costs is not costs:
        progress.note("some devices share cores, so the loads on a core add up")
    is_auto = config.stages == "auto"
    return Space(slow_costs, len(bench.devices), empty=is_auto, devices=bench.devices)


def _region_devices(config: StudyConfig) -> dict[str, str]:
    """The device that the regions of an external backend run on, by the name of the backend."""
    return {region.backend: region.device for region in config.regions if region.device}


def _store(study: optuna.Study, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        study.set_user_attr(key, value)
