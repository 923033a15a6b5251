"""The correction against the same Gaussian model, written out parameter by parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.cuts.stages import Stages
from autosplit.planner import CostModel, Transfer, evaluate
from autosplit.study.surrogate import cost_correction
from autosplit.study.surrogate import gaussian_posterior as posterior
from autosplit.study.surrogate.cost_correction import Corrected, Measured, correct

OPS = 6
CHAIN = tuple(1 << i - 1 if i else 0 for i in range(OPS))
ALIKE, MIXED = ("cores:0", "cores:1", "cores:2"), ("cores:0", "cuda:0", "cores:1")


def model(rows: int, seed: int = 0) -> CostModel:
    """A chain with transfers and overheads, a row of times for each of ``rows`` devices."""
    rng = np.random.default_rng(seed)
    transfers = tuple(Transfer(f"t{i}", i, (i + 1,), 8.0) for i in range(OPS - 1))
    table = [tuple(rng.uniform(0.5, 2, OPS).tolist()) for _ in range(rows)]
    sent = (tuple(rng.uniform(0, 0.3, OPS - 1).tolist()),)
    names = tuple(f"op{i}" for i in range(OPS))
    return CostModel("c", names, CHAIN, tuple(table), transfers, sent, sent, overheads=(0.25,))


def measurements(costs: CostModel, splits: Sequence[Stages], seed: int = 1) -> list[Measured]:
    """What splits measured: their costs, each stage up to half as slow again."""
    rng = np.random.default_rng(seed)
    loads = [evaluate(costs, s, allow_empty=True).loads for s in splits]
    times = [
        tuple((np.array(stage_loads) * rng.uniform(1.0, 1.5, len(stage_loads))).tolist())
        for stage_loads in loads
    ]
    return [Measured(n, s, t, max(t)) for n, (s, t) in enumerate(zip(splits, times, strict=True))]


class Direct:
    """The posterior over every single parameter.

    They are an error of each op on each device, and two common scales and an overhead of each
    device. A pair of error and noise is as likely as the measurements are under it.
    """

    def __init__(
        self, costs: CostModel, devices: Sequence[str], measured: Sequence[Measured]
    ) -> None:
        self.count = len(devices)
        self.times = np.array(
            [costs.times[d if len(costs.times) > 1 else 0] for d in range(self.count)]
        )
        kinds = [d.split(":")[0] for d in devices]
        self.kin = np.array(
            [[1.0 if a == b else posterior.OTHER_KIND for b in kinds] for a in kinds]
        )
        rows = [(m, d) for m in measured for d, ops in enumerate(m.stages) if ops]
        prior = [evaluate(costs, m.stages, allow_empty=True).loads[d] for m, d in rows]
        self.design = np.array([self.row(m.stages, d) for m, d in rows])
        self.stage_times = np.array([m.stage_ms[d] for m, d in rows])
        self.gap = self.stage_times - np.array(prior)
        pairs = [(e, n) for e in posterior.ERRORS for n in posterior.NOISES]
        logs = np.array([self.log_evidence(*pair) for pair in pairs])
        likely = [i for i in range(len(pairs)) if logs[i] > logs.max() - 6]
        weights = np.exp(logs[likely] - logs.max())
        self.pairs, self.likely = [pairs[i] for i in likely], weights / weights.sum()

    def row(self, stages: Stages, device: int) -> np.ndarray:
        """What each parameter adds to the time of one stage of a split."""
        crowd = (sum(map(bool, stages)) - 1) / (self.count - 1)
        op_times = np.zeros((self.count, OPS))
        op_times[device, list(stages[device])] = self.times[device, list(stages[device])]
        alone = op_times.sum(axis=1)
        return np.concatenate(
            [op_times.ravel(), alone, alone * crowd, np.arange(self.count) == device]
        )

    def prior(self, error: float) -> np.ndarray:
        scale = posterior.SCALE**2 / 2 * self.kin
        overhead = (posterior.OVERHEAD * self.times.sum(axis=1).mean() / self.count) ** 2 * self.kin
        op_errors = error**2 * np.kron(self.kin, np.eye(OPS))
        parts = [op_errors, scale, scale, overhead]
        ends = np.cumsum([0, *(len(p) for p in parts)])
        covariance = np.zeros((ends[-1], ends[-1]))
        for a, b, part in zip(ends, ends[1:], parts, strict=False):
            covariance[a:b, a:b] = part
        return covariance

    def covariance(self, error: float, noise: float) -> np.ndarray:
        return self.design @ self.prior(error) @ self.design.T + np.diag(
            (noise * self.stage_times) ** 2
        )

    def log_evidence(self, error: float, noise: float) -> float:
        covariance = self.covariance(error, noise)
        prior = -0.5 * (math.log(error / 0.2) ** 2 + math.log(noise / 0.02) ** 2)
        return prior - 0.5 * (
            self.gap @ np.linalg.inv(covariance) @ self.gap + np.linalg.slogdet(covariance)[1]
        )

    def posterior(self, error: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of all parameters."""
        prior = self.prior(error)
        pull = prior @ self.design.T @ np.linalg.inv(self.covariance(error, noise))
        return pull @ self.gap, prior - pull @ self.design @ prior

    def mean(self) -> np.ndarray:
        return sum(
            w * self.posterior(*pair)[0] for w, pair in zip(self.likely, self.pairs, strict=True)
        )

    def times_at(self, crowd: float) -> np.ndarray:
        model_costs, alone, among, _ = np.split(
            self.mean(), np.cumsum([self.count * OPS, self.count, self.count])
        )
        return self.times * (
            1 + model_costs.reshape(self.count, OPS) + (alone + among * crowd)[:, None]
        )

    def overheads(self) -> np.ndarray:
        return self.mean()[-self.count :]


