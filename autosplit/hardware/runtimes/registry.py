"""Runtimes by name.

A new runtime is a package beside this file, a name in RUNTIMES and a late import of its class in
``runtime_class`` of ``stage_files``. The command line, study files and ``split.json`` take their
names from here.
"""

from __future__ import annotations

import importlib.util

TVM = "tvm"
ONNXRUNTIME = "onnxruntime"
OPENVINO = "openvino"
OPENVINO_BFLOAT16 = "openvino-bfloat16"  # rounds to bfloat16, so it is used only if asked for
RUNTIMES = (TVM, ONNXRUNTIME, OPENVINO, OPENVINO_BFLOAT16)
# The runtimes that compute in the precision of the model.
EXACT = (TVM, ONNXRUNTIME, OPENVINO)
AUTO = "auto"  # each of EXACT that is installed and can compute the model competes for each stage
DEFAULT = AUTO
OF_24_BITS = (-(1 << 24), 1 << 24)  # float32 represents all integers in this range exactly


def is_installed(name: str) -> bool:
    """Whether the package of a runtime is installed."""
    return importlib.util.find_spec(package_of(name)) is not None


def package_of(name: str) -> str:
    """The package of a runtime: its name up to the first dash."""
    return name.partition("-")[0]


def rounds(name: str, dtype: str) -> bool:
    """Whether a runtime computes many ops on integers of type ``dtype`` in float32."""
    is_wide = dtype in ("int32", "int64", "uint32", "uint64")
    return is_wide and name in (OPENVINO, OPENVINO_BFLOAT16)


def ready_made() -> tuple[str, ...]:
    """The installed runtimes that compute a model as it is, without compiling kernels for it."""
    return tuple(name for name in EXACT if name != TVM and is_installed(name))
