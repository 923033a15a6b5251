import argparse

import pytest

from autosplit.cli import options
from autosplit.errors import ConfigError
from autosplit.graph import Op, build

TARGETS = ["cores:0=llvm -mcpu=x86-64-v3", "rpc:pi:9090=llvm"]


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [(options.shapes, [], {}), (options.shapes, ["x=1x3x224x224"], {"x": (1, 3, 224, 224)}),
     (options.shapes, ["x=2X4", "y=7"], {"x": (2, 4), "y": (7,)}),
     (options.shapes, ["a=b=5", "scalar="], {"a=b": (5,), "scalar": ()}),
     (options.targets, TARGETS, dict(text.split("=", 1) for text in TARGETS)),
     (options.states, ["auto"], "auto"), (options.devices, None, ()),
     (options.devices, "cores:0,1 cores:2", ("cores:0,1", "cores:2")),
     (options.devices, "cores:0;cores:1; rpc:h:1 ", ("cores:0", "cores:1", "rpc:h:1")),
     (options.stages, "3", 3), (options.stages, "auto", "auto"), (options.batches, "4,1", (4, 1)),
     *((options.memory, text, 3e9) for text in ("3e9", "3 GB", "3000MB")),
     (options.TYPES["seconds"], "1e-9", 1e-9), (options.TYPES["delay"], "0.0", 0.0)],
)  # fmt: skip
def test_options_are_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "values", "says"),
    [
        (options.stages, ["", "two", "1.5", "Auto"], "give 1 or more, or auto"),
        (options.TYPES["cores"], ["", "0", "-1", "1.5"], "give 1 or more"),
        (options.TYPES["seconds"], ["0", "-1", "nan", "inf", "soon", ""], "give a number above 0"),
        (options.memory, ["0", "-1", "nan", "1e999", "3 XB", ""], "give 3e9 or 3 GB"),
        (options.states, [["x=1", "y=1", "x=2"]], "names 'x' twice"),
        (options.shapes, [["x=1", "x=2"]], "names 'x' twice"),
        (options.targets, [[text] for text in ("cores:0", "=llvm", "cores:0=", "")],
         r"--device-target '.*' is invalid; write DEVICE=TARGET"),
        (options.shapes, [[s] for s in ("x", "=1x2", "x=1xx2", "x=1x", "x=-1", "x=a", "x=1.5", "")],
         r"--shape '.*' is invalid; write INPUT=1x3x224x224"),
    ],
)  # fmt: skip
def test_what_is_no_value_of_an_option_is_refused(read, values, says):
    for value in values:
        with pytest.raises((argparse.ArgumentTypeError, ConfigError), match=says):
            read(value)


def test_a_comma_parts_names_unless_the_whole_is_one():
    ops = [Op("a,b", "k", ("s,1", "s2"), ("x",), ("y",))]
    tensors = dict.fromkeys("xy", ((1,), "float32", 4))
    graph = build("g", ops, tensors, ("x",), ("y",))
    for name in ("a,b", "s,1"):
        assert options.names(name, graph) == (name,)
    assert options.names(" s2 ,, z ", graph) == ("s2", "z")
