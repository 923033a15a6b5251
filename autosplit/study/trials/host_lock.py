"""Locks among the processes of one user on one host, which say who holds them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from autosplit.printable import printable
from autosplit.study.trials.worker_identity import is_stopped

NOTICE_AFTER = 2.0  # seconds after which a process that waits for a lock says so
POLL_INTERVAL = 0.02  # seconds between two attempts to take a lock


@dataclass(frozen=True)
class HostLock:
    """A lock that the system frees when its holder dies.

    ``key`` tells locks apart. ``resource`` and ``holder`` are what it guards and who takes it, in
    the words of a message. ``notify`` receives a line when taking it lasts, once for each holder.
    After ``timeout`` seconds, or once the holder is stopped for ``stalled_after`` seconds, the
    caller goes on without the lock; so it does where no lock file can be made.
    """

    key: str
    resource: str
    holder: str
    notify: Callable[[str], None]
    timeout: float = float("inf")
    stalled_after: float = float("inf")
    _announced: set[object] = field(default_factory=set, init=False, repr=False, compare=False)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock while the body runs."""
        import filelock

        try:
            path = _folder() / hashlib.sha256(self.key.encode()).hexdigest()[:16]
            lock = filelock.FileLock(path.with_suffix(".lock"), mode=0o600)
            is_held = self._acquire(lock, path.with_suffix(".json"))
        except (OSError, NotImplementedError):
            yield
            return
        try:
            if is_held:
                document = {"pid": os.getpid(), "holder": self.holder, "since": time.time()}
                with contextlib.suppress(OSError):  # the lock works without its description
                    path.with_suffix(".json").write_text(json.dumps(document), encoding="utf-8")
            yield
        finally:
            lock.release()

    def _acquire(self, lock: Any, description: Path) -> bool:
        """Whether the lock was taken; the attempts end when the holder is stopped for too long."""
        import filelock

        begin = last_running = time.monotonic()
        while True:
            with contextlib.suppress(filelock.Timeout):
                lock.acquire(timeout=0)
                return True
            now = time.monotonic()
            holder = _read_holder(description)
            pid = holder.get("pid")
            if not (isinstance(pid, int) and is_stopped(pid)):
                last_running = now
            if now - begin >= self.timeout or now - last_running >= self.stalled_after:
                return False
            if now - begin >= NOTICE_AFTER and pid not in self._announced:
                self._announced.add(pid)
                self.notify(f"waiting for {self.resource}, {_text(holder)}")
            time.sleep(POLL_INTERVAL)


def _folder() -> Path:
    """The folder of this user's locks. Raises OSError where it is not this user's alone."""
    folder = Path(tempfile.gettempdir()) / f"autosplit-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(folder)
    return folder


def _read_holder(description: Path) -> dict[str, Any]:
    """What the holder wrote of itself; empty where it has not yet, or is writing it now."""
    try:
        document = json.loads(description.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _text(holder: dict[str, Any]) -> str:
    try:
        since = datetime.fromtimestamp(holder["since"]).strftime("%Y-%m-%d %H:%M:%S")
        return f"held by process {holder['pid']} ({printable(holder['holder'])}) since {since}"
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return "held by another process"
