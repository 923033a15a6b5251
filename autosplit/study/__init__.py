"""The Optuna side: the study file, the space of splits, samplers, the run loop with its storage, and the verdict."""
