"""Open the study of a study file: create it, or continue one that measures the same thing."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, count
from typing import Any

import optuna

from autosplit.errors import ConfigError
from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.measurement.results import Baseline, LinkCost, Profile, doubts, left_out
from autosplit.hardware.profiling.cost_table import over_memory, place_regions, slowed
from autosplit.planner.problem import Question
from autosplit.planner.split import shared_bound
from autosplit.planner.workload import Workload
from autosplit.study.acquisition import Goal
from autosplit.study.config.sections import METRICS
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.documents import differences, document_of, graph_document, read
from autosplit.study.history import History, HistoryReader
from autosplit.study.record import FORMAT, RECORD, StudyRecord, mapping, study_record
from autosplit.study.sampler import Assignment, PlannerSampler
from autosplit.study.space import Space, useful_threads
from autosplit.study.storage import connect, redact_password, storage_errors
from autosplit.study.workers import free_candidate, host_lock, this_worker
from autosplit.versions import VERSION, machine

HoldLock = Callable[[], contextlib.AbstractContextManager[None]]
Notify = Callable[[str], None]


def silent(text: str) -> None:
    """Ignore a line for the user."""


@dataclass(frozen=True)
class OpenStudy:
    """A study ready to run: its Optuna study, the bench that measures, the space of candidates.

    ``notify`` receives lines for the user.
    """

    study: optuna.Study
    url: str
    config: StudyConfig
    bench: Bench
    space: Space
    notify: Notify = silent

    @cached_property
    def goal(self) -> Goal:
        """The value that the study minimises."""
        config = self.config
        load = config.workload.value if config.workload else Workload()
        return Goal(config.objective, config.limits.latency_ms or math.inf, load)

    @cached_property
    def reader(self) -> HistoryReader:
        """Reads the history: the search learns from the measured baselines too."""
        return HistoryReader(self.space, self.record.measured_baselines())

    @property
    def record(self) -> StudyRecord:
        """The record as it is stored now; other workers write to it too."""
        return study_record(self.study.user_attrs)

    def history(self) -> History:
        """The history of the study up to now."""
        return self.reader.history(self.study.get_trials(deepcopy=False))

    @cached_property
    def assignment(self) -> Assignment:
        """Assigns candidates to trials."""
        planner = PlannerSampler(self.reader, self.goal)
        return Assignment(self.config.search.sampler, planner, self.config.search.seed)

    @cached_property
    def device_lock(self) -> HoldLock:
        """The lock for measuring on this host."""
        return device_lock(self.config, self.bench, self.notify)


def device_lock(config: StudyConfig, bench: Bench, notify: Notify) -> HoldLock:
    """The lock among all processes that measure on this host, if they disturb each other."""
    if not bench.description.measures_alone:
        return contextlib.nullcontext
    key = "devices of this host"
    return partial(host_lock, key, f"the {key}", f"study '{config.name}'", notify)


def open_study(
    config: StudyConfig,
    bench: Bench,
    url: str,
    notify: Notify = silent,
    *,
    name: str | None = None,
    force: bool = False,
) -> OpenStudy:
    """Open or create the study in the storage at ``url``; measure profile and baselines it lacks.

    With ``force`` a new study is started beside one of the same name. Raises ConfigError where a
    study of that name measures something else, MachineError where the storage fails.
    """
    identity = identity_of(config, bench)
    # Optuna's tables are made at the first connection, which two processes must not do at once.
    holder = f"study '{name or config.name}', which is being opened"
    lock = host_lock(url, f"storage '{redact_password(url)}'", holder, notify)
    with lock, storage_errors(url):
        # A new trial names its worker at once, so that others notice if the worker dies.
        named = {RECORD: {"worker": this_worker()}}
        storage = connect(url, config.search.lease, partial(free_candidate, notify), named)
        chosen = name or config.name
        if force:
            known = optuna.get_all_study_names(storage)
            names = chain([chosen], (f"{chosen}-{number}" for number in count(2)))
            chosen = next(each for each in names if each not in known)
            notify(f"started study '{chosen}'; continue it with --name {chosen}")
        study = optuna.create_study(storage=storage, study_name=chosen, load_if_exists=True)
        _refuse_other_study(study, url, identity)
        space = _prepare(study, config, bench, notify)
    return OpenStudy(study, url, config, bench, space, notify)


def identity_of(config: StudyConfig, bench: Bench) -> dict[str, str]:
    """The properties that all trials of a study must have in common, as text by name."""
    kinds = config.core_kinds if config.cores is not None else ()
    latency_ms = None if config.objective == "throughput" else config.limits.latency_ms
    load = config.workload.key if config.workload and config.objective != "throughput" else {}
    optional = {
        "cores": "; ".join(",".join(map(str, numbers)) for numbers in kinds),
        "memory": ", ".join(f"{limit:.0f} B" for limit in config.memory or ()),
        "batch": "" if config.batch == [1] else str(config.batch).strip("[]"),
        "workload": ", ".join(f"{key} {value}" for key, value in load.items()),
        "latency limit": f"{latency_ms} ms" if latency_ms else "",
        "streams": str(config.streams) if config.streams > 1 else "",
        "tolerance": str(config.tolerance or ""),
        "regions on": " ".join(f"{b} {d}" for b, d in sorted(_region_devices(config).items())),
    }
    return {
        **bench.description.identity,
        "runtime": config.runtime,
        "objective": config.objective,
        "stages": str(config.stages),
        **{key: value for key, value in optional.items() if value},
    }


def _refuse_other_study(study: optuna.Study, url: str, identity: Mapping[str, str]) -> None:
    where = f"study '{study.study_name}' in '{redact_password(url)}'"
    remedy = "--force starts a new study beside it, --name gives it another name"
    record = mapping(study.user_attrs.get(RECORD))
    # A new study, or one that a process left between its creation and its record.
    if not record:
        if study.get_trials(deepcopy=False) or len(study.directions) != 1:
            raise ConfigError(f"{where} was not created by autosplit; {remedy}")
        study.set_metric_names([METRICS[identity["objective"]]])
        record = {"format": FORMAT, "version": VERSION, "identity": dict(identity)}
        study.set_user_attr(RECORD, record)
    if record.get("format") != FORMAT:
        raise ConfigError(
            f"{where} was measured by autosplit {record.get('version')}, whose trials this version "
            f"does not continue; {remedy}"
        )
    # Times of another model, machine or version cannot be compared with those to come.
    different = differences(mapping(record.get("identity")), identity)
    if different:
        raise ConfigError(f"{where} measures something else: {'; '.join(different)}; {remedy}")


def _prepare(study: optuna.Study, config: StudyConfig, bench: Bench, notify: Notify) -> Space:
    """Measure and store profile, links, bound and baselines that the study lacks."""
    devices, is_split = bench.description.devices, config.cores is None

    def measured(key: str, measure: Callable[[], Sequence[Any]]) -> Any:
        if not isinstance(_stored(study).get(key), list):
            with device_lock(config, bench, notify)():
                documents = list(map(document_of, measure()))
            # Workers of other hosts may have measured it too; all continue with what is stored.
            if not isinstance(_stored(study).get(key), list):
                _store(study, {key: documents})
        return _stored(study)[key]

    def profile() -> Sequence[Profile]:
        notify("profiling every op on each device")
        profiles = bench.profile()
        for line in (*left_out(profiles), *doubts(profiles)):
            notify(line)
        return profiles

    profiles = read(Profile, measured("profile", profile))
    links = read(LinkCost, measured("links", bench.links))
    if is_split:
        placed = _region_devices(config)
        profiles = place_regions(profiles, bench.description.regions, placed, devices)
    slow = slowed(profiles, devices) if is_split else profiles
    space = _space(config, bench, slow, links)
    if slow != profiles:
        notify("some devices share cores, so the loads on a core add up")
    if "bound_ms" not in _stored(study):
        bound = space.plan.lower_bound
        if slow != profiles:
            alone = _space(config, bench, profiles, links)
            bound = shared_bound(alone.costs, devices, [kind for kind, _ in alone.devices])
        graph = graph_document(bench.description.graph)
        # The report shows the cuts, bitsets in hexadecimal, and has no cost model to plan with.
        periods = [[f"{cut:x}", float(period)] for cut, period in space.cut_periods().items()]
        _store(study, {"graph": graph, "cut_periods": periods, "bound_ms": float(bound)})

    def baselines() -> Sequence[Baseline]:
        if exceeds := over_memory(space.costs):
            notify(f"no baselines: {exceeds}")
            return ()
        notify("measuring the baselines: the unsplit model in each runtime")
        return bench.baselines()

    measured("baselines", baselines)
    described = {
        "config": config.model_dump(mode="json"),
        "devices": list(devices),
        "machine": machine(),
        "sampler": {"name": config.search.sampler, "seed": config.search.seed},
    }
    _store(study, described)
    return space


def _stored(study: optuna.Study) -> dict[str, Any]:
    """The record of a study as it is stored now."""
    return mapping(study.user_attrs.get(RECORD))


def _store(study: optuna.Study, values: Mapping[str, Any]) -> None:
    """Store values in the record of a study, if they are new: a write takes a transaction."""
    record = _stored(study)
    if any(record.get(key) != value for key, value in values.items()):
        study.set_user_attr(RECORD, record | dict(values))


def _space(
    config: StudyConfig, bench: Bench, profiles: Sequence[Profile], links: Sequence[LinkCost]
) -> Space:
    """The candidates of a study with these profiles, under the limits of the study file."""
    memory = tuple(config.memory or ())
    limits: dict[str, Any] = {"memory": memory, "streams": config.streams, "rows": config.rows}
    table, kinds = bench.cost_table(profiles, links, **limits)
    costs = useful_threads(table)
    if config.cores is not None:
        cores = {str(kind): numbers for kind, numbers in enumerate(config.core_kinds)}
        counts = {kind: len(numbers) for kind, numbers in cores.items()}
        return Space(costs, Question.of_cores(counts), cores=cores)
    question = Question.along(kinds)
    if config.stages == "auto":
        question = Question(Counter(kinds), replicas=True)
    return Space(costs, question, tuple(zip(kinds, bench.description.devices, strict=True)))


def _region_devices(config: StudyConfig) -> dict[str, str]:
    """The device that the regions of an external backend run on, by the name of the backend."""
    return {region.backend: region.device for region in config.regions if region.device}
