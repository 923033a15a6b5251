"""The posterior of op times and stage overheads, given the times of measured stages.

Model: the true time of op i in row r of the cost table is its known time times 1 + g_r + x_i,r.
``x`` is the op's own error, of relative deviation ``error``; ``g`` is a common scale (contention,
clock), and each stage adds an overhead o_r. A measured stage time is the sum over its ops, its
transfers and o_r, with relative noise. All are Gaussian, so the posterior is linear algebra on one
matrix with one row per measured stage (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, section 2.2). ``error`` and the noise are taken from a small grid, weighted by the
likelihood of the measurements (section 5.2).

The errors of two rows are correlated: by 1 if kind of device, runtime, threads and batch are equal,
and by half as much for each of these that differs. The correlations of ``g`` may differ from those
of ``x``. Half of the variance of ``g`` grows with the number of devices that are busy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from autosplit.deployment import Row

Array = NDArray[np.float64]

ERRORS = (0.01, 0.03, 0.08, 0.2, 0.4, 0.8)  # relative error of one profiled op
NOISES = (0.003, 0.01, 0.02, 0.05, 0.1)  # relative noise of one measured stage time
# The prior over both grids has its centre here and is one unit of log deviation wide.
_USUAL_ERROR, _USUAL_NOISE = 0.2, 0.02
_UNLIKELY = 6.0  # difference of log likelihoods beyond which a pair of error and noise is left out
CONTENTIONS = (0.0, 1.0)  # of stages that run alone, and beside stages on all other devices
SCALE = 0.3  # relative deviation of the common scale of a row
OVERHEAD = 0.05  # deviation of a stage's overhead, relative to the mean stage
OTHERS = 0.5  # correlation of rows that differ in the kind of device, runtime, threads or batch
SCALE_OF_THREADS = 0.9  # correlation of common scales of rows that differ in threads or batch


@dataclass(frozen=True)
class StageRows:
    """Measured stages, one per row of each array.

    ``ops``: the known time of each op of the stage, 0 for other ops; ``row``: its row of the cost
    table; ``contention``: the share of the other devices that ran stages beside it, from 0 to 1;
    ``prior`` and ``measured``: its expected and its measured time in ms.
    """

    ops: Array
    row: NDArray[np.int64]
    contention: Array
    prior: Array
    measured: Array

    @cached_property
    def totals(self) -> Array:
        """The profiled time of each stage."""
        return np.asarray(self.ops.sum(axis=1))

    @cached_property
    def shared(self) -> Array:
        """For each pair of stages the sum of products of the times of the ops in both."""
        return np.asarray(self.ops @ self.ops.T)


@dataclass(frozen=True)
class Prior:
    """What is known of op times beside the error and the noise.

    ``times``: row of the cost table by op; ``correlation``: of the errors of each pair of rows,
    ``scale_correlation``: of their common scales. ``stages``: how many a deployment usually has.
    """

    times: Array
    correlation: Array
    scale_correlation: Array
    rows: StageRows
    stages: int

    @cached_property
    def overhead_variance(self) -> float:
        """The variance of the overhead of a stage, in ms²."""
        return float((OVERHEAD * self.times.sum(axis=1).mean() / self.stages) ** 2)

    @cached_property
    def covariances(self) -> tuple[Array, Array]:
        """Covariances of measured stages by common ops, for an error of 1, and by all else."""
        rows = self.rows
        pairs = np.ix_(rows.row, rows.row)
        scale = SCALE**2 * np.outer(rows.totals, rows.totals)
        scale *= 0.5 + 0.5 * np.outer(rows.contention, rows.contention)
        correlation, scale_correlation = self.correlation[pairs], self.scale_correlation[pairs]
        by_others = self.overhead_variance * correlation + scale * scale_correlation
        return rows.shared * correlation, by_others

    @cached_property
    def roots(self) -> tuple[Array, Array]:
        """Square roots of the correlation matrices of errors and of scales."""
        return _square_root(self.correlation), _square_root(self.scale_correlation)


@dataclass(frozen=True)
class Posterior:
    """The posterior for one pair of error and noise."""

    prior: Prior
    error: float
    noise: float

    @cached_property
    def covariance(self) -> Array:
        """The covariance of the times of the measured stages, noise included."""
        by_ops, by_others = self.prior.covariances
        covariance = self.error**2 * by_ops + by_others
        diagonal = np.diag(covariance)
        # The last two terms keep the matrix positive definite where the noise is next to nothing.
        noise = (self.noise * self.prior.rows.measured) ** 2 + 1e-9 * diagonal + 1e-18
        np.fill_diagonal(covariance, diagonal + noise)
        return np.asarray(covariance, dtype=np.float64)

    @cached_property
    def weights(self) -> Array:
        """The weight of each measured stage: the inverse covariance times the residuals."""
        return np.asarray(self.inverse @ self.residual)

    @property
    def residual(self) -> Array:
        """How much longer each measured stage took than was expected."""
        return self.prior.rows.measured - self.prior.rows.prior

    @cached_property
    def inverse(self) -> Array:
        """The inverse of the covariance."""
        return np.asarray(np.linalg.inv(self.covariance), dtype=np.float64)

    def log_likelihood(self) -> float:
        """The log likelihood plus the log prior of this error and noise, up to a constant."""
        error, noise = self.error / _USUAL_ERROR, self.noise / _USUAL_NOISE
        log_prior = -0.5 * (math.log(error) ** 2 + math.log(noise) ** 2)
        # The factor's diagonal gives the determinant without underflow.
        cholesky = np.linalg.cholesky(self.covariance)
        log_determinant = float(np.log(np.diag(cholesky)).sum())
        scaled = np.linalg.solve(cholesky, self.residual)
        return log_prior - 0.5 * float(scaled @ scaled) - log_determinant

    def corrections(self, weights: Array) -> tuple[Array, Array]:
        """The factor on each known time, row by op, and the overhead of each row in ms.

        ``weights``: of the measured stages, along the last axis. The factors have an additional
        first axis with one entry for each of the ``CONTENTIONS``.
        """
        prior, rows = self.prior, self.prior.rows
        # By row of the cost table and measured stage.
        pull = prior.correlation[:, rows.row] * weights[..., None, :]
        scales = [rows.totals * (0.5 + 0.5 * level * rows.contention) for level in CONTENTIONS]
        pulls = np.stack([(weights * s) @ prior.scale_correlation[rows.row] for s in scales])
        common = SCALE**2 * pulls
        factors = 1 + self.error**2 * (pull @ rows.ops) + common[..., None]
        return factors, prior.overhead_variance * pull.sum(axis=-1)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Corrections drawn from the posterior, on the axis before those of rows and ops.

        They are drawn from the prior, then corrected by their residuals (Matheron's rule; Wilson et
        al., Efficiently sampling functions from Gaussian process posteriors, 2020, section 3).
        """
        prior, rows, row = self.prior, self.prior.rows, self.prior.rows.row
        root, scale_root = prior.roots
        table, ops = prior.times.shape
        op_errors = self.error * (root @ rng.normal(size=(count, table, ops)))
        scale = SCALE * (scale_root @ rng.normal(size=(count, table, 1)))
        overheads = math.sqrt(prior.overhead_variance) * (rng.normal(size=(count, table)) @ root.T)
        noise = rng.normal(size=(count, len(row)))
        # Half of the variance of the common scale is there for a lone stage, half with contention.
        contended = SCALE * (scale_root @ rng.normal(size=(count, table, 1)))
        scale, contended = math.sqrt(0.5) * np.stack([scale, contended])
        common = (scale + contended * rows.contention)[:, row, np.arange(len(row))]
        op_sums = np.zeros((count, len(row)))
        for n in np.unique(row):
            op_sums[:, row == n] = op_errors[:, n] @ rows.ops[row == n].T
        drawn = rows.prior + op_sums + rows.totals * common + overheads[:, row]
        missed = rows.measured - drawn - self.noise * rows.measured * noise
        factors, corrections = self.corrections(missed @ self.inverse)
        levels = np.multiply.outer(CONTENTIONS, contended)
        return factors + op_errors + scale + levels, corrections + overheads


