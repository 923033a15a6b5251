"""Run a study: measure splits on the real devices until no better one is expected.

  autosplit run net.onnx --cores 2 -o out/            a model, without a study file
  autosplit run net.onnx --cores 4 --batch auto --p99 20   what serves most within 20 ms
  autosplit run studies/quickstart.toml               SqueezeNet on two cores
  autosplit run STUDY.toml --trials 40 --timeout 600  options override the study file
  autosplit run STUDY.toml --storage postgresql+psycopg://USER@HOST/NAME

For a model, the study file NAME.toml is written with all that was assumed. It names at least a
model and the stages:

  model = "net.onnx"                  # beside the study file; or zoo = "squeezenet"
  stages = 2                          # or "auto": any number up to the devices
  devices = ["cores:0", "cores:1"]    # one per stage; default: one core each
  cores = 4                           # instead of both: stages, replicas and threads on 4 cores

  [search]
  sampler = "planner"                 # or tpe, random, ...
  trials = 20

The study is stored in NAME.db in this folder. After a kill or an interrupt the same command resumes
it. Prints the trials, the best split, the baselines and the verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import webbrowser
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from autosplit.cli import options, output

if TYPE_CHECKING:
    from autosplit.study.loop.open import OpenStudy

AFTER_INTERRUPT = "; the study is saved, run the same command to resume"

OPTIONS = (
    *options.of(
        """
        STUDY              study file or model
        -o, --output DIR   folder to export what the verdict advises into
        --stages K         number of stages, or auto: any number up to one per device
        --cores N          search deployments on N cores, or on those of a list such as 0-3: stages,
                           replicas and threads
        --devices DEVICE   one device per stage: cores:0, cores:0-3, ...
        --trials N         stop when the study has this many finished trials
        --timeout SECONDS  start no trial after this time
        --storage URL      file or database URL to store the study in (default: AUTOSPLIT_STORAGE,
                           the study file's storage, or NAME.db)
        --seed N           seed of the search
        """,
        {
            "study": {"type": Path, "metavar": "STUDY.toml|MODEL"},
            "cores": {"type": str},  # the study file checks it
            "devices": {"nargs": "+"},
            "timeout": {"type": float},
        },
    ),
    *options.RUNTIME,
    *options.BATCH,
    *options.WORKLOAD,
    *options.SHAPE,
    *options.STATE,
    *options.TRUST,
    *options.of("""
        --name NAME   name of the study in its storage (default: that of the study file)
        --force       start a new study even where one has this name; nothing is deleted
        --open        open the dashboard in the browser while it runs
    """),
)


def run(args: argparse.Namespace) -> None:
    """Run the study and print it; export the best split where the study file says so."""
    from autosplit.deploy.export_folder import require_replaceable
    from autosplit.report.documents.record import read
    from autosplit.report.documents.study import shown, written
    from autosplit.study.config.assumed import MODEL_SUFFIXES, study_file_for
    from autosplit.study.config.study_file import load
    from autosplit.study.export import export_best_split
    from autosplit.study.loop.benches import check_linker, open_bench
    from autosplit.study.loop.open import open_study
    from autosplit.study.loop.run import run_study
    from autosplit.study.storage import storage_url

    chosen, is_new = _options(args), False
    if args.study.suffix.lower() in MODEL_SUFFIXES:
        args.study, is_new = study_file_for(args.study, chosen)
    dashboard: Thread | None = None
    with contextlib.ExitStack() as stack:
        try:
            config = load(args.study, chosen)
            url = storage_url(config.name, args.storage, config.storage)
            if config.export:
                require_replaceable(Path(config.export))
            check_linker(config, output.note)
            # Nothing else is shown until the first kernels are compiled.
            output.note("reading the model and compiling its ops")
            bench = open_bench(config, trust_kernels=args.trust_kernels)
            stack.callback(bench.close)
            _ = bench.description  # reads the model
        except BaseException:
            if is_new:  # leave no file of a study that never began
                args.study.unlink()
            raise
        if is_new:
            output.note(f"wrote {args.study} with all that was assumed; the same command resumes")
        opened = open_study(config, bench, url, output.note, name=args.name, force=args.force)
        if args.open:
            dashboard = _open_dashboard(url, opened.study.study_name)
        run_study(opened)
        folder = None
        try:
            # With the bench still open: its worker has the kernels.
            folder = export_best_split(opened)
        finally:  # the study has its verdict even where it cannot be exported
            record, exported = read(opened.study), str(folder) if folder else None
            document = written(record, url) | ({"export": exported} if folder else {})
            output.emit(args.format, document, shown(record, exported))
    if args.format != "json":
        output.note("next:")
        commands = _next_commands(args, opened, folder)
        for command in commands:
            output.note(f"  autosplit {command}")
        if any(":***@" in command for command in commands):
            output.note("write the password in place of ***")
    if dashboard:
        output.note("the dashboard stays until Ctrl-C")
        with contextlib.suppress(KeyboardInterrupt):
            dashboard.join()


def _open_dashboard(url: str, study: str) -> Thread:
    """Serve the study on a free port, show it in the browser, and return the server's thread."""
    from autosplit.report.dashboard.app import open_server
    from autosplit.report.documents.study_reader import StudyReader

    server, address = open_server(StudyReader(url, study), port=0)
    output.note(f"dashboard: {address}")
    # A daemon thread ends with the process, and holds nothing that outlives it.
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    webbrowser.open(address)
    return thread


def _next_commands(args: argparse.Namespace, opened: OpenStudy, folder: Path | None) -> list[str]:
    """The three commands that make sense now, ready to be copied into a shell."""
    from autosplit.study.storage import redact_password

    name = opened.study.study_name
    study = [str(args.study)]
    if args.storage or args.name or args.force:
        # The study file alone would lead to another study.
        study = [name, "--storage", redact_password(opened.url)]
    commands = [["report", *study, "-o", f"{name}.html"], ["dashboard", *study]]
    if folder:
        commands.append(["bench", str(folder)])
    else:
        trust = ["--trust-kernels"] if args.trust_kernels else []
        commands.append(["export", *study, *trust, "-o", f"{name}-split"])
    return list(map(shlex.join, commands))


def _options(args: argparse.Namespace) -> dict[str, Any]:
    cores = args.cores
    states: Any = options.states(args.state)
    if not isinstance(states, str):
        states = [{"input": each, "output": output} for each, output in states.items()]
    workload = {"rate": args.rate, "p99_ms": args.p99, "delay_ms": args.delay}
    return {
        "stages": args.stages,
        # A number or a list of cores; the study file checks it.
        "cores": int(cores) if cores is not None and cores.isdecimal() else cores,
        "devices": args.devices,
        "runtime": args.runtime,
        "states": states or None,
        "export": str(args.output) if args.output else None,
        "batch": list(args.batch) if isinstance(args.batch, tuple) else args.batch,
        # None leaves the study file's value, an empty mapping would replace it.
        "shapes": {name: list(shape) for name, shape in options.shapes(args.shape).items()} or None,
        "workload": workload if any(v is not None for v in workload.values()) else None,
        "search": {"trials": args.trials, "timeout": args.timeout, "seed": args.seed},
    }
