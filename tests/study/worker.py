"""A worker of a study on simulated hardware: python -m tests.study.worker URL TRIALS DELAY.

It prints a line before each measurement, which takes DELAY seconds, or with ``held`` until a line
or the end of its input. Errors are one line and an exit code, as from the command line.
"""

import sys
import time

from autosplit.errors import AutosplitError
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.open import open_study
from autosplit.study.loop.run import run_study
from studies.simulation.bench import SimulatedBench, chain_of, on_devices


def main(url, trials, delay):
    search = {"trials": int(trials), "sampler": "random", "lease": 2}
    document = {"name": "w", "model": "net.onnx", "stages": 3, "search": search}
    config = StudyConfig.model_validate(document)
    (graph, costs), devices = chain_of(30, 0), [f"cores:{i}" for i in range(3)]
    bench = SimulatedBench(graph, costs, on_devices(costs, devices), devices)
    measure = bench.measure

    def announced(deployment):
        print("measuring", flush=True)
        if delay == "held":
            sys.stdin.readline()
        else:
            time.sleep(float(delay))
        return measure(deployment)

    bench.measure = announced  # type: ignore[method-assign]
    try:
        run_study(open_study(config, bench, url, lambda line: print(line, file=sys.stderr)))
    except AutosplitError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
