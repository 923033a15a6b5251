"""The package autosplit/lowering/fuse."""
