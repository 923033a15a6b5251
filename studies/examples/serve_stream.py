"""Serve a stream: one thread hands items in as they come, another takes the results, in the same
order.

    python studies/examples/serve_stream.py out/ --items 100

``out/`` is a folder that `autosplit export` or `autosplit split` wrote. A pipeline holds a bounded
number of items, so ``submit`` waits where the stream is faster than the stages. Should a stage
fail, both threads are told at once.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np

import autosplit


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--items", type=int, default=100)
    args = parser.parse_args()
    try:
        with autosplit.load(args.folder) as pipeline:
            feeder = threading.Thread(target=feed, args=(pipeline, stream(pipeline, args.items)))
            start = time.perf_counter()
            feeder.start()
            for number, outputs in enumerate(itertools.islice(pipeline.results(), args.items)):
                consume(number, outputs)
            rate = args.items / (time.perf_counter() - start)
            feeder.join()
    except autosplit.AutosplitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{args.items} items, {rate:.1f} items/s, fill and drain included")
    return 0


def stream(pipeline: autosplit.Pipeline, count: int) -> Iterator[dict[str, np.ndarray]]:
    """Random items.

    Yours come from a camera, a socket, a queue. One array an input, which stays as it is until its
    result.
    """
    random = np.random.default_rng(0)
    for _ in range(count):
        yield {p.name: random.random(p.shape).astype(p.dtype) for p in pipeline.wiring.inputs}


def feed(pipeline: autosplit.Pipeline, items: Iterator[dict[str, np.ndarray]]) -> None:
    """Hand all items in.

    Where that fails, end the pipeline, so that nobody waits for results that never come.
    """
    try:
        for item in items:
            pipeline.submit(item)
    except autosplit.AutosplitError as error:
        print(f"the stream ended: {error}", file=sys.stderr)
        pipeline.close()


def consume(number: int, outputs: dict[str, np.ndarray]) -> None:
    if number < 3:
        print(
            number,
            {name: (array.shape, round(float(array.mean()), 6)) for name, array in outputs.items()},
        )


if __name__ == "__main__":
    sys.exit(main())
