"""The correction against the same Gaussian model, written out parameter by parameter."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.deployment import Option, Row, Stage
from autosplit.planner import CostModel, Kind, Question, RowCosts, Transfer, evaluate
from autosplit.planner.batch import BatchEvaluator
from autosplit.study.surrogate import correction, posterior
from autosplit.study.surrogate.correction import Measured, correct

OPS = 6
CHAIN = tuple(1 << i - 1 if i else 0 for i in range(OPS))
ALIKE, MIXED = ("cores:0",), ("cores:0", "cuda:0")


def model(kinds=ALIKE, overhead=0.25, seed=0):
    """A chain with transfers and overheads, a row of times for each kind of devices."""
    rng = np.random.default_rng(seed)
    transfers = tuple(Transfer(f"t{i}", i, (i + 1,), 8.0) for i in range(OPS - 1))
    times = [tuple(rng.uniform(0.5, 2, OPS).tolist()) for _ in kinds]
    sent = tuple(rng.uniform(0, 0.3, OPS - 1).tolist())
    rows = tuple(RowCosts(Row(k, "r"), t, overhead) for k, t in zip(kinds, times, strict=True))
    names = tuple(f"op{i}" for i in range(OPS))
    every_kind = tuple(Kind(kind, sent, sent) for kind in kinds)
    return CostModel("c", names, CHAIN, rows, every_kind, transfers)


def split(*ends, kinds=ALIKE * 3):
    """Stages that end before some ops, each on a kind of devices."""
    pairs = zip(pairwise((0, *ends, OPS)), kinds, strict=False)
    return tuple(Stage(tuple(range(a, b)), (Option(Row(k, "r")),)) for (a, b), k in pairs)


def question(costs, empty):
    kinds = [kind.name for kind in costs.kinds]
    counts = {"cores:0": 3} if len(kinds) == 1 else {"cores:0": 2, "cuda:0": 1}
    return Question(counts, stages=None if empty else 3)


def measurements(costs, splits, seed=1):
    """What splits measured: their costs, each stage up to half as slow again."""
    rng = np.random.default_rng(seed)
    measured = []
    for n, stages in enumerate(splits):
        loads = np.array(evaluate(costs, stages).loads)
        times = tuple((loads * rng.uniform(1.0, 1.5, len(stages))).tolist())
        measured.append(Measured(n, stages, times, max(times)))
    return measured


class Direct:
    """The posterior over every single parameter.

    They are an error of each op in each row, and two common scales and an overhead of each row. A
    pair of error and noise is as likely as the measurements are under it.
    """

    def __init__(self, costs, measured):
        self.costs, self.count = costs, len(costs.rows)
        self.times = np.array([row.times for row in costs.rows])
        kinds = [row.row.kind.split(":")[0] for row in costs.rows]
        self.kin = np.array([[1.0 if a == b else posterior.OTHERS for b in kinds] for a in kinds])
        rows = [(m, s) for m in measured for s in range(len(m.stages))]
        prior = [evaluate(costs, m.stages).loads[s] for m, s in rows]
        self.design = np.array([self.row(m.stages, s) for m, s in rows])
        self.stage_times = np.array([m.stage_ms[s] for m, s in rows])
        self.gap = self.stage_times - np.array(prior)
        pairs = [(e, n) for e in posterior.ERRORS for n in posterior.NOISES]
        logs = np.array([self.log_evidence(*pair) for pair in pairs])
        likely = [i for i in range(len(pairs)) if logs[i] > logs.max() - 6]
        weights = np.exp(logs[likely] - logs.max())
        self.pairs, self.likely = [pairs[i] for i in likely], weights / weights.sum()

    def row(self, stages, place):
        """What each parameter adds to the time of one stage of a split."""
        crowd = (len(stages) - 1) / 2
        row = self.costs.row_index[stages[place].options[0].row]
        ops = list(stages[place].ops)
        op_times = np.zeros((self.count, OPS))
        op_times[row, ops] = self.times[row, ops]
        alone = op_times.sum(axis=1)
        parts = [op_times.ravel(), alone, alone * crowd, np.arange(self.count) == row]
        return np.concatenate(parts)

    def prior(self, error):
        scale = posterior.SCALE**2 / 2 * self.kin
        overhead = (posterior.OVERHEAD * self.times.sum(axis=1).mean() / 3) ** 2 * self.kin
        op_errors = error**2 * np.kron(self.kin, np.eye(OPS))
        parts = [op_errors, scale, scale, overhead]
        ends = np.cumsum([0, *(len(p) for p in parts)])
        covariance = np.zeros((ends[-1], ends[-1]))
        for a, b, part in zip(ends, ends[1:], parts, strict=False):
            covariance[a:b, a:b] = part
        return covariance

    def covariance(self, error, noise):
        own_noise = np.diag((noise * self.stage_times) ** 2)
        return self.design @ self.prior(error) @ self.design.T + own_noise

    def log_evidence(self, error, noise):
        covariance = self.covariance(error, noise)
        prior = -0.5 * (math.log(error / 0.2) ** 2 + math.log(noise / 0.02) ** 2)
        fit = self.gap @ np.linalg.inv(covariance) @ self.gap
        return prior - 0.5 * (fit + np.linalg.slogdet(covariance)[1])

    def posterior(self, error, noise):
        """Mean and covariance of all parameters."""
        prior = self.prior(error)
        pull = prior @ self.design.T @ np.linalg.inv(self.covariance(error, noise))
        return pull @ self.gap, prior - pull @ self.design @ prior

    def mean(self):
        weighted = zip(self.likely, self.pairs, strict=True)
        return sum(weight * self.posterior(*pair)[0] for weight, pair in weighted)

    def times_at(self, crowd):
        ends = np.cumsum([self.count * OPS, self.count, self.count])
        model_costs, alone, among, _ = np.split(self.mean(), ends)
        errors = model_costs.reshape(self.count, OPS) + (alone + among * crowd)[:, None]
        return self.times * (1 + errors)

    def overheads(self):
        return self.mean()[-self.count :]


SPLITS = [split(2, 4), split(1, 4), split(3, 4)]
FEWER = [split(3), split(), split(2)]
MIXED_SPLITS = [split(2, 4, kinds=("cores:0", "cuda:0", "cores:0"))] + [
    split(n, 4, kinds=("cuda:0", "cores:0", "cores:0")) for n in (1, 3)
]


@pytest.mark.parametrize(
    ("kinds", "splits", "empty"),
    [(ALIKE, SPLITS, False), (MIXED, MIXED_SPLITS, False), (ALIKE, SPLITS + FEWER, True),
     (MIXED, MIXED_SPLITS + FEWER, True), (MIXED, MIXED_SPLITS[:1], False)],
    ids=["alike", "two-kinds", "fewer-stages", "fewer-stages-of-two-kinds", "one-trial"],
)  # fmt: skip
def test_times_overheads_and_noise_are_those_of_the_regression(kinds, splits, empty):
    measured = measurements(costs := model(kinds), splits)
    direct = Direct(costs, measured)
    corrected = correct(BatchEvaluator(costs, question(costs, empty)), measured)
    overheads = corrected.mean.overheads
    for crowd, factors in zip((0.0, 1.0), corrected.mean.factors, strict=True):
        np.testing.assert_allclose(direct.times * factors, direct.times_at(crowd), rtol=1e-4)
        expected = np.maximum(0, 0.25 + direct.overheads())
        np.testing.assert_allclose(overheads, expected, rtol=1e-4)
    _, noise = np.exp(direct.likely @ np.log(np.array(direct.pairs))).tolist()
    assert corrected.noise == pytest.approx(noise, rel=1e-4)


@pytest.mark.parametrize("empty", [False, True])
def test_draws_lie_about_the_corrected_costs_as_widely_as_is_known_of_them(empty):
    splits = SPLITS + FEWER if empty else SPLITS
    costs = model(overhead=5.0)
    measured = measurements(costs, splits)
    direct = Direct(costs, measured)
    evaluator = BatchEvaluator(costs, question(costs, empty))
    corrected, rng = correct(evaluator, measured), np.random.default_rng(3)
    for stages in [split(4, 5), split()] if empty else [split(4, 5)]:
        batch = evaluator.batch([stages])
        drawn = corrected.loads(batch, corrected.draw(rng, 1500))[:, 0, :, 0]
        known = evaluate(costs, stages).loads
        for place in range(len(stages)):
            row = direct.row(stages, place)
            parts = [direct.posterior(*pair) for pair in direct.pairs]
            means = np.array([row @ mean for mean, _ in parts])
            mean = direct.likely @ means
            spread = direct.likely @ (means**2 + np.array([row @ c @ row for _, c in parts]))
            deviation = math.sqrt(spread - mean**2)
            loads = drawn[:, place]
            assert abs(loads.mean() - known[place] - mean) < 5 * deviation / math.sqrt(1500)
            assert loads.std() == pytest.approx(deviation, rel=0.15)


def test_rows_of_one_clock_share_their_scale_and_others_learn_half():
    rows = [Row("cores:0", "a"), Row("cores:1", "a"), Row("rpc:x:1", "a"), Row("rpc:y:1", "a")]
    errors, _ = posterior.correlations(rows)
    assert errors[0].tolist() == [1.0, 1.0, 0.5, 0.5]
    assert errors[2].tolist() == [0.5, 0.5, 1.0, 0.5]
    _, scales = posterior.correlations([Row("0", "a", 1), Row("0", "a", 2), Row("0", "b", 2)])
    assert scales[0].tolist() == [1.0, 0.9, 0.45]


@pytest.mark.parametrize(("period", "ratio"), [(4.4, 1.1), (1.0, 0.5), (400.0, 2.0)])
def test_waiting_between_stages_is_believed_within_a_factor_of_two(period, ratio):
    trials = [Measured(0, SPLITS[0], (4.0, 2.0, 2.0), period)]
    corrected = corrected_by(trials)
    assert corrected.ratio == pytest.approx(ratio)
    # An expected period is that of the slowest stage.
    loads = evaluate(corrected.model(corrected.mean), SPLITS[1]).loads
    assert corrected.period(SPLITS[1]) == pytest.approx(ratio * max(loads))


def corrected_by(trials, empty=False):
    costs = model()
    return correct(BatchEvaluator(costs, question(costs, empty)), trials)


def test_a_time_is_never_corrected_to_nothing():
    trials = [Measured(n, SPLITS[0], (1e-3, 5.0, 5.0), 5.0) for n in range(4)]
    mean = corrected_by(trials).mean
    assert mean.factors.min() >= correction.LEAST * (1 - 1e-12)
    assert mean.overheads.min() >= 0


def test_stages_that_slow_each_other_down_are_told_from_costs():
    known = evaluate(model(), SPLITS[0]).loads
    trials = [
        Measured(0, SPLITS[0], tuple(1.8 * load for load in known), 1.8 * max(known)),
        Measured(1, split(), evaluate(model(), split()).loads, evaluate(model(), split()).period),
    ]
    corrected = corrected_by(trials, empty=True)
    assert corrected.period(SPLITS[1]) > 1.5 * evaluate(model(), SPLITS[1]).period
    assert corrected.period(split()) == pytest.approx(trials[1].period_ms, rel=0.1)


def test_of_very_many_trials_the_best_and_the_latest_are_looked_at(monkeypatch):
    monkeypatch.setattr(correction, "REMEMBERED", 12)  # four trials of three stages
    periods = (9.0, 1.0, 2.0, 8.0, 7.0, 6.0, 5.0, 4.0)
    trials = [Measured(n, SPLITS[0], (p, p, p), p) for n, p in enumerate(periods)]
    some = corrected_by([trials[n] for n in (1, 2, 6, 7)])
    assert (corrected_by(trials).mean.factors == some.mean.factors).all()


def test_where_a_row_cannot_run_an_op_the_others_learn_of_it():
    costs = model(MIXED)
    unable = RowCosts(costs.rows[0].row, (math.inf, *costs.rows[0].times[1:]), 0.25)
    costs = CostModel("c", costs.names, CHAIN, (unable, costs.rows[1]), costs.kinds, costs.tensors)
    evaluator = BatchEvaluator(costs, question(costs, True))
    stages = split(3, kinds=("cuda:0", "cores:0"))
    corrected = correct(evaluator, [Measured(0, stages, (9.0, 4.0), 9.0)])
    times = [row.times for row in corrected.model(corrected.mean).rows]
    assert times[0][0] == math.inf
    assert all(new > old for new, old in zip(times[1][:3], costs.rows[1].times[:3], strict=True))


@given(st.integers(0, 2**32 - 1))
def test_a_loss_of_a_replica_is_shared(seed):
    """A stage of two replicas that takes as long as one of them teaches the time of one."""
    costs = model(seed=seed)
    evaluator = BatchEvaluator(costs, Question({"cores:0": 3}, replicas=True))
    whole = Stage(tuple(range(OPS)), (Option(Row("cores:0", "r"), 2),))
    load = evaluate(costs, [whole]).loads[0]
    corrected = correct(evaluator, [Measured(0, (whole,), (load,), load / 2)])
    assert corrected.period((whole,)) == pytest.approx(load / 2, rel=0.02)
