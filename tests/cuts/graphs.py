"""Small fused graphs and random orders for the tests of cuts."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from autosplit.graph import FusedGraph, Op, build


def diamond(outputs: tuple[str, ...] = ("d",)) -> FusedGraph:
    """x -> a -> (b, c) -> d; a's tensor is read twice."""
    ops = (
        Op("A", "k", (), ("x",), ("a",)),
        Op("B", "k", (), ("a",), ("b",)),
        Op("C", "k", (), ("a", "x"), ("c",)),
        Op("D", "k", (), ("b", "c"), ("d",)),
    )
    return build("diamond", ops, dict.fromkeys("xabcd", ((1,), "float32", 4)), ("x",), outputs)


@dataclass(frozen=True)
class Order:
    predecessors: tuple[int, ...]


@st.composite
def orders(draw: st.DrawFn, most: int = 8) -> Order:
    n = draw(st.integers(0, most))
    return Order(
        tuple(
            draw(st.integers(0, (1 << i) - 1)) & draw(st.integers(0, (1 << i) - 1))
            for i in range(n)
        )
    )


def listed(order: Order) -> set[int]:
    """All downsets by trying every set of ops."""
    n = len(order.predecessors)
    return {
        s
        for s in range(1 << n)
        if all(not order.predecessors[i] & ~s for i in range(n) if s >> i & 1)
    }
