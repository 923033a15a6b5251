"""The posterior of op times and stage overheads, given the times of measured stages.

Model: the true time of op i on device d is its profiled time times 1 + g_d + x_i,d. ``x`` is the
op's own error, of relative deviation ``error``; ``g`` is a common scale (contention, clock), and
each stage adds an overhead o_d. A measured stage time is the sum over its ops, its transfers and
o_d, with relative noise. All are Gaussian, so the posterior is linear algebra on one matrix with a
row a measured stage (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section
2.2). ``error`` and the noise are taken from a small grid, weighed by the likelihood of the
measurements (section 5.2).

Devices of one kind (``cores:0``, ``cores:1``) share their errors, others by half, and so do
runtimes that compete for a stage. Where stages may stay empty, half of the variance of g grows with
the number of stages that run at once. ``g`` may be correlated otherwise than ``x``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ERRORS = (0.01, 0.03, 0.08, 0.2, 0.4, 0.8)  # relative error of one profiled op
NOISES = (0.003, 0.01, 0.02, 0.05, 0.1)  # relative noise of one measured stage time
# The prior over both grids has its centre here and is one unit of log deviation wide.
_USUAL_ERROR, _USUAL_NOISE = 0.2, 0.02
_UNLIKELY = 6.0  # difference of log likelihoods beyond which an error and noise are left out
SCALE = 0.3  # relative deviation of the common scale of a device
OVERHEAD = 0.05  # deviation of a stage's overhead, relative to the mean stage
OTHER_KIND = 0.5  # correlation of errors between devices of different kinds


@dataclass(frozen=True)
class StageRows:
    """Measured stages, a row each.

    ``ops``: the profiled time of each of its ops, else 0; ``device``: its place; ``contention``:
    how many of the devices ran stages beside it, from 0 for none to 1 for all; ``prior`` and
    ``measured``: its expected and its measured time in ms.
    """

    ops: Array
    device: NDArray[np.int64]
    contention: Array
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
class Posterior:
    """The posterior for one pair of error and noise.

    ``times``: device by op; ``correlation``: of the errors of each pair of devices,
    ``scale_correlation``: of their common scales. Where runtimes compete, a device counts once in
    each of them; ``devices`` is their number in one.
    """

    times: Array
    correlation: Array
    scale_correlation: Array
    rows: StageRows
    error: float
    noise: float
    devices: int

    @cached_property
    def overhead_variance(self) -> float:
        """Of the overhead of a stage, in ms²."""
        return float((OVERHEAD * self.times.sum(axis=1).mean() / self.devices) ** 2)

    @cached_property
    def covariance(self) -> Array:
        """Of the times of the measured stages, noise included."""
        rows = self.rows
        pairs = np.ix_(rows.device, rows.device)
        common = SCALE**2 * np.outer(rows.totals, rows.totals)
        common = common * (0.5 + 0.5 * np.outer(rows.contention, rows.contention))
        # Stages correlate by the ops they share, by the common scale, and by their overheads.
        prior = (self.error**2 * rows.shared + self.overhead_variance) * self.correlation[pairs]
        prior += common * self.scale_correlation[pairs]
        # The last two terms keep the matrix positive definite where the noise is next to nothing.
        noise = (self.noise * rows.measured) ** 2 + 1e-9 * np.diag(prior) + 1e-18
        return np.asarray(prior + np.diag(noise), dtype=np.float64)

    @cached_property
    def weights(self) -> Array:
        """How strongly each measured stage pulls: its residual over the covariance."""
        return self.solve(self.rows.measured - self.rows.prior)

    def log_likelihood(self) -> float:
        """How likely the measurements are for this error and noise, but for a constant."""
        residual = self.rows.measured - self.rows.prior
        error, noise = self.error / _USUAL_ERROR, self.noise / _USUAL_NOISE
        log_prior = -0.5 * (math.log(error) ** 2 + math.log(noise) ** 2)
        # The factor's diagonal gives the determinant without underflow.
        cholesky = np.linalg.cholesky(self.covariance)
        log_determinant = float(np.log(np.diag(cholesky)).sum())
        return log_prior - 0.5 * float(residual @ self.weights) - log_determinant

    def corrections(self, weights: Array, contention: float) -> tuple[Array, Array]:
        """The factor on each profiled time, device by op, and the overhead of each device in ms.

        ``contention``: as in the rows, of the stages that the factors are for.
        """
        rows = self.rows
        first, kind = self._kinds
        # By kind of device and measured stage.
        pull = self.correlation[first][:, rows.device] * weights
        scale = rows.totals * (0.5 + 0.5 * contention * rows.contention)
        common = SCALE**2 * (self.scale_correlation[first][:, rows.device] @ (weights * scale))
        factors = 1 + self.error**2 * (pull @ rows.ops) + common[:, None]
        return factors[kind], self.overhead_variance * pull.sum(axis=1)[kind]

    def draw(
        self, rng: np.random.Generator, contentions: Sequence[float]
    ) -> list[tuple[Array, Array]]:
        """Factors and overheads drawn from the posterior, a pair for each of ``contentions``.

        They are drawn from the prior, then corrected by what they miss (Matheron's rule; Wilson et
        al., Efficiently sampling functions from Gaussian process posteriors, 2020, section 3).
        """
        first, kind = self._kinds
        root = _square_root(self.correlation)[first]
        scale_root = _square_root(self.scale_correlation)[first]
        devices, ops = self.times.shape
        # Devices of one kind get one draw: they differ by nothing that a profile shows.
        op_errors = self.error * (root @ rng.normal(size=(devices, ops)))[kind]
        scale = SCALE * (scale_root @ rng.normal(size=(devices, 1)))[kind]
        deviation = math.sqrt(self.overhead_variance)
        overheads = deviation * (root @ rng.normal(size=devices))[kind]
        rows, device = self.rows, self.rows.device
        noise = rng.normal(size=len(device))
        contended = np.zeros((devices, 1))
        if len(contentions) > 1:
            # Half of the common scale is there for a stage alone, half comes with the others.
            contended = SCALE * (scale_root @ rng.normal(size=(devices, 1)))[kind]
            scale, contended = math.sqrt(0.5) * np.stack([scale, contended])
        common = (scale + contended * rows.contention)[device, np.arange(len(device))]
        op_sums = (rows.ops * op_errors[device]).sum(axis=1)
        drawn = rows.prior + op_sums + rows.totals * common + overheads[device]
        weights = self.solve(rows.measured - drawn - self.noise * rows.measured * noise)
        draws: list[tuple[Array, Array]] = []
        for contention in contentions:
            factors, corrections = self.corrections(weights, contention)
            factors = factors + op_errors + scale + contended * contention
            draws.append((factors, corrections + overheads))
        return draws

    def solve(self, residual: Array) -> Array:
        """The residual over the covariance of the measured stages."""
        return np.asarray(np.linalg.solve(self.covariance, residual), np.float64)

    @cached_property
    def _kinds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """A device of each kind, and the kind of each device.

        What is computed once a kind is equal to the last digit for all its devices.
        """
        unique = np.unique(self.correlation, axis=0, return_index=True, return_inverse=True)
        _, first, kind = unique
        return first, kind.ravel()


def _square_root(correlation: Array) -> Array:
    """What makes correlated numbers of independent ones."""
    values, vectors = np.linalg.eigh(correlation)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def likely_posteriors(
    times: Array, correlation: Array, scale_correlation: Array, rows: StageRows, devices: int
) -> tuple[tuple[Posterior, ...], Array]:
    """The posteriors for each pair of error and noise that is not ruled out, and their weights."""
    prior = times, correlation, scale_correlation, rows
    if not len(rows.measured):
        return (Posterior(*prior, _USUAL_ERROR, _USUAL_NOISE, devices),), np.ones(1)
    grid = [Posterior(*prior, *pair, devices) for pair in product(ERRORS, NOISES)]
    logs = np.array([posterior.log_likelihood() for posterior in grid])
    # Most of the grid is ruled out by a few trials; what remains is worth its draws.
    likely = np.flatnonzero(logs > logs.max() - _UNLIKELY)
    weights = np.exp(logs[likely] - logs.max())
    return tuple(grid[n] for n in likely), weights / weights.sum()


def device_correlation(devices: Sequence[str]) -> Array:
    """The correlation of the errors of each pair of devices: 1 for two of one kind."""
    kinds = [device.partition(":")[0] for device in devices]
    for place, device in enumerate(devices):
        if device.startswith(("rpc:", "tracker:")):  # two servers may differ
            kinds[place] = device
        elif device.startswith("ray:"):  # and two nodes
            kinds[place] = device.partition("/")[0]
    return np.where(np.equal.outer(kinds, kinds), 1.0, OTHER_KIND)


def equal_correlation(count: int, share: float = OTHER_KIND) -> Array:
    """The correlation where each pair of ``count`` shares the same part of its variance."""
    return np.asarray(np.full((count, count), share) + (1 - share) * np.eye(count))


def contention_level(used: int, devices: int) -> float:
    """How busy the devices are where ``used`` of them run stages: from 0 for one to 1 for all."""
    return (used - 1) / (devices - 1) if devices > 1 else 1.0
