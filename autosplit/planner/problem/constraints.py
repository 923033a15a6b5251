"""What a split must satisfy beyond being legal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Constraints:
    """Conditions on a split, in the user's words: ops by id, tensors by name, stages and devices by index from 0.

    ``keep_together``: ops that stay on one stage; ``stages``: op to stage; ``devices``: op to device of the cost model;
    ``forbid``: tensors that no cut may separate from a reader; ``require``: tensors that some cut separates from a
    reader; ``live_tensors`` and ``live_bytes``: the most that may be live at any cut; ``memory``: bytes each device
    holds, one value for all or one per device.
    """

    keep_together: Sequence[Sequence[str | int]] = ()
    stages: Mapping[str | int, int] = field(default_factory=dict)
    devices: Mapping[str | int, int] = field(default_factory=dict)
    forbid: Sequence[str] = ()
    require: Sequence[str] = ()
    live_tensors: int | None = None
    live_bytes: float | None = None
    memory: Sequence[float] = (math.inf,)


FREE = Constraints()
