"""What every frontend has in common: one suite, run against each format of a model file.

A new frontend adds a ``Form`` that writes the net ``relu(x w w)`` as its file. ``after`` is the
name of its first product.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import autosplit
from autosplit.errors import ConfigError, ModelError
from tests import nets
from tests.relax_nets import function, module


def as_onnx(file, rows):
    import onnx

    text = f"""g (float[{rows or "length"},4] x, float[4,4] w) => (float[{rows or "length"},4] y) {{
        product = MatMul(x, w)  square = MatMul(product, w)  y = Relu(square)
    }}"""
    onnx.save(nets.net(text), file)


def as_module(file, rows):
    import tvm

    size = rows or "'length'"
    params = f"x: R.Tensor(({size}, 4), 'float32'), w: R.Tensor((4, 4), 'float32')"
    lines = "product = R.matmul(x, w)", "square = R.matmul(product, w)", "y = R.nn.relu(square)"
    main = function("main", "\n".join((*lines, "return y")), params)
    file.write_text(tvm.ir.save_json(module(main)), encoding="utf-8")


def as_program(file, rows):
    import torch

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x, w):
            return torch.relu((x @ w) @ w)

    dynamic = None if rows else {"x": {0: torch.export.Dim("n")}, "w": None}
    arguments = torch.ones(rows or 3, 4), torch.ones(4, 4)
    torch.export.save(torch.export.export(Net(), arguments, dynamic_shapes=dynamic), file)


@dataclass(frozen=True)
class Form:
    """How a frontend's file is written: with ``rows`` rows of ``x``, or any number for None."""

    suffix: str
    write: Callable[[Path, int | None], None]
    after: str
    needs: str


FORMS = (
    Form(".onnx", as_onnx, "product", "onnx"),
    Form(".json", as_module, "product", "tvm"),
    Form(".pt2", as_program, "matmul", "torch"),
)


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: form.suffix[1:])
def form(request):
    pytest.importorskip(request.param.needs)
    return request.param


def test_ops_are_those_of_the_source_and_a_split_and_the_reference_compute_them(form, tmp_path):
    form.write(path := tmp_path / f"net{form.suffix}", 2)
    model = autosplit.load_model(path.rename(path.with_suffix(form.suffix.upper())))
    signatures = [(i.name, i.shape, i.dtype) for i in model.lowered.inputs]
    assert signatures == [("x", (2, 4), "float32"), ("w", (4, 4), "float32")]
    assert all(op.sources for op in model.graph.ops)
    assert form.after in model.graph.ops[0].sources
    split = model.split([[form.after]])
    items = model.items(3)
    with split.pipeline() as pipeline:
        results = pipeline.run(items)
    assert nets.live(split) == (form.after,)
    for item, outputs in zip([*items, *items], [*results, *model.expected(items)], strict=True):
        (value,) = outputs.values()
        expected = np.maximum(item["x"] @ item["w"] @ item["w"], 0)
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


def test_a_size_known_only_at_run_time_must_be_given(form, tmp_path):
    form.write(path := tmp_path / f"any{form.suffix}", None)
    with pytest.raises((ConfigError, ModelError), match=r"'x'.*--shape"):
        autosplit.load_model(path)
    assert autosplit.load_model(path, shapes={"x": (5, 4)}).lowered.inputs[0].shape == (5, 4)
    with pytest.raises(ConfigError, match="'nothing'"):
        autosplit.load_model(path, shapes={"nothing": (1,)})


NO_MODELS = (
    b"", b"\x80\x04K\x01.", b"not a model", b"\x08", b"{", b"[1]", b'{"a": 1}', bytes(64),
    b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, np.random.default_rng(0).bytes(4096),
    b'{"root_index": 0, "nodes": [{"type": "int", "data": 4}]}',
)  # fmt: skip


@pytest.mark.parametrize("content", NO_MODELS, ids=lambda content: f"{content[:8]}")
def test_what_is_no_model_is_refused_by_name(form, tmp_path, content):
    path = tmp_path / f"broken{form.suffix}"
    path.write_bytes(content)
    other = "is empty|is not an ONNX file|was not written by|cannot be read as text|holds a int"
    with pytest.raises(ModelError, match=f"^model '.*broken.*' ({other})"):
        autosplit.load_model(path)


NAMES = ("missing", "no/folder", "nul\0", "\ud800", "n" * 5000, "loop", "pipe", "folder")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_path_that_is_no_file_is_refused_by_name(form, tmp_path, name):
    path = tmp_path / f"{name}{form.suffix}"
    if name == "loop":
        path.symlink_to(path)
    elif name == "pipe":
        os.mkfifo(path)
    elif name == "folder":
        path.mkdir()
    with pytest.raises(ModelError, match=ascii(name)[1:-1][:200].replace("\\", ".")):
        autosplit.load_model(path)
