"""How many public PyTorch architectures autosplit can split, with outputs equal to torch's.

    python -m studies.benchmarks.architectures [--count N] [-o FILE]

Draws N architectures by a seed, two thirds from timm and a third from transformers, with random
weights. Each is exported by torch, split into three stages of about the same number of ops and
compared with torch: in TVM, or in onnxruntime where an op is opaque.
Images have at most 256 pixels a side where the architecture allows it. Transformers have two
layers, 1,000 words, and half the width if that is above 2,048. Batch norms have the statistics of
random images: without these, signals grow until torch itself is 70 % off in float32. Needs the
packages timm and transformers. Bars: at least 55 of 60 are equal, none differs, crashes or hangs,
and the remaining ones are refused by name.
"""

from __future__ import annotations

import random
import sys
import warnings
from typing import Any

from autosplit import api
from autosplit.errors import line_of
from studies.benchmarks import verdicts
from studies.benchmarks.result import arguments

NOT_EXPORTED = "not exported by torch"
SHARE, SECONDS = 55 / 60, 900.0
MAX_SIDE, WORDS, MAX_WIDTH = 256, 1000, 2048
TYPES = """
    albert bert camembert convbert deberta-v2 distilbert electra ernie falcon gemma gpt2 gpt_neo
    gpt_neox gptj layoutlm llama mistral mobilebert mpnet olmo opt phi qwen2 roberta roformer
    squeezebert stablelm starcoder2 xlm-roberta
"""


def main() -> int:
    args = arguments(__doc__, count=60).parse_args()
    judged = verdicts.judge_apart("architectures", drawn(args.count), SECONDS, fresh=True)
    others = (NOT_EXPORTED,)
    listed = (*verdicts.COUNTED, *others)
    return verdicts.report("architectures", "models", judged, SHARE, others, listed, args.file)


def drawn(count: int) -> list[str]:
    """Names of architectures, the same each time."""
    import timm

    generator = random.Random(0)
    from_transformers = count // 3
    images = generator.sample(sorted(timm.list_models()), count - from_transformers)
    texts = generator.sample(sorted(TYPES.split()), from_transformers)
    return [f"timm/{name}" for name in images] + [f"transformers/{name}" for name in texts]


def exported(name: str) -> Any:
    """An architecture with random weights, the same each time, as a program of torch.export."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net, inputs = _net_and_inputs(name)
        return torch.export.export(net.eval(), (), inputs)


def judge(name: str) -> verdicts.Verdict:
    """The verdict on an architecture and the reason for it."""
    try:
        program = exported(name)
    except Exception as error:
        return NOT_EXPORTED, line_of(error)
    return verdicts.judge(
        lambda runtime: api.load_model(program, runtime=runtime), _in_three_stages
    )


def _net_and_inputs(name: str) -> tuple[Any, dict[str, Any]]:
    """A net with random weights, and its arguments by name."""
    import torch

    source, _, kind = name.partition("/")
    if source == "timm":
        import timm

        net = timm.create_model(kind, pretrained=False)
        channels, height, width = net.default_cfg["input_size"]
        if not net.default_cfg.get("fixed_input_size"):
            height, width = min(height, MAX_SIDE), min(width, MAX_SIDE)
        images = torch.randn(3, channels, height, width)
        _set_statistics(net, images[1:])
        return net, {"x": images[:1]}
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(kind)
    config.num_hidden_layers = 2
    config.vocab_size = WORDS
    config.use_cache = False
    if config.hidden_size > MAX_WIDTH:
        config.hidden_size //= 2
        if getattr(config, "intermediate_size", None):  # some derive it from the width
            config.intermediate_size //= 2
    net = AutoModel.from_config(config)
    return net, {"input_ids": torch.randint(0, 100, (1, 32))}


def _set_statistics(net: Any, images: Any) -> None:
    """Set the statistics of a net's batch norms to the means and variances of some images."""
    import torch

    net.eval()
    for norm in net.modules():
        if isinstance(norm, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d | torch.nn.BatchNorm3d):
            norm.momentum = 1.0
            norm.train()
    net(images)
    net.eval()


def _in_three_stages(model: api.Model) -> api.Split:
    names = [op.name for op in model.graph.ops]
    if len(names) < 3:
        return model.split([])
    return model.split([[names[len(names) // 3]], [names[2 * len(names) // 3]]])


if __name__ == "__main__":
    sys.exit(main())
