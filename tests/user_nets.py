"""Nets as users bring them: transformers for texts and images, a ConvNeXt and a quantised net.

They have few layers, of the sizes that are usual. ``NETS`` names them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autosplit.zoo import catalog
from tests.nets import net

_CONSTANTS = {
    "half": np.array(0.5, np.float32),
    "one": np.array(1, np.float32),
    "root": np.array(np.sqrt(0.5), np.float32),
}


def text_net(layers: int = 2, width: int = 768, length: int = 128, causal: bool = False) -> Any:
    """An encoder over the embeddings of a text; ``causal``: a decoder without a cache."""
    body, weights = _encoder("x", layers, width, length, causal)
    shape = f"float[1,{length},{width}]"
    return net(f"g ({shape} x) => ({shape} y) {{ {body} }}", weights)


def vit(layers: int = 2, width: int = 768, size: int = 224, patch: int = 16) -> Any:
    """An encoder over the patches of an image and a class token."""
    patches = (size // patch) ** 2
    length = patches + 1
    body, weights = _encoder("embedded", layers, width, length)
    weights |= {
        "w_patch": (width, 3, patch, patch), "b_patch": (width,), "class_token": (1, 1, width),
        "flat": np.array([1, width, patches]), "position": (1, length, width),
    }  # fmt: skip
    text = f"""g (float[1,3,{size},{size}] x) => (float[1,{length},{width}] y) {{
        patched = Reshape(Conv<strides=[{patch},{patch}]>(x, w_patch, b_patch), flat)
        tokens = Concat<axis=1>(class_token, Transpose<perm=[0,2,1]>(patched))
        embedded = Add(tokens, position)
        {body}
    }}"""
    return net(text, weights)


def convnext(depths: tuple[int, ...] = (1, 1, 2, 1), width: int = 96, size: int = 224) -> Any:
    """Wide depthwise convolutions, each with a layer norm and two linear layers behind it."""
    weights: dict[str, Any] = _CONSTANTS | {"w_stem": (width, 3, 4, 4), "b_stem": (width,)}
    body = "x_0_0 = Conv<strides=[4,4]>(x, w_stem, b_stem)"
    source = "x_0_0"
    for stage, depth in enumerate(depths):
        channels = width << stage
        if stage:
            weights[f"w_down{stage}"] = (channels, channels // 2, 2, 2)
            body += f"\nx_{stage}_0 = Conv<strides=[2,2]>({source}, w_down{stage})"
            source = f"x_{stage}_0"
        for block in range(1, depth + 1):
            is_last = (stage, block) == (len(depths) - 1, depth)
            result = "y" if is_last else f"x_{stage}_{block}"
            body += _convnext_block(f"_{stage}_{block}", source, result, channels)
            weights |= {
                f"w_{stage}_{block}": (channels, 1, 7, 7),
                **_mlp_weights(f"_{stage}_{block}", channels),
            }
            source = result
    last = size >> (len(depths) + 1)
    text = f"g (float[1,3,{size},{size}] x) => (float[1,{channels},{last},{last}] y) {{ {body} }}"
    return net(text, weights)


def resnet50_qdq() -> Any:
    """The zoo's resnet50, quantised by onnxruntime: unsigned tensors, weights by channel."""
    import onnx
    from onnx import version_converter
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    # The first version that has scales by channel.
    model = version_converter.convert_version(catalog.make("resnet50"), 13)
    (image,) = model.graph.input
    shape = [dim.dim_value for dim in image.type.tensor_type.shape.dim]
    generator = np.random.default_rng(0)
    samples = [{image.name: generator.standard_normal(shape, np.float32)} for _ in range(4)]

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return samples.pop() if samples else None

    with TemporaryDirectory() as folder:
        source, plain, quantised = (Path(folder, f"{step}.onnx") for step in range(3))
        onnx.save(model, source)
        quant_pre_process(source, plain, skip_symbolic_shape=True)
        quantization.quantize_static(
            plain,
            quantised,
            Samples(),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            per_channel=True,
        )
        return onnx.load(quantised)


