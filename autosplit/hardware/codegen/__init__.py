"""The package autosplit/hardware/codegen."""
