import pytest

from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.devices.device import parse
from autosplit.hardware.devices.ray_nodes import assign, only_place


def node(number, cpus=2, alive=True, **resources):
    names = {"NodeManagerAddress": f"10.0.0.{number}", "NodeManagerHostname": f"pi{number}"}
    return names | {
        "NodeID": f"{number}" * 56,
        "Alive": alive,
        "Resources": {"CPU": cpus, "memory": 1.0, f"node:10.0.0.{number}": 1.0, **resources},
    }


NODES = [node(1), node(2, board=1.0), node(3, board=1.0), node(4, alive=False)]


def placed(*placement, devices=("cores:0",)):
    places = assign(placement, devices * max(1, len(placement)), NODES)
    return [(place.address, str(place.cores)) for place in places]


@pytest.mark.parametrize(
    ("placement", "devices", "numbers", "cores"),
    [
        # A node has an address, a host name and an id.
        *(([f"ray:{n}/cores:0-1"], ["cores:0"], "2", "0,1") for n in ("10.0.0.2", "pi2", "2" * 56)),
        # Without cores or places they are those of the export.
        (["ray:*"], ["cores:0"], "1", "0"),
        ([], ["ray:pi2/cores:1"], "2", "1"),
        (["ray:pi1"], ["ray:pi2/cores:1"], "1", "1"),
        # Replicas take nodes of a resource, or all, in turn.
        (["ray:board"] * 3, ["cores:0"], "232", "0"),
        ([], ["cores:0"] * 4, "1231", "0"),
    ],
)
def test_replicas_are_placed_on_the_nodes_that_are_named(placement, devices, numbers, cores):
    expected = [(f"10.0.0.{number}", f"cores:{cores}") for number in numbers]
    assert placed(*placement, devices=devices) == expected


@pytest.mark.parametrize(
    ("place", "kind", "text"),
    [
        ("pi1/cores:0", ConfigError, "'pi1/cores:0' is unknown; write .* ray:NODE/cores:0-3"),
        ("cores:0", ConfigError, "'cores:0/cores:0' is misspelt"),
        ("cuda:0/cores:0", ConfigError, "is unknown; write .* ray:NODE/cores:0-3"),
        ("ray:boardd", MachineError, "no node or resource 'boardd'; did you mean 'board'"),
        ("ray:pi4", MachineError, "no node or resource 'pi4'"),
        ("ray:memory", MachineError, "no node or resource 'memory'"),
        ("ray:pi1/cores:0-2", MachineError, r"10\.0\.0\.1 has 2 CPUs in Ray, its replicas need 3"),
    ],
)
def test_a_wrong_place_is_refused_with_the_remedy(place, kind, text):
    with pytest.raises(kind, match=text):
        placed(place)


def test_a_device_of_a_study_is_one_node():
    assert only_place(parse("ray:22222222/cores:0"), NODES).address == "10.0.0.2"
    with pytest.raises(MachineError, match=r"one of 2 nodes \(22222222, 33333333\); name one"):
        only_place(parse("ray:board/cores:0"), NODES)
    with pytest.raises(MachineError, match="has 2 CPUs in Ray, its replicas need 3"):
        only_place(parse("ray:pi1/cores:0-2"), NODES)
    with pytest.raises(ConfigError, match="3 replicas need 3 places, not 1: ray:pi1"):
        assign(["ray:pi1"], ["cores:0"] * 3, NODES)
