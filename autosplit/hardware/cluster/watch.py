"""Notices that an actor or its node is gone."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Mapping
from typing import Any

from autosplit.hardware.cluster.replica import RayReplica

NOTICE_S = 10.0  # for Ray to say which actor ended, once a channel broke


class Watch:
    """Notices the end of an actor, and says of which replica."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._replicas: Mapping[Any, RayReplica] = {}
        self._is_closed = threading.Event()
        self._noticed = threading.Event()
        self._loss = ""

    def begin(self, replicas: Mapping[Any, RayReplica]) -> None:
        """Watch over actors, each by a call that ends with it."""
        self._replicas = replicas
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def loss(self) -> str:
        """Which actor ended, empty where Ray does not say so in time."""
        if not self._is_closed.is_set():
            self._noticed.wait(NOTICE_S)
        return self._loss

    def close(self) -> None:
        """Report no further end: from here on the actors are ended on purpose."""
        self._is_closed.set()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # of many kinds, once Ray itself is shut down
            ended: list[Any] = []
            # Once Ray is shut down a call would connect it again.
            while not ended and not self._is_closed.is_set() and self._ray.is_initialized():
                ended, _ = self._ray.wait(list(self._replicas), timeout=0.5)
            if not self._ray.is_initialized():
                self._loss = "Ray was shut down"
            elif not self._is_closed.is_set():
                self._loss = f"{self._replicas[ended[0]].name} is gone: {self._reason(ended[0])}"
        self._noticed.set()
        # A node that lost its power closes no channel.
        for replica in self._replicas.values():
            replica.disconnect()

    def _reason(self, call: Any) -> str:
        try:
            self._ray.get(call)
        except Exception as error:
            cause = re.search(r"because ([^.]+)", str(error))
            if cause:
                return cause[1]
        # Ray calls a node dead some seconds later.
        return "its node does not answer"
