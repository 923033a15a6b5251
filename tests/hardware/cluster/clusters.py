"""Real Ray clusters of several nodes on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from autosplit.hardware.cluster.connection import connected


class Nodes:
    """A cluster of two nodes, with resources ``left`` and ``right``."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        options: dict[str, Any] = {"num_cpus": 8, "object_store_memory": 80 << 20}
        head = {**options, "resources": {"left": 1}, "include_dashboard": False}
        self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self._options = options
        self.add_right()
        connected(self.cluster.address)

    def add_right(self) -> None:
        self.right: Any = self.cluster.add_node(**self._options, resources={"right": 1})

    def actors(self, node: Any) -> list[psutil.Process]:
        """The processes of the actors on a node."""
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        actors = []
        for process in raylet.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
                if "StageActor" in " ".join(process.cmdline()):
                    actors.append(process)
        return actors

    def close(self) -> None:
        import ray

        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="module", name="nodes")
def ray_nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_prestart_worker_first_driver", "0")  # one process for each CPU
        patch.setenv("RAY_health_check_period_ms", "500")  # until a lost node is noticed
        nodes = Nodes()  # it handles signals, as only the main thread can
        yield nodes
        nodes.close()
