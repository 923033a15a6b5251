"""Relax modules of unusual build: several functions, repeated names, tuples."""

import gc
import weakref

import pytest

import autosplit
from autosplit.errors import ModelError
from autosplit.frontend.importing import read
from autosplit.frontend.relax import file
from autosplit.frontend.relax.main_function import with_bindings, with_calls
from tests.nets import judge
from tests.relax_nets import function, module


def test_functions_that_main_calls_are_put_inside_it():
    double = function("double", "y = R.add(x, x)\nreturn y", options="(private=True)")
    main = function("main", "a = M.double(x)\nb = M.double(a)\nc = R.nn.relu(b)\nreturn c")
    source = file.convert(module(double, main), "net")
    assert [n.kind.removeprefix("relax.") for n in source.nodes] == ["add", "add", "nn.relu"]
    judge(model := autosplit.load_model(module(double, main)), model.split([]))


def test_variables_of_one_name_are_told_apart():
    body = "y = R.add(x, x)\ny = R.nn.relu(y)\ny = R.exp(y)\nreturn y"
    source = file.convert(module(function("main", body)), "net")
    names = [n.name for n in source.nodes]
    assert len(set(names)) == 3
    assert source.nodes[1].inputs == (names[0],)
    assert source.nodes[2].inputs == (names[1],)
    assert source.outputs == (names[2],)


@pytest.mark.parametrize(
    ("result", "outputs", "tupled"),
    [("y", ("y",), False), ("(y,)", ("y",), True), ("(y, y)", ("y", "y.1"), True)],
)
def test_a_result_has_a_name_for_each_time(result, outputs, tupled):
    source = file.convert(module(function("main", f"y = R.exp(x)\nreturn {result}")), "net")
    assert (source.outputs, source.tupled) == (outputs, tupled)


def test_items_of_a_tuple_go_by_the_variables_that_take_them():
    body = "parts = R.split(x, 3, axis=1)\nlast = parts[2]\nfirst = parts[0]\n"
    body += "y = R.add(first, last)\nreturn y"
    source = file.convert(module(function("main", body)), "net")
    assert source.nodes[0].outputs == ("first", "parts.1", "last")
    assert source.nodes[1].inputs == ("first", "last")


CHOICE = """if c:
    chosen = R.add(x, x)
else:
    chosen = R.multiply(x, x)
return chosen"""
ITEM, RANK = "x: R.Tuple(R.Tensor((2,), 'float32'))", "x: R.Tensor(dtype='float32', ndim=2)"
TYPED = "x: R.Tensor((2, 3), 'float32')) -> R.Tensor((2, 3), 'float32'"  # and what it returns


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([("c", "return x"), ("b", "return x")], r"no function 'main' \(it has b, c\)"),
        ([("main", "y = M.main(x)\nreturn y", TYPED)], "function 'main' of the module calls"),
        ([("main", "y = R.exp(x)\nz = R.abs(x)\nreturn (y, (y, z))")],
         "output 1 of 'main' is a tuple inside a tuple"),
        ([("main", "y = x[0]\nreturn y", ITEM)], "input 'x' is a TupleType; only tensors"),
        ([("main", "y = R.exp(x)\nreturn y", RANK)], "input 'x' has a shape without sizes"),
        ([("main", "return x", "x: R.Tensor((2, 3))")], "input 'x' has no element type"),
        ([("main", CHOICE, "c: R.Tensor((), 'bool'), x: R.Tensor((4,), 'float32')")],
         "'chosen'.*control flow"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_is_refused_by_name(functions, message):
    with pytest.raises(ModelError, match=message):
        file.convert(module(*(function(*parts) for parts in functions)), "net")


@pytest.mark.parametrize("thing", [None, 3, {"main": 1}, "net.onnx"])
def test_what_is_no_model_is_called_by_its_type(thing):
    with pytest.raises(ModelError, match=f"from a {type(thing).__name__}; give a file"):
        read(thing, {})


@pytest.mark.parametrize(
    ("rewrite", "unchanged"),
    [(with_bindings, lambda *_: False), (with_calls, lambda *arguments: arguments[-1])],
)
def test_memory_stays_flat_over_changes(rewrite, unchanged):
    exponential, remaining = module(function("main", "y = R.exp(x)\nreturn y")), []
    for _ in range(3):
        weights = set()  # for what a change holds: TVM's own objects take no weak references
        remaining.append(weakref.ref(weights))
        rewrite(exponential, lambda *arguments, weights=weights: unchanged(*arguments))
        del weights
    gc.collect()
    assert [weights() for weights in remaining] == [None] * 3
