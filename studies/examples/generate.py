"""Generate text with a language model that is split into stages, in several streams at once.

    pip install transformers
    python studies/examples/generate.py --stages 2 --streams 4 --tokens 32

A Llama with random weights is exported with a static cache by transformers, planned, and generates
the most likely tokens. ``model.generate`` of transformers has to give the same ones. For a model of
your own, replace ``small_llama``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import autosplit

Item = dict[str, np.ndarray]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=128, help="tokens that the cache holds")
    parser.add_argument("--chunks", type=int, nargs="*", default=[64, 8], metavar="TOKENS")
    parser.add_argument("--stages", type=int, default=2)
    devices = "one a stage, such as cores:0, or ray:NODE/cores:0 on a Ray cluster, without chunks"
    parser.add_argument("--devices", nargs="+", default=[], metavar="DEVICE", help=devices)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32, help="tokens to generate in each stream")
    args = parser.parse_args()
    llama = small_llama(args.layers, args.length)
    random = np.random.default_rng(0)
    sizes = [args.length // 3 + s for s in range(args.streams)]
    prompts = [list(map(int, random.integers(1, 100, size))) for size in sizes]
    with tempfile.TemporaryDirectory() as folder:
        on_ray = any(device.startswith("ray:") for device in args.devices)
        chunks = [c for c in args.chunks if 1 < c <= args.length // 4 and not on_ray]
        file = export_onnx(llama, args.length, Path(folder), several=bool(chunks))
        variants = variants_of(llama, args.length, chunks) if chunks else None
        model = autosplit.load_model(file, states="auto", runtime="onnxruntime", variants=variants)
        split = autosplit.plan(model, stages=args.stages, devices=args.devices)
        with split.pipeline() as pipeline:
            start = time.perf_counter()
            texts = generate(pipeline, prompts, args.tokens)
            seconds = time.perf_counter() - start
    print(f"{args.streams * args.tokens / seconds:.1f} tokens/s in {args.stages} stages")
    is_equal = texts == [by_transformers(llama, prompt, args.tokens) for prompt in prompts]
    print("equal to model.generate" if is_equal else "differs from model.generate")
    return 0 if is_equal else 1


def small_llama(layers: int, length: int, size: int = 64) -> Any:
    """A Llama with random weights and a hidden state of ``size`` for up to ``length`` tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=size,
        intermediate_size=2 * size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=length,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


def decoding_step(model: Any, length: int, tokens: int = 1) -> tuple[Any, Any]:
    """The module for one step of a decoder with a cache of ``length`` tokens, and its inputs.

    A step takes one token, or any number if ``tokens`` is more than one.
    """
    import torch
    from transformers import GenerationConfig
    from transformers.exporters.utils import decompose_for_generation

    static = GenerationConfig(
        cache_implementation="static", max_cache_len=length, pad_token_id=0, eos_token_id=None
    )
    components = decompose_for_generation(
        model,
        {"input_ids": torch.tensor([[1, 2, 3]])},
        generation_config=static,
        multi_token_decode=tokens > 1,
    )
    program, inputs = components["decode"]
    return program, inputs


def export_onnx(model: Any, length: int, folder: Path, several: bool = False) -> Path:
    """Export a decoder that takes one token a step, or with ``several`` any number."""
    from transformers.exporters import OnnxConfig, OnnxExporter

    file = folder / "decoder.onnx"
    step = decoding_step(model, length, 2 if several else 1)
    program, _ = OnnxExporter().export_program(*step, OnnxConfig(dynamic=several))
    OnnxExporter.save_program(program, file)
    return file


def variants_of(model: Any, length: int, chunks: Sequence[int]) -> Mapping[str, Any]:
    """The shapes of items of one token and of chunks of a prompt, for ``load_model``."""
    config = model.config
    heads, size = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    cache = {"input.cache.layers.0.keys": (1, heads, length, size)}
    return {f"{n} tokens": {"attention_mask": (1, 1, n, length), **cache} for n in (1, *chunks)}


def item_of(ports: Sequence[Any], tokens: Sequence[int], position: int) -> Item:
    """The item of tokens from ``position`` on: their numbers, positions and attention mask."""
    places = np.arange(position, position + len(tokens))
    item: Item = {}
    for port in ports:
        if "mask" in port.name:  # a token sees itself and what is before it
            value: np.ndarray = np.arange(port.shape[-1]) <= places[:, None]
            if "float" in port.dtype:  # attention adds it to its scores
                value = np.where(value, 0, np.finfo(port.dtype).min)
        else:
            value = places if "position" in port.name else np.array(tokens)
        item[port.name] = np.broadcast_to(value, port.shape).astype(port.dtype)
    return item


def generate(
    pipeline: autosplit.Pipeline, prompts: Sequence[Sequence[int]], count: int
) -> list[list[int]]:
    """The ``count`` most likely tokens after each prompt; every prompt is a stream."""
    texts = [list(prompt) for prompt in prompts]
    computed = [0] * len(texts)  # tokens of each text
    wiring = pipeline.wiring
    # The longest first: the rest of a prompt takes the next shorter one.
    shapes = [wiring.inputs, *(variant.inputs for variant in wiring.variants.values())]
    shapes.sort(key=lambda ports: -ports[0].shape[-1])

    def next_item(stream: int) -> Item:
        rest = texts[stream][computed[stream] :]
        ports = next(p for p in shapes if p[0].shape[-1] <= len(rest))
        tokens = rest[: ports[0].shape[-1]]
        computed[stream] += len(tokens)
        return item_of(ports, tokens, computed[stream] - len(tokens))

    def following(outputs: Mapping[str, np.ndarray], stream: int, step: int) -> Item | None:
        text = texts[stream]
        if computed[stream] == len(text):  # the outputs are those of the last token
            (scores,) = outputs.values()
            text.append(int(scores[0, -1].argmax()))
        if len(text) == len(prompts[stream]) + count:
            return None
        return next_item(stream)

    first = map(next_item, range(len(texts)))
    for _ in pipeline.loop(first, following, streams=len(prompts)):
        pass
    return [text[len(prompt) :] for text, prompt in zip(texts, prompts, strict=True)]


def by_transformers(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """The same tokens, generated by transformers."""
    import torch

    ids = torch.tensor([prompt])
    result = model.generate(ids, max_new_tokens=count, do_sample=False, pad_token_id=0)
    return [int(token) for token in result[0, len(prompt) :]]


if __name__ == "__main__":
    sys.exit(main())
