from pathlib import Path

from autosplit.hardware.devices.core_kinds import by_kind, memory_node


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_cores_that_nothing_tells_apart_are_of_one_kind(tmp_path: Path) -> None:
    assert by_kind((3, 1), tmp_path) == ((3, 1),)


def test_small_cores_of_intel_are_of_their_own_kind(tmp_path: Path) -> None:
    write(tmp_path / "cpu_atom" / "cpus", "4-7\n")
    assert by_kind(range(6), tmp_path) == ((0, 1, 2, 3), (4, 5))


def test_capacities_of_arm_are_kinds(tmp_path: Path) -> None:
    for core, capacity in enumerate((446, 1024, 446)):
        write(tmp_path / "system" / "cpu" / f"cpu{core}" / "cpu_capacity", f"{capacity}\n")
    assert by_kind((0, 1, 2), tmp_path) == ((0, 2), (1,))


def test_cores_of_a_node_share_its_memory(tmp_path: Path) -> None:
    cores = tmp_path / "system" / "cpu"
    for core, node in enumerate((0, 1, 1)):
        (cores / f"cpu{core}" / f"node{node}").mkdir(parents=True)
    assert [memory_node(core, tmp_path) for core in range(3)] == ["node0", "node1", "node1"]


def test_without_nodes_all_cores_share_the_memory(tmp_path: Path) -> None:
    assert memory_node(0, tmp_path) == memory_node(1, tmp_path)
