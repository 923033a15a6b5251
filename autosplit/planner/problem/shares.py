"""How devices share work at best: a bound of the period from work alone, transfers left out.

With weights that sum to 1, the weighted mean of the loads is at most the largest load, and at least
the sum over the ops of each at its cheapest weighted device. With the best weights that is the
bound of the linear program that assigns ops to devices, whose dual variables they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 40


def device_shares(
    times: NDArray[np.float64], overheads: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weights of devices with the largest bound that a few rounds give; none of them is 0.

    ``times``: devices x ops, infinite where a device cannot run an op. Multiplicative weights
    (Arora, Hazan and Kale 2012): a device that the cheapest choice overloads gets a larger weight.
    """
    devices, ops = times.shape
    even = np.full(devices, 1 / devices)
    if not ops or ((times == times[0]).all() and (overheads == overheads[0]).all()):
        return even
    finite = np.isfinite(times)
    mean = np.where(finite, times, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)
    # A device without any work would be infinitely fast.
    speed = 1 / np.maximum(mean, mean.max() * 1e-9 + 1e-300)
    shares, best, most = speed / speed.sum(), even, 0.0
    for n in range(_ROUNDS):
        device = (times * shares[:, None]).argmin(axis=0)
        loads = np.bincount(device, times[device, np.arange(ops)], devices) + overheads
        bound = float(shares @ loads)
        if bound > most:
            best, most = shares, bound
        if not 0 < bound < np.inf:
            break
        shares = shares * np.exp(np.minimum((loads / bound - 1) / (2 * n + 2), 1.0))
        shares = np.maximum(shares / shares.sum(), 1e-9)
        shares /= shares.sum()
    return best