NETS: dict[str, Callable[[], Any]] = {
    "bert": text_net,
    "gpt": partial(text_net, causal=True),
    "vit": vit,
    "convnext": convnext,
    "resnet50_qdq": resnet50_qdq,
}


def _encoder(
    source: str, layers: int, width: int, length: int, causal: bool = False
) -> tuple[str, dict[str, Any]]:
    """The layers from ``source`` to ``y``, and their weights."""
    head = 64
    weights: dict[str, Any] = _CONSTANTS | {
        "split": np.array([1, length, width // head, head]),
        "join": np.array([1, length, width]),
        "scale": np.array(head**-0.5, np.float32),
        "mask": np.triu(np.full((length, length), -1e9 if causal else 0, np.float32), 1),
    }
    body = ""
    for number in range(layers):
        # Without the underscore, q1 of layer 0 would have the name of q of layer 10.
        layer = f"_{number}"
        result = "y" if number == layers - 1 else f"y{layer}"
        body += _attention(layer, source) + _mlp(layer, f"n{layer}", f"f{layer}")
        body += f"""
            h{layer} = Add(f{layer}, n{layer})
            {result} = LayerNormalization<axis=-1>(h{layer}, scale{layer}, bias{layer})
        """
        weights |= {f"w_{name}{layer}": (width, width) for name in ("q", "k", "v", "o")}
        weights |= {f"b_q{layer}": (width,), **_mlp_weights(layer, width)}
        source = result
    return body, weights


def _attention(layer: str, source: str) -> str:
    """Attention from ``source``, added to it and normalised: ``n``."""
    return f"""
        q0{layer} = Add(MatMul({source}, w_q{layer}), b_q{layer})
        q{layer} = Transpose<perm=[0,2,1,3]>(Reshape(q0{layer}, split))
        k{layer} = Transpose<perm=[0,2,3,1]>(Reshape(MatMul({source}, w_k{layer}), split))
        v{layer} = Transpose<perm=[0,2,1,3]>(Reshape(MatMul({source}, w_v{layer}), split))
        s{layer} = Softmax<axis=-1>(Add(Mul(MatMul(q{layer}, k{layer}), scale), mask))
        c{layer} = Reshape(Transpose<perm=[0,2,1,3]>(MatMul(s{layer}, v{layer})), join)
        r{layer} = Add(MatMul(c{layer}, w_o{layer}), {source})
        n{layer} = LayerNormalization<axis=-1>(r{layer}, scale{layer}, bias{layer})
    """


def _mlp(name: str, source: str, result: str) -> str:
    """Two linear layers with a GELU in between, as exporters write it."""
    return f"""
        e{name} = Add(MatMul({source}, w_expand{name}), b_expand{name})
        g{name} = Mul(Mul(e{name}, Add(Erf(Mul(e{name}, root)), one)), half)
        {result} = MatMul(g{name}, w_reduce{name})
    """


def _mlp_weights(name: str, width: int) -> dict[str, Any]:
    """The weights of two linear layers and a layer norm."""
    return {
        f"w_expand{name}": (width, 4 * width),
        f"b_expand{name}": (4 * width,),
        f"w_reduce{name}": (4 * width, width),
        f"scale{name}": (width,),
        f"bias{name}": (width,),
    }


def _convnext_block(name: str, source: str, result: str, channels: int) -> str:
    return f"""
        c{name} = Conv<group={channels}, pads=[3,3,3,3]>({source}, w{name})
        t{name} = Transpose<perm=[0,2,3,1]>(c{name})
        n{name} = LayerNormalization<axis=-1>(t{name}, scale{name}, bias{name})
        {_mlp(name, f"n{name}", f"m{name}")}
        {result} = Add({source}, Transpose<perm=[0,3,1,2]>(m{name}))
    """
