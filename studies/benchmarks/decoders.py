"""A language model with a static cache: one stream and four, on two cores and on one.

    python -m studies.benchmarks.decoders [--seconds S] [-o FILE]

A Llama with random weights is exported by transformers. In each runtime it generates in ``loop``,
whole on one core and as two stages on two, all ways in turns. Times are those of a token. ``over
the stages`` is the time of one stream in two stages over the time that the stages compute. The
rival, if it is installed, is onnxruntime-genai, onnxruntime's own loop, which binds the caches as
inputs and outputs, with one text and with four as a batch. Bars: one stream takes at most 1.1 times
as long as its stages compute, four streams on two cores have at least 1.6 times the throughput of
one core. Needs torch and transformers. Leave the machine alone while it runs.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import autosplit
from autosplit.hardware.measurement.measure import MS, Budget, measure_rounds
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.hardware.runtimes.registry import EXACT
from studies.benchmarks.result import arguments, at_least, at_most, finish
from studies.examples.generate import export_onnx, item_of, small_llama

LAYERS, SIZE = 8, 384  # of the hidden state
LENGTH = 128  # tokens of the cache
STEPS = 32  # of a loop
ROUNDS = 9
STREAMS = 4
GENAI = "onnxruntime_genai"
WAYS = (
    *("one core", "two stages", f"{STREAMS} on one core", f"{STREAMS} on two stages"),
    *("genai", f"{STREAMS} in genai"),
)
Loop = Callable[[Budget], Spread]


def main() -> int:
    args = arguments(__doc__, seconds=10.0).parse_args()
    rows, bars = [], []
    with tempfile.TemporaryDirectory() as folder:
        llama = small_llama(LAYERS, LENGTH, SIZE)
        file = export_onnx(llama, LENGTH, Path(folder))
        loops = list[Loop]()
        if importlib.util.find_spec(GENAI):
            built = genai_model(llama, Path(folder))
            loops = [genai_loop(built, texts) for texts in (1, STREAMS)]
        for runtime in EXACT:
            over, *times = measured(file, runtime, args.seconds, loops)
            gain = times[2].median / times[3].median
            figures = zip((f"{way}, ms" for way in WAYS), times, strict=False)
            row = {"runtime": runtime, **dict(figures), "over the stages": over.median}
            rows.append({**row, "gain": gain})
            bars += [
                at_most(f"{runtime}: one stream over its stages", over.median, 1.1),
                at_least(f"{runtime}: {STREAMS} streams over one core", gain, 1.6),
            ]
    return finish("decoders", rows, bars=bars, file=args.file)


def generating(pipeline: autosplit.Pipeline, streams: int, over: list[float]) -> Loop:
    """Some streams in a pipeline; ``over`` gets the time of each loop over that in its stages."""
    items = [item_of(pipeline.wiring.inputs, [1], step) for step in range(STEPS)]

    def following(outputs: object, stream: int, step: int) -> Any:
        return items[step + 1] if step + 1 < STEPS else None

    def loop() -> float:
        before, start = len(pipeline.events), time.perf_counter()
        for _ in pipeline.loop(items[:1] * streams, following, streams):
            pass
        seconds = time.perf_counter() - start
        over.append(seconds / sum(e.end - e.start for e in pipeline.events[before:]))
        return seconds

    return repeated(loop, streams)


def repeated(seconds: Callable[[], float], texts: int = 1) -> Loop:
    """A function that measures the ms per token; a loop generates STEPS tokens of each text."""

    def measure(budget: Budget) -> Spread:
        samples, deadline = list[float](), time.perf_counter() + budget.seconds
        while not samples or time.perf_counter() < deadline:
            samples.append(seconds() / (STEPS * texts) * MS)
        return spread(samples)

    return measure


def measured(file: Path, runtime: str, seconds: float, loops: Sequence[Loop]) -> list[Spread]:
    """One stream over its stages, and the times of all ways, those of other ``loops`` last."""
    model = autosplit.load_model(file, states="auto", runtime=runtime)
    over = list[float]()
    with (
        model.split([]).pipeline(["cores:0"], trace=True) as whole,
        autosplit.plan(model, stages=2).pipeline(trace=True) as split,
    ):
        ours = [generating(whole, 1, []), generating(split, 1, over)]
        ours += [generating(pipeline, STREAMS, []) for pipeline in (whole, split)]
        rounds = list(measure_rounds([*ours, *loops], Budget(seconds=seconds), ROUNDS))
    times = [spread([turn.median for turn in turns]) for turns in zip(*rounds, strict=True)]
    return [spread(over), *times]


def genai_model(llama: Any, folder: Path) -> Path:
    """The model in the form of onnxruntime-genai, in single precision."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    source, built = folder / "transformers", folder / "genai"
    # No token ends a text, but the configuration requires one.
    llama.config.eos_token_id = llama.config.pad_token_id = llama.config.vocab_size - 1
    llama.config.bos_token_id = 1
    llama.save_pretrained(source)
    words = {f"t{token}": token for token in range(llama.config.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="t0").save_pretrained(source)
    options = ["-i", source, "-o", built, "-p", "fp32", "-e", "cpu", "-c", folder]
    command = [sys.executable, "-m", f"{GENAI}.models.builder", *map(str, options)]
    subprocess.run(command, check=True, capture_output=True)
    return built


def genai_loop(folder: Path, texts: int) -> Loop:
    """onnxruntime-genai's loop, which generates a number of ``texts`` at once."""
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder))
    options = onnxruntime_genai.GeneratorParams(model)
    options.set_search_options(max_length=STEPS + 2, min_length=STEPS + 2, batch_size=texts)

    def loop() -> float:
        generator = onnxruntime_genai.Generator(model, options)
        generator.append_tokens(np.ones((texts, 1), np.int32))
        generator.generate_next_token()
        start = time.perf_counter()
        for _ in range(STEPS):
            generator.generate_next_token()
        return time.perf_counter() - start

    return repeated(loop, texts)


if __name__ == "__main__":
    sys.exit(main())
