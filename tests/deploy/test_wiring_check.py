"""A manifest whose connections do not fit its stages, changed in one place at a time."""

import pytest

from autosplit.deploy.manifest import Manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.errors import ConfigError
from tests.deploy.exports import SOUND, add_state, port, sound, tensor

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

    assert f"has {count} sources instead of one" in refused(change)


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
    assert f"tensor '{name}' is float32[2, 3] where it is produced" in refused(change)


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
        (stage(2, "inputs", "b"), "input 'b' of stage 2 is listed 2 times"),
        (stage(0, "inputs", "z"), "input 'z' of stage 0 has 0 sources"),
        (model("inputs", "x"), "input 'x' is listed 2 times"),
        (model("outputs", "y"), "output 'y' is listed 2 times"),
        (model("outputs", "z"), "output 'z' has 0 sources"),
        (comes_from(2, stage=2, output=0), "'b' goes backwards, from stage 2 to 2"),
        (comes_from(0, input="z"), "'x' comes from input 'z', which does not exist"),
        (comes_from(1, stage=3, output=0), "output 0 of stage 3, which does not"),
        (comes_from(1, stage=0, output=2), "output 2 of stage 0, which does not"),
        (goes_to(1, stage=3, input="a"), "'a' goes to input 'a' of stage 3, which does not"),
        (goes_to(1, stage=0, input="a"), "'a' goes to input 'a' of stage 0, which does not"),
        (goes_to(3, stage=0, input="c"), "'c' goes to input 'c' of stage 0, which does not"),
        (goes_to(1, stage=1, input="x"), "'a' is read as 'x'"),
        (goes_to(1, stage=2, input="a"), "'a' goes to input 'a' of stage 2, which does not"),
        (goes_to(4, output="z"), "'y' goes to output 'z', which does not"),
        (lambda d: d["connections"].append(d["connections"][3]), "'c' of stage 2 has 2 sources"),
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
    document["connections"].append(tensor("idle", {"stage": 1, "output": 1}))
    assert check(document).connections[-1].stages == ()
