"""The document of ``split``: the ops that each cut adds, and the tensors that cross it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit import cuts
from autosplit.graph import ops_named, shown_name
from autosplit.report.documents import exported
from autosplit.report.documents.inspection import op_names, shape_text, tensor
from autosplit.report.documents.table import Table
from autosplit.units import counted, size

if TYPE_CHECKING:
    from autosplit.api import Split

NAMED = 6  # ops of a cut that a line has room for


def document(split: Split, after: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The document of ``split -f json`` for ``Model.split(after)``.

    ``ops`` of a cut are those after the previous cut; ``took`` are those that were not named.
    """
    graph = split.model.graph
    cut_documents, before = [], 0
    pairs = zip(after, cuts.cuts_of(graph, split.stages), strict=False)
    for number, (names, cut) in enumerate(pairs, 1):
        # Cuts are nested: ops of an earlier cut are not listed again.
        ops = [graph.ops[i] for i in cuts.members(cut & ~before)]
        tensors = [tensor(graph, name) for name in cuts.live(graph, cut)]
        named = {i for name in names for i in ops_named(graph, name)}
        unnamed = [graph.ops[i] for i in cuts.members(cut & ~before) if i not in named]
        entry = {"number": number, "after": list(names), "ops": [op.name for op in ops]}
        entry |= {"took": op_names(unnamed), "tensors": tensors}
        cut_documents.append(entry | {"bytes": sum(t["bytes"] for t in tensors)})
        before = cut
    stages = [
        {
            "index": spec.index,
            "ops": op_names(spec.ops),
            "inputs": [p.name for p in spec.inputs],
            "outputs": [p.name for p in spec.outputs],
        }
        for spec in split.model.wiring(split.stages).stages
    ]
    return {"model": graph.name, "cuts": cut_documents, "stages": stages}


def shown(document: dict[str, Any], file: Path | None) -> Iterator[str | Table]:
    """What ``split`` prints: a table per cut, a line per stage, and what was written."""
    ops = [op for stage in document["stages"] for op in stage["ops"]]
    titles = {op["name"]: shown_name(op["name"], op["sources"]) for op in ops}
    columns = ("tensor", "shape", "dtype", "size", "made by", "read by")
    for cut in document["cuts"]:
        rows = []
        for t in cut["tensors"]:
            readers = ", ".join(map(titles.__getitem__, t["consumers"]))
            sizes = shape_text(t["shape"]), t["dtype"], size(t["bytes"])
            rows.append((t["name"], *sizes, titles[t["producer"]], readers))
        yield Table(_title(cut), columns, rows)
    for stage in document["stages"]:
        reads, makes = ", ".join(stage["inputs"]) or "nothing", ", ".join(stage["outputs"])
        count = counted(len(stage["ops"]), "op")
        yield f"stage {stage['index']}: {count}, reads {reads}, makes {makes}"
    yield from exported.lines(file) if file else ()


def _title(cut: dict[str, Any]) -> str:
    """A cut in one line."""
    text = f"cut {cut['number']} after {', '.join(cut['after'])}"
    took = [shown_name(op["name"], op["sources"]) for op in cut["took"]]
    if len(took) > NAMED:
        # The last ops are next to the cut.
        others = counted(len(took) - NAMED, "other op")
        took = [f"{others} (-f json lists them)", *took[-NAMED:]]
    if took:
        text += f"; also contains {', '.join(took)}"
    return text