def _square_root(correlation: Array) -> Array:
    """The matrix that turns independent random numbers into correlated ones."""
    values, vectors = np.linalg.eigh(correlation)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def likely_posteriors(prior: Prior) -> tuple[tuple[Posterior, ...], Array]:
    """The posteriors for each pair of error and noise that is not ruled out, and their weights."""
    if not len(prior.rows.measured):
        return (Posterior(prior, _USUAL_ERROR, _USUAL_NOISE),), np.ones(1)
    grid = [Posterior(prior, *pair) for pair in product(ERRORS, NOISES)]
    logs = np.array([posterior.log_likelihood() for posterior in grid])
    # A few trials rule out most of the grid; only the rest is used.
    likely = np.flatnonzero(logs > logs.max() - _UNLIKELY)
    weights = np.exp(logs[likely] - logs.max())
    return tuple(grid[n] for n in likely), weights / weights.sum()


def correlations(rows: Sequence[Row]) -> tuple[Array, Array]:
    """Correlations of the errors and of the common scales of each pair of rows of the cost table.

    Rows that differ only in threads or batch share most of the scale: the same clock makes the
    profile wrong for all of them, and busy cores slow all of them down.
    """
    kinds = [_kind_of_device(row.kind) for row in rows]
    shared = _shared(kinds) * _shared([row.runtime for row in rows])
    errors, scales = shared, shared
    for values in ([row.threads for row in rows], [row.batch for row in rows]):
        errors = errors * _shared(values)
        scales = scales * _shared(values, SCALE_OF_THREADS)
    return errors, scales


def _kind_of_device(name: str) -> str:
    """The part of a device's name that devices of one clock share; servers and nodes may differ."""
    if name.startswith(("rpc:", "tracker:")):
        return name
    return name.partition("/")[0] if name.startswith("ray:") else name.partition(":")[0]


def _shared(values: Sequence[object], share: float = OTHERS) -> Array:
    """1 for each pair of equal values, else ``share``."""
    codes = np.array([values.index(value) for value in values])
    return np.where(codes[:, None] == codes, 1.0, share)