SPLITS: list[Stages] = [
    ((0, 1), (2, 3), (4, 5)),
    ((0,), (1, 2, 3), (4, 5)),
    ((0, 1, 2), (3,), (4, 5)),
]
FEWER: list[Stages] = [
    ((0, 1, 2), (3, 4, 5), ()),
    ((), (0, 1, 2, 3, 4, 5), ()),
    ((0, 1), (), (2, 3, 4, 5)),
]
CASES = [
    pytest.param(1, ALIKE, SPLITS, False, id="alike"),
    pytest.param(3, MIXED, SPLITS, False, id="two-kinds"),
    pytest.param(1, ALIKE, SPLITS + FEWER, True, id="empty-stages"),
    pytest.param(3, MIXED, FEWER, True, id="empty-stages-of-two-kinds"),
    pytest.param(3, ALIKE, SPLITS[:1], False, id="one-trial"),
]


def table(rows: tuple[tuple[float, ...], ...], count: int = 3) -> np.ndarray:
    return np.array([rows[d if len(rows) > 1 else 0] for d in range(count)])


def both(
    costs: CostModel, devices: Sequence[str], splits: list[Stages], empty: bool
) -> tuple[Direct, Corrected]:
    """The regression and the correction after the same measurements."""
    measured = measurements(costs, splits)
    return Direct(costs, devices, measured), correct(costs, devices, measured, empty)


@pytest.mark.parametrize(("rows", "devices", "splits", "empty"), CASES)
def test_times_and_overheads_are_those_of_the_regression(
    rows: int, devices: Sequence[str], splits: list[Stages], empty: bool
) -> None:
    direct, corrected = both(model(rows), devices, splits, empty)
    assert corrected.contention_costs.varies == empty
    for used in (1, 2, 3):
        model_costs = corrected.contention_costs.at(used)
        crowd = (used - 1) / 2 if empty else 1.0
        np.testing.assert_allclose(table(model_costs.times), direct.times_at(crowd), rtol=1e-4)
        overheads = [
            model_costs.overheads[d if len(model_costs.overheads) > 1 else 0] for d in range(3)
        ]
        np.testing.assert_allclose(overheads, np.maximum(0, 0.25 + direct.overheads()), rtol=1e-4)


@pytest.mark.parametrize(("rows", "devices", "splits", "empty"), CASES)
def test_error_and_noise_are_weighed_by_how_likely_they_are(
    rows: int, devices: Sequence[str], splits: list[Stages], empty: bool
) -> None:
    direct, corrected = both(model(rows), devices, splits, empty)
    logs = np.log(np.array(direct.pairs))
    assert [corrected.error, corrected.noise] == pytest.approx(
        np.exp(direct.likely @ logs).tolist(), rel=1e-4
    )


