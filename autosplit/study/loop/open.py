"""Open the study of a study file: make it, or go on with one that measures the same thing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autosplit.errors import ConfigError
from autosplit.hardware.bench.interface import Bench
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.hardware.profiling.cost_model import cost_model, on_own_devices
from autosplit.planner import CostModel, plan
from autosplit.study.acquisition.samplers import sampler
from autosplit.study.config.objectives import METRICS
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.progress import Progress
from autosplit.study.persistence import records
from autosplit.study.persistence.storage import connect, guarded, set_once, shown
from autosplit.study.space.search_space import Space
from autosplit.study.trials.worker_identity import one_at_a_time
from autosplit.versions import VERSION, machine

if TYPE_CHECKING:
    import optuna


DEVICES = "devices of this host"  # what names the lock of those who measure


@dataclass(frozen=True)
class OpenStudy:
    """A study ready to run: its Optuna study, what measures it, and the space its trials lie in."""

    study: optuna.Study
    url: str
    config: StudyConfig
    bench: Bench
    space: Space

    @property
    def lock(self) -> str:
        """What names the lock of this study."""
        return f"{self.url}\n{self.study.study_name}"

    def measuring(self) -> AbstractContextManager[None]:
        """The right to measure, which one process of this host has at a time."""
        return alone_on_devices(self.config)


def alone_on_devices(config: StudyConfig) -> AbstractContextManager[None]:
    """A lock among all who measure on this host; simulated hardware is there for each.

    A holder whose process is stopped for longer than the lease keeps nobody out.
    """
    return (
        contextlib.nullcontext()
        if config.runtime == "simulated"
        else one_at_a_time(DEVICES, stopped=config.search.lease)
    )


def open_study(
    config: StudyConfig,
    bench: Bench,
    url: str,
    progress: Progress,
    *,
    name: str | None = None,
    force: bool = False,
) -> OpenStudy:
    """Open or create the study in the storage at ``url``, and measure profile and baselines where it has none yet.

    Raises ConfigError where a study of that name measures something else; with ``force`` a new one is started beside
    it, and nothing is lost. Raises MachineError where the storage fails.
    """
    identity = identity_of(config, bench)
    with one_at_a_time(url):
        storage = connect(url, config.search.lease)
        with guarded(url):
            study = _load_or_create(
                storage, url, name or config.name, identity, force, config.objectives
            )
        if force:
            progress.note(
                f"started study '{study.study_name}'; to go on with it: --name {study.study_name}"
            )
        space = _prepare(study, config, bench, url, progress)
    search = config.search
    study.sampler = sampler(search.sampler, space, bench.devices, search.seed, config.objectives)
    return OpenStudy(study, url, config, bench, space)


def identity_of(config: StudyConfig, bench: Bench) -> dict[str, str]:
    """What all trials of a study share."""
    placed = _placed(config)
    return {
        **bench.identity,
        "backend": config.runtime,  # the key of stored studies
        "objective": ", ".join(config.objectives),
        "stages": str(config.stages),
        **(
            {"regions on": " ".join(f"{b} {d}" for b, d in sorted(placed.items()))}
            if placed
            else {}
        ),
    }


def _load_or_create(
    storage: optuna.storages.BaseStorage,
    url: str,
    name: str,
    identity: Mapping[str, str],
    force: bool,
    objectives: Sequence[str],
) -> optuna.Study:
    import optuna

    known = set(optuna.get_all_study_names(storage))
    if force and name in known:
        name = next(free for n in range(2, len(known) + 3) if (free := f"{name}-{n}") not in known)
    if name not in known:
        with contextlib.suppress(
            optuna.exceptions.DuplicatedStudyError
        ):  # a worker on another host was as quick
            directions = [optuna.study.StudyDirection.MINIMIZE] * len(objectives)
            made = optuna.create_study(
                storage=storage, study_name=name, directions=directions, sampler=_placeholder()
            )
            made.set_metric_names([METRICS[objective] for objective in objectives])
    study = optuna.load_study(storage=storage, study_name=name, sampler=_placeholder())
    _refuse_another(study, url, identity)
    return study


def _refuse_another(study: optuna.Study, url: str, identity: Mapping[str, str]) -> None:
    attributes = study.user_attrs
    where = f"study '{study.study_name}' in '{shown(url)}'"
    remedy = "--force starts a new study beside it, --name gives it another name"
    found = attributes.get("autosplit")
    if not isinstance(found, dict) or not isinstance(attributes.get("identity"), dict):
        if study.get_trials(deepcopy=False) or len(study.directions) != len(
            identity["objective"].split(", ")
        ):
            raise ConfigError(f"{where} was not made by autosplit; {remedy}")
        study.set_user_attr("autosplit", {"format": records.FORMAT, "version": VERSION})
        set_once(study, "identity", dict(identity))
        attributes = study.user_attrs
        found = attributes["autosplit"]
    if found.get("format") != records.FORMAT:
        raise ConfigError(
            f"{where} has format {found.get('format')}, this version writes {records.FORMAT}; {remedy}"
        )
    if different := records.differences(attributes["identity"], identity):
        raise ConfigError(f"{where} measures something else: {'; '.join(different)}; {remedy}")


def _placeholder() -> optuna.samplers.BaseSampler:
    """A sampler for the time before the space is known; it is never asked."""
    import optuna

    return optuna.samplers.RandomSampler()


def _prepare(
    study: optuna.Study, config: StudyConfig, bench: Bench, url: str, progress: Progress
) -> Space:
    """Profile, bound and baselines: taken from the study, measured and stored where it has none.

    Workers on several hosts may measure them at once; all go on with what the first of them stored.
    """
    with guarded(url):
        stored = study.user_attrs
    if not isinstance(stored.get("profile"), list):
        progress.note("profiling every op on each device")
        with alone_on_devices(config):
            profile = bench.profile()
        with guarded(url):
            set_once(study, "profile", records.profile_document(profile))
    if not isinstance(stored.get("links"), list):
        with alone_on_devices(config):
            links = bench.links()
        with guarded(url):
            set_once(study, "links", records.link_documents(links))
    with guarded(url):
        known = records.read_profile(study.user_attrs["profile"])
        reached = records.read_links(study.user_attrs["links"])
    costs = on_own_devices(
        _costs(bench, known, reached), getattr(bench, "regions", {}), _placed(config), bench.devices
    )
    space = Space(costs, len(bench.devices), empty=config.stages == "auto")
    if "bound_ms" not in stored:
        bound = plan(space.costs, space.stages, allow_empty=space.empty).lower_bound
        _store(study, url, {"graph": records.graph_document(bench.graph), "bound_ms": float(bound)})
    if "baselines" not in stored:
        progress.note("measuring the unsplit model: on each device, on all cores, as replicas")
        with alone_on_devices(config):
            unsplit = bench.baselines()
        with guarded(url):
            set_once(study, "baselines", [records.baseline_document(b) for b in unsplit])
    described: dict[str, Any] = {
        "config": config.model_dump(mode="json"),
        "devices": list(bench.devices),
        "machine": machine(),
        "sampler": {"name": config.search.sampler, "seed": config.search.seed},
    }
    _store(study, url, {key: value for key, value in described.items() if stored.get(key) != value})
    return space


def _placed(config: StudyConfig) -> dict[str, str]:
    """By the name of an external backend the device its regions run on, where it has one of its own."""
    return {region.backend: region.device for region in config.regions if region.device}


def _costs(bench: Bench, profile: list[Profile], links: list[LinkCost]) -> CostModel:
    """The planner's view of profile and links; a bench that knows more gives its own."""
    own = getattr(bench, "cost_model", None)
    if own is not None:
        model = own(profile)
        assert isinstance(model, CostModel)
        return model
    return cost_model(bench.graph, profile, links, bench.keep_together)


def _store(study: optuna.Study, url: str, values: Mapping[str, Any]) -> None:
    with guarded(url):
        for key, value in values.items():
            study.set_user_attr(key, value)
