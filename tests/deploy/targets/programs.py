"""Building and running the C++ of an export."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Where the wheels are installed; they hold headers and libraries.
PACKAGES = Path(str(getattr(importlib.util.find_spec("tvm"), "origin", None))).parents[1]
# OpenVINO's TBB opens a library in a way that sanitizers refuse, unless it is told of them.
# GCC 12's sanitizer sometimes crashes in its own records of thread-local storage (DTLS_Destroy),
# when one of TBB's threads ends with the program: it keeps none.
SANITIZED = {
    "TBB_ENABLE_SANITIZERS": "1",
    "ASAN_OPTIONS": "detect_leaks=1:intercept_tls_get_addr=0",
    "LSAN_OPTIONS": f"suppressions={Path(__file__).with_name('leak_sanitizer.txt')}",
    "TSAN_OPTIONS": f"suppressions={Path(__file__).with_name('thread_sanitizer.txt')}",
}


def require_tools(*tools: str) -> None:
    """Skip where a program is missing."""
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")


def checked(command: Any, **options: Any) -> str:
    """The output of a command that succeeds."""
    words = list(map(str, command))
    done: Any = subprocess.run(words, capture_output=True, text=True, timeout=900, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return str(done.stdout)


def build(folder: Path, sanitizer: str = "") -> Path:
    """The program of an export, built by cmake."""
    require_tools("g++", "cmake")
    built = folder / f"build{sanitizer}"
    # What a sanitizer sees is in unoptimised code too, which is compiled in half of the time.
    flags = f"-DCMAKE_CXX_FLAGS=-fsanitize={sanitizer}"
    options = ("-DCMAKE_BUILD_TYPE=Debug", flags) if sanitizer else ()
    checked(["cmake", "-S", folder, "-B", built, f"-DPACKAGES={PACKAGES}", *options])
    checked(["cmake", "--build", built])
    return built / "net"


def stacked(items: Any) -> dict[str, Any]:
    return {name: np.stack([item[name] for item in items]) for name in items[0]}


def words_of(folder: Path, inputs: Any) -> list[str]:
    """The words that give the program stacked inputs."""
    words = []
    for number, (name, array) in enumerate(inputs.items()):
        np.save(folder / f"in{number}.npy", array)
        words += ["--input", f"{name}={folder / f'in{number}.npy'}"]
    return words


def run(
    program: Any, export: Any, inputs: Any, outputs: Any, *options: str, **environment: str
) -> dict[str, Any]:
    """The outputs of the program for stacked inputs."""
    words = [*options, *words_of(export, inputs)]
    files = {name: export / f"out{number}.npy" for number, name in enumerate(outputs)}
    for name, file in files.items():
        words += ["--output", f"{name}={file}"]
    # No Python is there to be asked for anything.
    checked([program, export, *words], env={"TSAN_OPTIONS": "", **environment})
    return {name: np.load(file) for name, file in files.items()}


def failed(program: Any, *words: Any, **environment: str) -> tuple[int, str]:
    """The exit code of the program and its error, which is one line."""
    command, env = [program, *map(str, words)], os.environ | environment
    done = subprocess.run(command, timeout=300, env=env, capture_output=True, text=True)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stderr.strip()
