"""Exported splits: written, loaded, compared with the model and measured, without a study.

Read in this order:

- ``manifest``: the document ``split.json``; ``manifest_file`` reads and writes it.
- ``manifest_wiring``: the wiring of a manifest, if its connections fit its stages.
- ``arrays``: reference outputs and initial states in files of an export.
- ``export``: writes a model and its stages, or a part of it, as files; ``export_folder``
  replaces the export in a folder in one step, and checks the files that are read.
- ``stages``: the stages of a folder, loaded.
- ``load``: the running pipeline of a folder, here or on a Ray cluster.
- ``verify``: comparison with the original model, and the measurement of an export.

Imports hardware, frontend, lowering and the modules at the top; never study, report, api or cli.
"""
