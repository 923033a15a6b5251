"""What several commands read from their options."""

import argparse

import pytest

from autosplit.cli import options
from autosplit.errors import ConfigError
from autosplit.graph import Folded, Op, build


@pytest.mark.parametrize(
    ("texts", "parsed"),
    [
        ([], {}),
        (["x=1x3x224x224"], {"x": (1, 3, 224, 224)}),
        (["x=2X4", "y=7"], {"x": (2, 4), "y": (7,)}),
        (["a=b=5"], {"a=b": (5,)}),
        (["scalar="], {"scalar": ()}),
    ],
)
def test_shapes_are_read_by_the_last_equals_sign(texts, parsed):
    assert options.shapes(texts) == parsed


@pytest.mark.parametrize("text", ["x", "=1x2", "x=1xx2", "x=1x", "x=-1", "x=a", "x=1.5", ""])
@pytest.mark.parametrize("command", ["inspect", "run"])
def test_a_misspelt_shape_is_named(said, tmp_path, command, text):
    (tmp_path / "net.toml").write_text('zoo = "squeezenet"\nstages = 2')
    code, line = said(command, tmp_path / "net.toml", f"--shape={text}")
    assert code == 2
    assert f"'{text}'" in line
    assert "1x3x224x224" in line


@pytest.mark.parametrize("command", ["inspect", "run"])
def test_an_input_given_two_shapes_is_named(said, tmp_path, command):
    (tmp_path / "net.toml").write_text('zoo = "squeezenet"\nstages = 2')
    code, line = said(command, tmp_path / "net.toml", "--shape", "x=1", "--shape", "x=2")
    assert (code, "'x' twice" in line) == (2, True)


@pytest.mark.parametrize("read", [options.states, options.targets])
def test_a_name_that_is_given_twice_is_named(read):
    with pytest.raises(ConfigError, match="names 'x' twice"):
        read(["x=1", "y=1", "x=2"])


def test_a_target_of_a_device_is_all_after_the_first_equals_sign():
    texts = ["cores:0=llvm -mcpu=x86-64-v3", "rpc:pi:9090=llvm"]
    assert options.targets(texts) == {"cores:0": "llvm -mcpu=x86-64-v3", "rpc:pi:9090": "llvm"}


@pytest.mark.parametrize("text", ["cores:0", "=llvm", "cores:0=", ""])
def test_a_misspelt_target_of_a_device_is_named(text):
    with pytest.raises(ConfigError, match=r"--device-target '.*' is invalid; write DEVICE=TARGET"):
        options.targets([text])


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (None, ()),
        ("", ()),
        ("cores:0", ("cores:0",)),
        ("cores:0,1 cores:2", ("cores:0,1", "cores:2")),
        ("cores:0;cores:1; rpc:h:1 ", ("cores:0", "cores:1", "rpc:h:1")),
    ],
)
def test_devices_stand_apart_by_spaces_or_semicolons(text, parsed):
    assert options.devices(text) == parsed


def test_stages_are_a_number_or_auto():
    assert (options.stages("3"), options.stages("auto")) == (3, "auto")
    for text in ("", "two", "1.5", "Auto"):
        with pytest.raises(argparse.ArgumentTypeError, match="give 1 or more, or auto"):
            options.stages(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon", ""])
def test_a_time_is_finite_and_above_zero(text):
    assert options.seconds("1e-9") == 1e-9
    with pytest.raises(argparse.ArgumentTypeError, match="give a number above 0"):
        options.seconds(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e999", "3 XB", ""])
def test_memory_is_a_finite_number_of_bytes(text):
    assert options.memory("3e9") == options.memory("3 GB") == options.memory("3000MB") == 3e9
    with pytest.raises(argparse.ArgumentTypeError, match="give 3e9 or 3 GB"):
        options.memory(text)


def test_a_comma_parts_names_unless_the_whole_is_one():
    ops = [Op("a,b", "k", ("s,1", "s2"), ("x",), ("y",))]
    tensors = dict.fromkeys("xy", ((1,), "float32", 4))
    graph = build("g", ops, tensors, ("x",), ("y",), folded=[Folded("f,1", "identity")])
    for name in ("a,b", "s,1", "f,1"):
        assert options.names(name, graph) == (name,)
    assert options.names(" s2 ,, z ", graph) == ("s2", "z")
