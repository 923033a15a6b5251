"""The names of the formats that an export can have."""

from __future__ import annotations

from autosplit.errors import ConfigError, nearest

# An export for Ray is the native one; `on_ray` runs it.
NATIVE, ONNX, CPP, RAY = "native", "onnx", "cpp", "ray"
FORMATS = (NATIVE, ONNX, CPP, RAY)


def require_format(name: str) -> None:
    """Raises ConfigError for an unknown format."""
    if name not in FORMATS:
        raise ConfigError(
            f"unknown format '{name}'{nearest(name, FORMATS)}; the formats are {', '.join(FORMATS)}"
        )
