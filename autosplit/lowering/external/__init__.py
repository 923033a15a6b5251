"""The package autosplit/lowering/external."""
