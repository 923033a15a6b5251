"""onnxruntime-genai's own loop with the weights of a Llama: one text, or several as a batch."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.hardware.measurement.measure import MS, Budget
from autosplit.hardware.measurement.results import Spread, spread

PACKAGE = "onnxruntime_genai"


def build(llama: Any, folder: Path) -> Path:
    """The model in the form of onnxruntime-genai, in single precision."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    source, built = folder / "transformers", folder / "genai"
    # No token ends a text, but its configuration wants one.
    llama.config.eos_token_id = llama.config.pad_token_id = llama.config.vocab_size - 1
    llama.config.bos_token_id = 1
    llama.save_pretrained(source)
    words = {f"t{token}": token for token in range(llama.config.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="t0").save_pretrained(source)
    options = ["-i", source, "-o", built, "-p", "fp32", "-e", "cpu", "-c", folder]
    command = [sys.executable, "-m", f"{PACKAGE}.models.builder", *map(str, options)]
    subprocess.run(command, check=True, capture_output=True)
    return built


def loop(folder: Path, texts: int, steps: int) -> Callable[[Budget], Spread]:
    """What measures the time of a token in ms, where so many texts are generated at once."""
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder))
    options = onnxruntime_genai.GeneratorParams(model)
    options.set_search_options(max_length=steps + 2, min_length=steps + 2, batch_size=texts)

    def measure(budget: Budget) -> Spread:
        samples, deadline = list[float](), time.perf_counter() + budget.seconds
        while not samples or time.perf_counter() < deadline:
            generator = onnxruntime_genai.Generator(model, options)
            generator.append_tokens(np.ones((texts, 1), np.int32))
            generator.generate_next_token()
            start = time.perf_counter()
            for _ in range(steps):
                generator.generate_next_token()
            samples.append((time.perf_counter() - start) / (steps * texts) * MS)
        return spread(samples)

    return measure
