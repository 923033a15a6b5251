"""The posterior of op times and stage overheads, given the times of measured stages: Gaussian, so linear algebra.

Model: the true time of op i on device d is its profiled time times 1 + g_d + x_i,d. ``x`` is the op's own error with
relative deviation ``error``, ``g`` a common scale (contention, clock) and each stage adds an overhead o_d. A measured
stage time is the sum over its ops, its transfers and o_d, with relative noise. All are Gaussian, so the posterior
given the measured stages is linear algebra on one matrix with a row per measured stage (Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, section 2.2). ``error`` and the noise are those of a small grid that
make the measurements most likely (section 5.2). Devices of one kind (``cores:0``, ``cores:1``) share their errors,
others by half. Where stages may stay empty half of the variance of g grows with the stages that run at once: what they
slow each other down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts.stages import Stages

Array = NDArray[np.float64]

ERRORS = (0.01, 0.03, 0.08, 0.2, 0.4, 0.8)  # relative error of one profiled op
NOISES = (0.003, 0.01, 0.02, 0.05, 0.1)  # relative noise of one measured stage time
_USUAL_ERROR, _USUAL_NOISE = (
    0.2,
    0.02,
)  # centre of the prior over the grids, one unit of log deviation wide
_UNLIKELY = 6.0  # difference of log likelihoods beyond which an error and noise are left out
SCALE = 0.3  # relative deviation of the common scale of a device
OVERHEAD = 0.05  # deviation of a stage's overhead, relative to the mean stage
OTHER_KIND = 0.5  # correlation of errors between devices of different kinds


@dataclass(frozen=True)
class Rows:
    """Measured stages as rows: the profiled time of their ops (else 0), their device, prior and measured time in ms.

    ``crowd``: how many of the devices ran stages beside it, from 0 for none to 1 for all.
    """

    ops: Array
    device: NDArray[np.int64]
    crowd: Array
    prior: Array
    measured: Array

    @cached_property
    def totals(self) -> Array:
        """The profiled time of each stage."""
        return np.asarray(self.ops.sum(axis=1))

    @cached_property
    def shared(self) -> Array:
        """For each pair of stages the sum of squares of the ops in both."""
        return np.asarray(self.ops @ self.ops.T)


@dataclass(frozen=True)
class Update:
    """The posterior for one pair of error and noise. ``times``: device by op; ``kinship``: correlation of devices."""

    times: Array
    kinship: Array
    rows: Rows
    error: float
    noise: float

    @cached_property
    def overhead_variance(self) -> float:
        """Of the overhead of a stage, in ms²."""
        return float((OVERHEAD * self.times.sum(axis=1).mean() / len(self.times)) ** 2)

    @cached_property
    def covariance(self) -> Array:
        """Of the measured stages, noise included."""
        rows = self.rows
        covariance = self._covariance(rows.shared, rows.totals, rows.device, rows.crowd)
        spread = (self.noise * rows.measured) ** 2 + 1e-9 * np.diag(covariance) + 1e-18
        return np.asarray(covariance + np.diag(spread), dtype=np.float64)

    @cached_property
    def cholesky(self) -> Array:
        """The lower root of ``covariance``."""
        return np.asarray(np.linalg.cholesky(self.covariance), dtype=np.float64)

    @cached_property
    def weights(self) -> Array:
        """How strongly each measured stage pulls: what it missed over the covariance."""
        return self.solve(self.rows.measured - self.rows.prior)

    def _covariance(
        self, shared: Array, totals: Array, device: NDArray[np.int64], crowd: Array
    ) -> Array:
        """Prior covariance of some stages with the measured ones."""
        common = (
            SCALE**2
            * np.outer(totals, self.rows.totals)
            * (0.5 + 0.5 * np.outer(crowd, self.rows.crowd))
        )
        kinship = self.kinship[np.ix_(device, self.rows.device)]
        return np.asarray((self.error**2 * shared + common + self.overhead_variance) * kinship)

    def log_likelihood(self) -> float:
        """How likely the measurements are for this error and noise, and these themselves, but for a constant."""
        residual = self.rows.measured - self.rows.prior
        log_prior = -0.5 * (
            math.log(self.error / _USUAL_ERROR) ** 2 + math.log(self.noise / _USUAL_NOISE) ** 2
        )
        return (
            log_prior
            - 0.5 * float(residual @ self.weights)
            - float(np.log(np.diag(self.cholesky)).sum())
        )

    def corrections(self, weights: Array, crowd: float) -> tuple[Array, Array]:
        """Per device and op the factor on its profiled time, and per device the overhead to add, in ms.

        ``crowd`` as in the rows: how crowded the devices are that the factors are for.
        """
        first, kind = self._kinds
        pull = (
            self.kinship[first][:, self.rows.device] * weights
        )  # kind of device by measured stage
        common = SCALE**2 * (pull @ (self.rows.totals * (0.5 + 0.5 * crowd * self.rows.crowd)))
        factors = 1 + self.error**2 * (pull @ self.rows.ops) + common[:, None]
        return factors[kind], self.overhead_variance * pull.sum(axis=1)[kind]

    def draw(self, rng: np.random.Generator, crowds: Sequence[float]) -> list[tuple[Array, Array]]:
        """Factors and overheads drawn from the posterior: drawn from the prior, then corrected by what they miss.

        One pair for each of ``crowds``, all of one draw.
        (Matheron's rule; Wilson et al., Efficiently sampling functions from Gaussian process posteriors, 2020, section 3.)
        """
        values, vectors = np.linalg.eigh(self.kinship)
        first, kind = self._kinds
        root = (vectors * np.sqrt(np.maximum(values, 0.0)))[first]
        kinds, ops = self.times.shape
        own = self.error * (root @ rng.normal(size=(kinds, ops)))[kind]
        alone = SCALE * (root @ rng.normal(size=(kinds, 1)))[kind]
        overheads = math.sqrt(self.overhead_variance) * (root @ rng.normal(size=kinds))[kind]
        rows, device = self.rows, self.rows.device
        errors = rng.normal(size=len(device))
        among = np.zeros((kinds, 1))
        if (
            len(crowds) > 1
        ):  # half of the common scale is there for a stage by itself, half comes with the others
            alone, among = math.sqrt(0.5) * np.stack(
                [alone, SCALE * (root @ rng.normal(size=(kinds, 1)))[kind]]
            )
        common = (alone + among * rows.crowd)[device, np.arange(len(device))]
        stages = (
            rows.prior
            + (rows.ops * own[device]).sum(axis=1)
            + rows.totals * common
            + overheads[device]
        )
        weights = self.solve(rows.measured - stages - self.noise * rows.measured * errors)
        corrected = [self.corrections(weights, crowd) for crowd in crowds]
        return [
            (factors + own + alone + among * crowd, more + overheads)
            for crowd, (factors, more) in zip(crowds, corrected, strict=True)
        ]

    @cached_property
    def _kinds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """A device of each kind, and each device's kind: what is worked out once a kind is alike to the last digit."""
        _, first, kind = np.unique(self.kinship, axis=0, return_index=True, return_inverse=True)
        return first, kind.ravel()

    def solve(self, residual: Array) -> Array:
        """The residual over the covariance of the measured stages."""
        return np.asarray(np.linalg.solve(self.covariance, residual))

    def deviations(self, stages: Stages) -> tuple[float, ...]:
        """For each stage of a split the standard deviation of its time, in ms; 0 for an empty one."""
        device = np.arange(len(stages))
        ops = np.zeros((len(stages), self.times.shape[1]))
        for s, members in enumerate(stages):
            ops[s, list(members)] = self.times[s, list(members)]
        totals = ops.sum(axis=1)
        crowd = np.full(len(stages), crowded(sum(map(bool, stages)), len(self.times)))
        scale = SCALE**2 * (0.5 + 0.5 * crowd**2)
        prior = self.error**2 * (ops**2).sum(axis=1) + scale * totals**2 + self.overhead_variance
        known = np.linalg.solve(
            self.cholesky, self._covariance(ops @ self.rows.ops.T, totals, device, crowd).T
        )
        spread = np.sqrt(np.maximum(prior - (known**2).sum(axis=0), 0.0))
        return tuple(np.where([bool(members) for members in stages], spread, 0.0).tolist())


def weighed(times: Array, kinship: Array, rows: Rows) -> tuple[tuple[Update, ...], Array]:
    """The updates for each error and noise that is not out of the question, and how likely each is."""
    if not len(rows.measured):
        return (Update(times, kinship, rows, _USUAL_ERROR, _USUAL_NOISE),), np.ones(1)
    grid = [Update(times, kinship, rows, error, noise) for error in ERRORS for noise in NOISES]
    logs = np.array([update.log_likelihood() for update in grid])
    kept = np.flatnonzero(logs > logs.max() - _UNLIKELY)
    likely = np.exp(logs[kept] - logs.max())
    return tuple(grid[n] for n in kept), likely / likely.sum()


def kinship_of(devices: Sequence[str]) -> Array:
    """The correlation of the errors of each pair of devices: 1 for two of one kind."""
    kinds = [
        d if d.startswith(("rpc:", "tracker:")) else d.partition(":")[0] for d in devices
    ]  # servers may differ
    return np.array([[1.0 if a == b else OTHER_KIND for b in kinds] for a in kinds])


def crowded(used: int, devices: int) -> float:
    """How crowded the devices are where ``used`` of them run stages: from 0 for one to 1 for all."""
    return (used - 1) / (devices - 1) if devices > 1 else 1.0
