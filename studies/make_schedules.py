"""Tune the kernels of zoo nets for a portable x86-64-v3 target and write the records that ship with
the package.

    python studies/make_schedules.py DATABASE [NET ...] [--samples N]

DATABASE is a folder; kernels it knows already are not tuned again, so the command can be
interrupted and repeated. The traces of everything in it are written to
autosplit/hardware/codegen/schedules.json.gz, beside those there already.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

from autosplit import api
from autosplit.hardware.codegen import schedules, tuning
from autosplit.hardware.codegen.tuning_database import database
from autosplit.versions import environment
from autosplit.zoo import catalog

TARGET = "llvm -mcpu=x86-64-v3"
FILE = Path(schedules.__file__).with_name(schedules.SHIPPED)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", type=Path)
    parser.add_argument("nets", nargs="*", default=["squeezenet"])
    parser.add_argument(
        "--samples", type=int, default=12, help="schedules to try a kernel, on average"
    )
    args = parser.parse_args()
    for net in args.nets:
        model = api.load_model(catalog.cached(net), target=TARGET)
        start = time.monotonic()
        kernels, work = model.lowered.kernels, tuning.work_of(model.graph)
        for i, tuned in enumerate(
            tuning.tune(kernels, model.target, args.database, args.samples, work=work)
        ):
            print(
                f"{net} {i + 1}/{len(kernels)} {time.monotonic() - start:.0f} s {tuned}", flush=True
            )
    traces = dict(
        sorted({**schedules.shipped(), **_traces(args.database)}.items())
    )  # the tuner keeps only what is faster
    document = {"target": TARGET, "made": environment(), "traces": traces}
    with FILE.open("wb") as stream, gzip.GzipFile("", "wb", mtime=0, fileobj=stream) as packed:
        packed.write(json.dumps(document, separators=(",", ":")).encode())
    print(f"{FILE}: {len(traces)} schedules, {FILE.stat().st_size} bytes")


def _traces(folder: Path) -> dict[str, Any]:
    """The best trace of each kernel by its structural hash."""
    records = database(folder)
    best: dict[str, tuple[float, Any]] = {}
    for record in records.get_all_tuning_records():
        key = schedules.key_of(record.workload.mod["main"])
        seconds = min(float(s) for s in record.run_secs)
        if key not in best or seconds < best[key][0]:
            best[key] = (seconds, record.trace.as_json())
    return {key: _plain(trace) for key, (_, trace) in best.items()}


def _plain(value: Any) -> Any:
    """TVM's containers as JSON's."""
    if isinstance(value, str | bool | int | float | None):
        return value
    return _plain(value.value) if hasattr(value, "value") else [_plain(v) for v in value]


if __name__ == "__main__":
    main()
