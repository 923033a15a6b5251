"""autosplit: the pipeline of a neural network that runs fastest on the target devices.

The public names are imported when first used, so that ``import autosplit`` costs nothing. Read
``api`` first. Each package imports only later ones of ``cli``, ``report``, ``study``, ``deploy``,
``hardware``, ``lowering``, ``frontend``; all of them may import ``planner``, ``cuts``, ``graph``
and the small modules beside this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autosplit.errors import AutosplitError
from autosplit.versions import VERSION as __version__

if TYPE_CHECKING:
    from autosplit.api import Model, Part, Split, load_model, plan
    from autosplit.deploy.load import LoadedPipeline, load
    from autosplit.hardware.execution.pipeline import Pipeline
    from autosplit.lowering.external.backend import Backend

__all__ = [
    "AutosplitError",
    "Backend",
    "LoadedPipeline",
    "Model",
    "Part",
    "Pipeline",
    "Split",
    "__version__",
    "load",
    "load_model",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        remedy = "; use Split.deployment" if name == "ModelDeployment" else ""  # until 0.2.0
        raise AttributeError(f"module 'autosplit' has no attribute '{name}'{remedy}")
    home: Any
    if name in ("load", "LoadedPipeline"):  # an export runs without importers and planner
        from autosplit.deploy import load as home
    elif name == "Pipeline":
        from autosplit.hardware.execution import pipeline as home
    elif name == "Backend":
        from autosplit.lowering.external import backend as home
    else:
        from autosplit import api as home
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
