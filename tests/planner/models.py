"""Small random cost models and questions, and all answers to them."""

import math
from itertools import product

from hypothesis import strategies as st

from autosplit.cuts import downsets, members
from autosplit.deployment import Option, Row, Stage
from autosplit.planner.costs import CostModel, Kind, RowCosts, Transfer
from autosplit.planner.evaluation import evaluate, fits
from autosplit.planner.problem import Question

MOST_OPS = 5
COSTS = st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 90.0])
OP_COSTS = st.one_of(COSTS, COSTS, COSTS, st.just(math.inf))


@st.composite
def graphs(draw, most=MOST_OPS):
    """Predecessors and tensors of up to ``most`` ops, some with a model input."""
    size = draw(st.integers(1, most))
    predecessors = tuple(draw(st.integers(0, (1 << i) - 1)) for i in range(size))
    tensors = []
    for op in range(size):
        readers = tuple(i for i in range(size) if predecessors[i] >> op & 1)
        if readers:
            tensors.append(Transfer(f"t{op}", op, readers, draw(COSTS)))
    inputs = draw(st.lists(st.integers(0, size - 1), max_size=2, unique=True))
    if inputs:
        tensors.append(Transfer("x", None, tuple(sorted(inputs)), draw(COSTS)))
    return predecessors, tensors


@st.composite
def models(draw, kinds=2, threads=(1,), batches=(1,)):
    """A cost model of up to ``kinds`` kinds of devices, in one or two runtimes."""
    predecessors, tensors = draw(graphs())
    size, count = len(predecessors), len(tensors)
    names = [f"k{n}" for n in range(draw(st.integers(1, kinds)))]
    memory = st.one_of(st.just(math.inf), st.integers(4, 20).map(float))
    moves = st.one_of(st.just(()), st.tuples(*[COSTS] * count))
    every_kind = tuple(Kind(name, draw(moves), draw(moves), draw(memory)) for name in names)
    subsets = st.integers(0, (1 << size) - 1)
    groups = st.lists(subsets, max_size=1).map(tuple)
    rows = []
    for runtime in ("a", "b")[: draw(st.integers(1, 2))]:
        of_runtime = draw(groups)
        for name, width, batch in product(names, threads, batches):
            times = draw(st.tuples(*[OP_COSTS] * size))
            rows.append(RowCosts(Row(name, runtime, width, batch), times, draw(COSTS), of_runtime))
    states = [(f"s{n}", draw(subsets)) for n in range(draw(st.integers(0, 1)))]
    return CostModel(
        name="net",
        names=tuple(f"op{i}" for i in range(size)),
        predecessors=predecessors,
        rows=tuple(rows),
        kinds=every_kind,
        tensors=tuple(tensors),
        sizes=draw(st.tuples(*[COSTS] * size)),
        activations=draw(st.booleans()),
        groups=tuple(ops for _, ops in states),
        states=tuple(states),
        streams=draw(st.integers(1, 3)),
    )


@st.composite
def split_questions(draw, costs):
    """Splits along devices in an order, on equal devices, or on devices in any order."""
    names = [kind.name for kind in costs.kinds]
    if draw(st.booleans()):
        along = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        return Question.along(along, empty=draw(st.booleans()))
    counts = {name: draw(st.integers(1, 2)) for name in names}
    stages = draw(st.one_of(st.none(), st.integers(1, sum(counts.values()))))
    together = draw(st.lists(st.sets(st.integers(0, len(costs.names) - 1), max_size=3), max_size=1))
    return Question(counts, stages=stages, keep_together=tuple(map(tuple, together)))


@st.composite
def deployment_questions(draw, costs, cores):
    """Deployments with replicas on cores or on devices."""
    counts = {kind.name: draw(st.integers(1, 4 if cores else 2)) for kind in costs.kinds}
    return Question(counts, replicas=True, cores=cores)


def answers(costs, question):
    """Every deployment that a question allows, and that fits the devices."""
    model = costs.with_groups(question.keep_together)
    contraction = model.contraction
    cuts = [contraction.expand(cut) for cut in downsets(contraction)]
    whole = (1 << len(costs.names)) - 1
    for row_batch in {row.row.batch for row in costs.rows}:
        rows = [row for row in costs.row_index if row.batch == row_batch]
        rows = [row for row in rows if row.kind in question.devices]
        for split in _chains(cuts, 0, whole, question.count):
            if question.stages not in (None, len(split)):
                continue
            for stages in _placed(question, rows, split):
                plan = evaluate(model, stages)
                if fits(model, plan):
                    yield plan


def _chains(cuts, before, whole, most):
    """The stages, bitsets of ops, of all splits after a cut."""
    if before == whole:
        yield []
    elif most:
        for cut in cuts:
            if not before & ~cut and cut != before:
                for rest in _chains(cuts, cut, whole, most - 1):
                    yield [cut & ~before, *rest]


def _placed(question, rows, split):
    """The stages of a split on the devices in all ways."""
    for chosen in _choices(question, _options(question, rows), len(split)):
        pairs = zip(split, chosen, strict=True)
        yield [Stage(tuple(members(ops)), options) for ops, options in pairs]


def _choices(question, options, count, chosen=()):
    """The options of so many stages after those chosen, as far as there are devices."""
    if len(chosen) == count:
        yield chosen
        return
    for option in options:
        if _has_devices(question, (*chosen, option)):
            yield from _choices(question, options, count, (*chosen, option))


def _options(question, rows):
    if not question.replicas:
        return [(Option(row),) for row in rows]
    if question.cores:
        counts = range(1, max(question.devices.values()) + 1)
        return [(Option(row, count),) for row in rows for count in counts]
    choices = []
    for runtime in {row.runtime for row in rows}:
        of_runtime = [row for row in rows if row.runtime == runtime]
        for numbers in product(*(range(question.devices[row.kind] + 1) for row in of_runtime)):
            options = [Option(r, n) for r, n in zip(of_runtime, numbers, strict=True) if n]
            if options:
                choices.append(tuple(options))
    return choices


def _has_devices(question, chosen):
    if question.order:
        # Each stage takes the next device of its kind along the order.
        remaining = iter(question.order)
        return all(options[0].row.kind in remaining for options in chosen)
    used = {}
    for option in (option for options in chosen for option in options):
        take = option.row.threads if question.cores else 1
        used[option.row.kind] = used.get(option.row.kind, 0) + option.replicas * take
    return all(used[kind] <= question.devices[kind] for kind in used)
