"""Legal cuts of a graph: downsets as bitsets of op indices.

``downsets`` has the bitsets, ``stages`` what lies between nested cuts, ``counting`` how many there
are, ``contraction`` ops that stay together, ``groups`` cuts near one that tears them,
``orders`` topological orders.
Imports ``graph`` and ``errors``.
"""

from autosplit.cuts.contraction import Contraction, contract
from autosplit.cuts.counting import Count, count
from autosplit.cuts.downsets import (
    Ordered,
    TooManyDownsets,
    bitset,
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