def drawn(corrected: Corrected, count: int, used: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and overheads of many draws."""
    rng = np.random.default_rng(3)
    costs = [corrected.draw(rng).at(used) for _ in range(count)]
    return np.array([table(c.times) for c in costs]), np.array(
        [table([[o] for o in c.overheads])[:, 0] for c in costs]
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", [False, True])
def test_draws_lie_about_the_corrected_costs_as_widely_as_is_known_of_them(empty: bool) -> None:
    costs = replace(model(3), overheads=(5.0,))
    direct, corrected = both(costs, MIXED, SPLITS + FEWER if empty else SPLITS, empty)
    for used in (1, 3) if empty else (3,):
        times, overheads = drawn(corrected, 1500, used)
        stages: Stages = ((0, 1, 2, 3), (4,), (5,)) if used == 3 else ((0, 1, 2, 3, 4, 5), (), ())
        loads = np.array(
            [times[:, d, list(ops)].sum(axis=1) + overheads[:, d] for d, ops in enumerate(stages)]
        )
        for d in range(3):
            if not stages[d]:
                continue
            row = direct.row(stages, d)
            parts = [direct.posterior(*pair) for pair in direct.pairs]
            means = np.array([row @ mean for mean, _ in parts])
            mean = direct.likely @ means
            variance = (
                direct.likely @ (means**2 + np.array([row @ c @ row for _, c in parts])) - mean**2
            )
            expected = table(costs.times)[d, list(stages[d])].sum() + 5.0 + mean
            assert abs(loads[d].mean() - expected) < 5 * math.sqrt(variance / 1500)
            assert loads[d].std() == pytest.approx(math.sqrt(variance), rel=0.15)


def test_alike_devices_are_drawn_alike_and_another_kind_apart() -> None:
    costs = model(3)
    times, overheads = drawn(correct(replace(costs, times=costs.times[:1] * 3), MIXED, []), 5, 3)
    assert (times[:, 0] == times[:, 2]).all()
    assert (times[:, 0] != times[:, 1]).any(axis=1).all()
    assert (overheads[:, 0] == overheads[:, 2]).all()


def test_servers_are_kinds_of_their_own() -> None:
    costs, servers = model(1), ("rpc:a:9090", "rpc:b:9090", "rpc:a:9090")
    corrected = correct(costs, servers, [Measured(0, SPLITS[0], (9.0, 1.0, 1.0), 9.0)])
    times = table(corrected.contention_costs.all_busy.times)
    np.testing.assert_allclose(times[0], times[2], rtol=1e-9)
    assert times[0][0] > 1.01 * times[1][0]


@pytest.mark.parametrize(("period", "ratio"), [(4.4, 1.1), (1.0, 0.5), (400.0, 2.0)])
def test_waiting_between_stages_is_believed_within_a_factor_of_two(
    period: float, ratio: float
) -> None:
    assert correct(
        model(1), ALIKE, [Measured(0, SPLITS[0], (4.0, 2.0, 2.0), period)]
    ).ratio == pytest.approx(ratio)


def test_the_usual_ratio_is_the_median() -> None:
    trials = [
        Measured(n, SPLITS[0], (2.0, 2.0, 2.0), period) for n, period in enumerate((2.0, 2.2, 4.0))
    ]
    assert correct(model(1), ALIKE, trials).ratio == pytest.approx(1.1)


def test_an_expected_period_is_that_of_the_slowest_stage() -> None:
    corrected = correct(model(1), ALIKE, [Measured(0, SPLITS[0], (3.0, 2.5, 2.0), 3.3)])
    loads = evaluate(corrected.contention_costs.all_busy, SPLITS[1]).loads
    assert corrected.period(SPLITS[1]) == pytest.approx(1.1 * max(loads))


def test_a_time_is_never_corrected_to_nothing() -> None:
    costs = model(1)
    trials = [Measured(n, SPLITS[0], (1e-3, 5.0, 5.0), 5.0) for n in range(4)]
    corrected = correct(costs, ALIKE, trials).contention_costs.all_busy
    assert table(corrected.times).min() >= cost_correction.LEAST * min(costs.times[0]) * (1 - 1e-12)
    assert min(corrected.overheads) >= 0


def test_measurements_of_another_number_of_stages_are_left_out() -> None:
    costs = model(1)
    other = [
        Measured(0, ((0, 1, 2), (3, 4, 5)), (9.0, 9.0), 9.0),
        Measured(1, SPLITS[0], (9.0, 9.0), 9.0),
    ]
    assert correct(costs, ALIKE, other).contention_costs.all_busy.times == costs.times


def test_of_very_many_trials_the_best_and_the_latest_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost_correction, "REMEMBERED", 12)  # four trials of three stages
    costs = model(1)
    periods = (9.0, 1.0, 2.0, 8.0, 7.0, 6.0, 5.0, 4.0)
    trials = [Measured(n, SPLITS[0], (p, p, p), p) for n, p in enumerate(periods)]
    assert (
        correct(costs, ALIKE, trials).contention_costs.all_busy
        == correct(costs, ALIKE, [trials[n] for n in (1, 2, 6, 7)]).contention_costs.all_busy
    )


def test_where_a_device_cannot_run_an_op_the_others_learn_of_it() -> None:
    costs = model(2)
    costs = replace(costs, times=(costs.times[0], (math.inf, *costs.times[1][1:])))
    corrected = correct(
        costs, ("cores:0", "cuda:0"), [Measured(0, ((0, 1, 2), (3, 4, 5)), (9.0, 4.0), 9.0)]
    ).contention_costs.all_busy
    assert corrected.times[1][0] == math.inf
    assert all(
        new > old for new, old in zip(corrected.times[0][:3], costs.times[0][:3], strict=True)
    )


@given(st.integers(0, 2**32 - 1), st.integers(2, OPS))
def test_devices_that_are_alike_have_one_row_of_costs(seed: int, devices: int) -> None:
    costs = model(1, seed)
    ends = np.linspace(0, OPS, devices + 1).astype(int).tolist()
    stages = tuple(tuple(range(a, b)) for a, b in pairwise(ends))
    corrected = correct(
        costs, [f"cores:{d}" for d in range(devices)], measurements(costs, [stages] * 3, seed)
    )
    drawn = corrected.draw(np.random.default_rng(seed)).all_busy
    assert len(corrected.contention_costs.all_busy.times) == len(drawn.times) == 1
