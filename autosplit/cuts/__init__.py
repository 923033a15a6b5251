"""Legal cuts of a graph: downsets as bitsets of op indices.

``downsets`` enumerates the cuts, ``stages`` converts nested cuts to stages and back, ``counting``
counts cuts, ``contraction`` merges ops that must stay together, ``groups`` finds the nearest cuts
that hold no such group in part, ``orders`` has topological orders.
Imports ``graph``, ``errors`` and ``lazy``.
"""

from autosplit.cuts.contraction import Contraction, contract
from autosplit.cuts.counting import Count, count
from autosplit.cuts.downsets import (
    Ordered,
    TooManyDownsets,
    closure,
    closures,
    downsets,
    full,
    is_downset,
    members,
)
from autosplit.cuts.groups import last_ops, with_whole_groups, without_torn_groups
from autosplit.cuts.orders import successors, topological
from autosplit.cuts.stages import cuts_of, live, stages
from autosplit.graph import bitset

__all__ = [
    "Contraction",
    "Count",
    "Ordered",
    "TooManyDownsets",
    "bitset",
    "closure",
    "closures",
    "contract",
    "count",
    "cuts_of",
    "downsets",
    "full",
    "is_downset",
    "last_ops",
    "live",
    "members",
    "stages",
    "successors",
    "topological",
    "with_whole_groups",
    "without_torn_groups",
]
