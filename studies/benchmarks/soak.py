"""Hours of a stream through an exported pipeline: every result the right one, in order, none lost,
memory flat.

    python -m studies.benchmarks.soak                  # an hour of `branches` in three stages
    python -m studies.benchmarks.soak out/ --minutes 5 # of a folder that `autosplit export` wrote
    python -m studies.benchmarks.soak --rate 5         # five items a second, as from a camera
    python -m studies.benchmarks.soak --streams 8      # streams with states, of `amplifier`

One thread submits, another takes the results. Items repeat after a prime number of different ones,
so a lost, repeated or exchanged item shows as a wrong output; outputs must be equal to the bit.
Several streams get the same items, interleaved; each is reset before the items repeat.
Exits 1 where one is wrong or memory grew.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from queue import SimpleQueue
from statistics import median

import numpy as np

import autosplit
from autosplit import api
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.zoo import catalog

DIFFERENT = 101  # items; prime, and far more than a pipeline holds at a time
SAMPLE = 100  # results between two looks at memory
GROWTH = 8e6  # bytes that memory may grow by after the first quarter
PAGE = 4096
_MEMORY = Path("/proc/self/statm")


@dataclass(frozen=True)
class Soak:
    """What a soak found: results taken, the first wrong one, resident memory in bytes every
    ``SAMPLE`` results.
    """

    results: int
    wrong: int | None
    seconds: float
    memory: tuple[int, ...]

    @property
    def grown(self) -> float:
        """By how many bytes memory grew from the second quarter to the last.

        The first is for warming up.
        """
        quarter = len(self.memory) // 4
        if not quarter:
            return 0.0
        return median(self.memory[-quarter:]) - median(self.memory[quarter : 2 * quarter])

    @property
    def sound(self) -> bool:
        """Whether every result was right and memory stayed flat."""
        return self.wrong is None and self.grown <= GROWTH


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--rate", type=float, default=float("inf"), help="items a second at most (default no limit)"
    )
    parser.add_argument("--streams", type=int, default=1, help="interleaved (default 1)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or exported(Path(temporary), args.streams)
        deadline = time.monotonic() + args.minutes * 60
        with autosplit.load(folder) as pipeline:
            result = soak(pipeline, until(deadline, args.rate), args.streams)
    print(report(result))
    return 0 if result.sound else 1


def report(result: Soak) -> str:
    """The result in one line."""
    minutes, rate = result.seconds / 60, result.results / result.seconds
    order = "all right and in order"
    if result.wrong is not None:
        order = f"number {result.wrong} is WRONG"
    first, last = (result.memory[i] / 1e6 if result.memory else 0 for i in (0, -1))
    excess = "" if result.grown <= GROWTH else ", which is TOO MUCH"
    return (
        f"{result.results} results in {minutes:.1f} min, {rate:.1f} a second, {order}, "
        f"memory {first:.0f} MB at first and {last:.0f} MB at last, "
        f"grown by {result.grown / 1e6:.2f} MB after the first quarter{excess}"
    )


def until(deadline: float, rate: float = float("inf")) -> Callable[[int], bool]:
    """Whether an item may still go in, before ``deadline`` of ``time.monotonic``.

    Waits where ``rate`` a second says so.
    """
    start = time.monotonic()

    def goes_on(number: int) -> bool:
        time.sleep(max(0.0, start + number / rate - time.monotonic()))
        return time.monotonic() < deadline

    return goes_on


def exported(folder: Path, streams: int = 1) -> Path:
    """The net ``branches`` of the zoo in three stages; for streams ``amplifier`` in two."""
    if streams > 1:
        pairs = {f"past_{layer}": f"present_{layer}" for layer in range(12)}
        model = api.load_model(catalog.cached("amplifier"), states=pairs)
        model.split([["layer5.sum"]]).export(folder)
        return folder
    api.load_model(catalog.cached("branches")).split([["first"], ["hinted"]]).export(folder)
    return folder


def soak(pipeline: Pipeline, goes_on: Callable[[int], bool], streams: int = 1) -> Soak:
    """Stream items while ``goes_on(number)``, checking every result, and end the pipeline.

    StageError where a stage fails.
    """
    items = different(pipeline)
    expected = pipeline.run(items)
    submitted = Submitter(pipeline, items, goes_on, streams)
    submitted.start()
    try:
        return watched(results(pipeline, submitted), expected, streams)
    finally:
        pipeline.close()  # a submitter that waits for room is told
        submitted.join()


def watched(
    stream: Iterator[dict[str, np.ndarray]],
    expected: Sequence[dict[str, np.ndarray]],
    streams: int = 1,
) -> Soak:
    """Take results until the stream ends or one is wrong, and look at memory now and then."""
    memory: list[int] = []
    start, taken = time.perf_counter(), 0
    for outputs in stream:
        if not equal(outputs, expected[taken // streams % DIFFERENT]):
            return Soak(taken, taken, time.perf_counter() - start, tuple(memory))
        taken += 1
        if taken % SAMPLE == 0 and _MEMORY.exists():
            memory.append(int(_MEMORY.read_text().split()[1]) * PAGE)
    return Soak(taken, None, time.perf_counter() - start, tuple(memory))


class Submitter(threading.Thread):
    """Submits items one after the other.

    ``tokens`` has True for each that went in, then False; ``error`` says why it ended.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        items: Sequence[Item],
        goes_on: Callable[[int], bool],
        streams: int,
    ) -> None:
        super().__init__(name="submitter")
        self.tokens = SimpleQueue[bool]()
        self.error: autosplit.AutosplitError | None = None
        self._pipeline, self._items, self._goes_on = pipeline, items, goes_on
        self._streams = streams

    def run(self) -> None:
        try:
            for number in takewhile(self._goes_on, count()):
                step, stream = divmod(number, self._streams)
                step %= len(self._items)
                if not step:
                    self._pipeline.reset(stream=stream)
                self._pipeline.submit(self._items[step], stream=stream)
                self.tokens.put(True)
        except autosplit.AutosplitError as error:
            self.error = error
        self.tokens.put(False)


def results(pipeline: Pipeline, submitted: Submitter) -> Iterator[dict[str, np.ndarray]]:
    """A result for every item that was submitted. Raises StageError where a stage failed."""
    stream = pipeline.results()
    while submitted.tokens.get():
        yield next(stream)
    if submitted.error:
        raise submitted.error


def different(pipeline: Pipeline) -> list[dict[str, np.ndarray]]:
    """Random items, no two of them alike."""
    random = np.random.default_rng(0)
    ports = pipeline.wiring.inputs
    return [
        {p.name: random.random(p.shape).astype(p.dtype) for p in ports} for _ in range(DIFFERENT)
    ]


def equal(outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    """Whether outputs are the same to the bit."""
    return outputs.keys() == expected.keys() and all(
        np.array_equal(outputs[name], expected[name]) for name in expected
    )


if __name__ == "__main__":
    sys.exit(main())
