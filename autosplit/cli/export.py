"""Write what the verdict of a study advises, or a trial, as split.json and one file per stage.

autosplit export studies/quickstart.toml -o out/
autosplit export mystudy.db -o out/ --trial 3
autosplit export mystudy.db -o out/ --format cpp
"""

from __future__ import annotations

import argparse

from autosplit.cli import options, output

OPTIONS = (
    *options.of("""
        -o, --output DIR   folder to write into [required]
        --trial N          export trial N instead of what the verdict advises
    """),
    *options.STUDY,
    *options.TARGET,
    *options.TRUST,
)


def run(args: argparse.Namespace) -> None:
    """Export, and print the path."""
    from autosplit.report.documents import exported
    from autosplit.report.documents.study_reader import find_study
    from autosplit.study.export import export_stored_split
    from autosplit.study.record import study_record

    with find_study(args.study, args.storage).open() as study:
        form = args.target_format, not args.no_onnx, args.trust_kernels
        file = export_stored_split(study, args.output, args.trial, *form)
        verdict = study_record(study.user_attrs).verdict.text
    advice = [verdict.partition("\n")[0]] if verdict and args.trial is None else []
    lines = [*exported.lines(file), *advice]
    output.emit(args.format, {"file": str(file), "verdict": verdict or None}, lines)
