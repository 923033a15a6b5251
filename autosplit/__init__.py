"""autosplit: the split of a neural network into pipeline stages that runs fastest on the devices it shall run on.

The names below are imported when first used, so that ``import autosplit`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autosplit.api import Model, Split, load_model, plan
    from autosplit.deploy.load import load
    from autosplit.errors import AutosplitError
    from autosplit.hardware.execution.pipeline import Pipeline

__version__ = "0.1.0"
__all__ = ["AutosplitError", "Model", "Pipeline", "Split", "load", "load_model", "plan"]

_HOME = {
    "AutosplitError": "autosplit.errors",
    "Pipeline": "autosplit.hardware.execution.pipeline",
    "load": "autosplit.deploy.load",  # running an export needs none of the rest
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'autosplit' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME.get(name, "autosplit.api")), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
