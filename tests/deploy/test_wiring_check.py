"""A manifest whose connections do not fit its stages, changed in one place at a time."""

import re

import pytest

from autosplit.deploy.manifest import Manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.errors import ConfigError
from tests.deploy.exports import SOUND, add_state, port, sound

TO = [(c, t) for c, tensor in enumerate(SOUND["connections"]) for t in range(len(tensor["to"]))]


def check(document):
    return wired(Manifest.model_validate(document))


def refused(change):
    document = sound()
    change(document)
    with pytest.raises(ConfigError, match=r"; export the split again$") as error:
        check(document)
    return str(error.value)


def test_a_state_is_wired_to_the_ports_of_its_stage():
    document = sound()
    add_state(document)
    assert [stage.state_places for stage in check(document).stages] == [(), ((2, 1),), ()]


@pytest.mark.parametrize(("number", "place"), TO)
@pytest.mark.parametrize("count", [0, 2])
def test_every_end_of_a_connection_is_there_once(number, place, count):
    def change(document):
        ends = document["connections"][number]["to"]
        ends[place : place + 1] = [ends[place]] * count

    name = SOUND["connections"][number]["tensor"]
    lines = f"tensor '{name}' has other ends", "the model's outputs are b, y, those connected"
    assert refused(change).startswith(lines)


@pytest.mark.parametrize(("number", "place"), TO)
@pytest.mark.parametrize("odd", [{"shape": [2, 4]}, {"shape": [2, 3, 1]}, {"dtype": "int32"}])
def test_both_ends_have_one_shape_and_dtype(number, place, odd):
    def change(document):
        end = document["connections"][number]["to"][place]
        owner = document["stages"][end["stage"]] if "stage" in end else document["model"]
        ports = owner["inputs" if "stage" in end else "outputs"]
        name = end.get("input", end.get("output"))
        next(port for port in ports if port["name"] == name).update(odd)

    name = SOUND["connections"][number]["tensor"]
    assert re.search(rf"reads '{name}', \w+\[[\d, ]+\], which nothing before", refused(change))


def stage(number, side, name):
    """A change: a stage has one more port."""
    return lambda document: document["stages"][number][side].append(port(name))


def model(side, name):
    return lambda document: document["model"][side].append(port(name))


def comes_from(number, **source):
    """A change: a connection comes from elsewhere."""
    return lambda document: document["connections"][number].update({"from": source})


def goes_to(number, **end):
    return lambda document: document["connections"][number].update(to=[end])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda d: d["stages"].reverse(), "stage 2 is listed at position 0"),
        (lambda d: d["stages"][1].update(index=0), "stage 0 is listed at position 1"),
        (stage(2, "inputs", "b"), "'b' is listed 2 times"),
        (stage(0, "inputs", "z"), "stage 0 reads 'z', float32[2, 3], which nothing before it"),
        (stage(0, "inputs", "a"), "stage 0 reads 'a', float32[2, 3], which nothing before it"),
        (stage(0, "inputs", "c"), "stage 0 reads 'c', float32[2, 3], which nothing before it"),
        (stage(2, "outputs", "a"), "'a' is listed 2 times"),
        (model("inputs", "x"), "'x' is listed 2 times"),
        (model("inputs", "a"), "'a' is listed 2 times"),
        (model("outputs", "y"), "the model's outputs are b, y, y, those connected b, y"),
        (model("outputs", "z"), "the model's outputs are b, y, z, those connected b, y"),
        (goes_to(4, output="z"), "the model's outputs are b, y, those connected b, z"),
        (comes_from(2, stage=2, output=0), "tensor 'b' has other ends"),
        (comes_from(0, input="z"), "tensor 'x' has other ends"),
        (comes_from(1, stage=3, output=0), "tensor 'a' has other ends"),
        (comes_from(1, stage=0, output=2), "tensor 'a' has other ends"),
        (goes_to(1, stage=3, input="a"), "tensor 'a' has other ends"),
        (goes_to(1, stage=1, input="x"), "tensor 'a' has other ends"),
        (goes_to(1, stage=2, input="a"), "tensor 'a' has other ends"),
        (lambda d: d["connections"].append(d["connections"][3]), "tensor 'c' has other ends"),
        (lambda d: d["connections"].pop(), "the model's outputs are b, y, those connected b"),
        (lambda d: d["connections"].pop(3), "tensor 'y' has other ends"),
        (lambda d: add_state(d, input="a"), "the stages have the states a, the model h"),
        (lambda d: add_state(d, output="none"), "stage 1 has no ports of one shape and type"),
        (lambda d: add_state(d, shape=[1]), "stage 1 has no ports of one shape and type"),
        (lambda d: add_state(d, dtype="int64"), "no ports of one shape and type for its state 'h'"),
        (lambda d: d["model"].update(states={"h": "n"}), "the stages have the states none"),
        (lambda d: (add_state(d), d.update(batch=2)), "a batch of 2 items has no state"),
        (
            lambda d: d["model"].update(variants={"a": {"inputs": [port("y")]}}),
            "variant 'a' has other inputs than the model",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, line):
    assert line in refused(change)


def test_a_tensor_nobody_reads_does_no_harm():
    document = sound()
    document["stages"][1]["outputs"].append(port("idle"))
    assert len(check(document).connections) == len(SOUND["connections"])
