"""The document of ``split``: the ops that each cut took along, and the tensors that cross it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from autosplit import cuts
from autosplit.graph import ops_named, shown_name
from autosplit.report.documents.inspection import op_names, shape_text, tensor
from autosplit.units import counted, size

if TYPE_CHECKING:
    from autosplit.api import Split


NAMED = 6  # ops of a cut that a line has room for


def document(split: Split, after: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The document of ``split -f json`` for ``Model.split(after)``.

    The ops of a cut are those since the cut before; ``took`` are the ones that nobody named.
    """
    graph = split.model.graph
    cut_documents, before = [], 0
    for number, (names, cut) in enumerate(
        zip(after, cuts.cuts_of(graph, split.stages), strict=False), 1
    ):
        # Cuts nest: what an earlier one took along is not named again.
        ops = [graph.ops[i] for i in cuts.members(cut & ~before)]
        tensors = [tensor(graph, name) for name in cuts.live(graph, cut)]
        named = {i for name in names for i in ops_named(graph, name)}
        unnamed = [graph.ops[i] for i in cuts.members(cut & ~before) if i not in named]
        cut_documents.append(
            {
                "number": number,
                "after": list(names),
                "ops": [op.name for op in ops],
                "took": op_names(unnamed),
                "tensors": tensors,
                "bytes": sum(t["bytes"] for t in tensors),
            }
        )
        before = cut
    stages = []
    for index, ports in enumerate(split.model.wiring(split.stages).stages):
        stages.append(
            {
                "index": index,
                "ops": op_names([graph.ops[i] for i in ports.ops]),
                "inputs": [p.name for p in ports.inputs],
                "outputs": [p.name for p in ports.outputs],
            }
        )
    return {"model": graph.name, "cuts": cut_documents, "stages": stages}


def title(cut: dict[str, Any]) -> str:
    """A cut in one line."""
    text = f"cut {cut['number']} after {', '.join(cut['after'])}"
    took = [shown_name(op["name"], op["sources"]) for op in cut["took"]]
    if len(took) > NAMED:
        # The last ones are those beside the cut.
        took = [f"{len(took) - NAMED} other ops (-f json lists them)", *took[-NAMED:]]
    if took:
        text += f"; also contains {', '.join(took)}"
    return text


def rows(document: dict[str, Any], cut: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """One row a tensor that crosses the cut: name, shape, dtype, size, producer, readers."""
    ops = [op for stage in document["stages"] for op in stage["ops"]]
    titles = {op["name"]: shown_name(op["name"], op["sources"]) for op in ops}
    for t in cut["tensors"]:
        shape, readers = shape_text(t["shape"]), ", ".join(map(titles.__getitem__, t["consumers"]))
        yield t["name"], shape, t["dtype"], size(t["bytes"]), titles[t["producer"]], readers


def stage_line(stage: dict[str, Any]) -> str:
    """A stage in one line."""
    reads, makes = ", ".join(stage["inputs"]) or "nothing", ", ".join(stage["outputs"])
    ops = counted(len(stage["ops"]), "op")
    return f"stage {stage['index']}: {ops}, reads {reads}, makes {makes}"
