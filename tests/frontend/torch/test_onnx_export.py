"""Forms of torch's ops that ONNX, its exporter or TVM could misread, compared with torch."""

import numpy as np
import pytest

import autosplit
from autosplit.deploy.verify import verify
from autosplit.errors import ModelError
from autosplit.hardware.measurement.parity import compare
from tests.frontend.torch.conftest import exported
from tests.nets import judge

torch = pytest.importorskip("torch")
functional = torch.nn.functional

X = torch.linspace(-2, 2, 24).reshape(4, 6)
IMAGE = torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)
HEADS = torch.linspace(-1, 1, 48).sin().reshape(1, 2, 6, 4)
BACK = torch.tensor([-1, 2, -3])
MASK = torch.ones(6, 6, dtype=torch.bool).tril()
HIDING = MASK & (torch.arange(6)[:, None] > 1)  # all keys from two queries
FLAGS = torch.arange(24).reshape(4, 6) % 2 == 0


def run(program, item):
    """Compare each output of one stage with torch on an item."""
    model = autosplit.load_model(program)
    item = {i.name: v.numpy() for i, v in zip(model.lowered.inputs, item, strict=True)}
    (expected,) = model.expected([item])
    with model.split([]).pipeline() as pipeline:
        (result,) = pipeline.run([item])
    assert result.keys() == expected.keys()
    for name in expected:
        one, other = [{name: result[name]}], [{name: expected[name]}]
        assert compare(one, other, model.allowed_error).equal, name


def masked(x):
    y = functional.pixel_shuffle(1 - x, 2)[:, 0]
    y = functional.layer_norm(y, (4,)) / y.std(-1, keepdim=True)
    return y.masked_fill(torch.ones(4, 4).triu(1) == 1, float("-inf")).softmax(-1)


def extended(x):
    """A mask as BERT makes it, and its heads."""
    mask = (1.0 - (x[:, None, None, :] > 0).to(x.dtype)) * torch.finfo(x.dtype).min
    heads = x[:, None].view(4, 1, 2, 3).transpose(1, 2).expand(-1, -1, 6, -1)
    y = functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
    return y.transpose(1, 2).reshape(4, 6, 6)


def causal(x):
    """A mask as Llama makes it, with a second one from the outside."""
    least = torch.finfo(x.dtype).min
    mask = torch.full((4, 4), least).triu(1)[None, None].expand(2, 1, -1, -1).clone()
    return mask.masked_fill(mask + (x[:2, None, None, :4] > 0).to(x.dtype) == 0, least)


@torch.no_grad()
def rotary(x):
    """Positions as Llama turns its heads by, without gradients and mixed precision."""
    rates = 100.0 ** -(torch.arange(3) / 3)
    with torch.autocast("cpu", enabled=False):
        angles = (rates[:, None] @ torch.arange(4)[None].float()).T
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return x * cos + torch.cat([-x[..., 3:], x[..., :3]], -1) * sin


def interpolated(**options):
    return lambda x: functional.interpolate(x, **options)


def attention(**options):
    return lambda *x: functional.scaled_dot_product_attention(*x, **options)


FORMS = [
    lambda x: x[:, [1, -1]] * x[[-1, -2], [0, -1]],
    lambda x: (x * 10).int() / 3 + (x * 10).int() // 3,
    lambda x: torch.div((x * 1e8).long(), 3, rounding_mode="trunc"),
    lambda x: torch.logaddexp(functional.logsigmoid(x * 100), x * 100),
    lambda x: torch.atan2(x.relu(), x) + torch.atan2(x.abs(), -x.relu()) + (-x).log().angle(),
    lambda x: torch.divide(x, (x * 10).long() + 100),
    lambda x: (x * 1e7) % 0.7 + 1e7 % (x + 3) + x.round() // 0.1 + (x * 0).signbit().float(),
    lambda x: torch.where(x > 0, x, torch.nan).nanmean(),
    lambda x: (x.log() == x.log()) * functional.cross_entropy(x, x.softmax(1), label_smoothing=0.2),
    lambda x: functional.conv3d(x.view(1, 1, 2, 3, 4), torch.ones(2, 1, 2, 2, 2)),
    lambda x: functional.max_pool2d((x[None] * 9).long(), 2),
    lambda x: x.amin((0, -1), keepdim=True) * 2,
    lambda x: torch.vstack([torch.hstack([x, x * 2]), x[0].repeat(2)]),
    lambda x: torch.dstack([torch.column_stack([x, x[:, 0] * 2])] * 2),
    lambda x: (x * 10).int().mean(1, dtype=x.dtype) + x.half().softmax(1, dtype=x.dtype).T[0],
    lambda x: torch.view_as_real(torch.polar(x.abs(), x)),
    lambda x: (x.float().pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * x,
    lambda x: x[:, None].expand(-1, 2, 6).reshape(-1, 6) * 2,
    lambda x: x.repeat_interleave(2, 0) * 2,
    extended,
    causal,
    rotary,
]
OF_LINES = {"size": 13}, {"size": 13, "align_corners": True}, {"scale_factor": 2}
MORE_ATTENTION = [
    ([HEADS, HEADS, HEADS, MASK], [attention()]),
    ([HEADS, HEADS, HEADS, MASK.float()], [attention()]),
    ([HEADS, HEADS[:, :1], HEADS[:, :1]], [attention(enable_gqa=True)]),
    ([HEADS[0], HEADS[0], HEADS[0]], [attention(is_causal=True)]),
]


@pytest.mark.parametrize(
    ("arguments", "functions"),
    [
        ([X], FORMS),
        ([X], [lambda x: (x * 2).bfloat16()]),
        ([X], [lambda x: functional.layer_norm(x.bfloat16(), (6,))]),
        ([X, BACK], [lambda x, i: x[i] * 2]),
        ([torch.linspace(-1, 1, 16).sin().reshape(1, 4, 2, 2)], [masked]),
        ([IMAGE[:, :, 0]], [interpolated(mode="linear", **options) for options in OF_LINES]),
        ([IMAGE], [interpolated(size=size) for size in ((6, 5), (3, 3), (7, 2), (8, 8))]),
        ([HEADS[0, 0]] * 3, [attention()]),
        ([HEADS, HEADS, HEADS, HIDING], [attention()]),
        ([HEADS, HEADS, HEADS, HIDING.float().log()], [attention()]),
        *(pytest.param(*case, marks=pytest.mark.integration) for case in MORE_ATTENTION),
    ],
)
def test_forms_that_would_be_misread(arguments, functions):
    run(exported(lambda *x: tuple(f(*x) for f in functions), *arguments), arguments)


def test_an_lstm_stays_one_op_that_onnxruntime_computes():
    lstm = torch.nn.LSTM(2, 2, num_layers=2, bidirectional=True, batch_first=True)
    program = torch.export.export(lstm.eval(), (torch.randn(1, 3, 2),))
    model = autosplit.load_model(program, runtime="onnxruntime")
    assert sum("LSTM" in op.opaque for op in model.graph.ops) == 2
    judge(model, model.split([]))


def test_attention_by_learnt_positions_is_laid_out_as_without_gradients():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = torch.nn.Linear(1, 2)
            self.parts = torch.nn.Linear(6, 24)

        def forward(self, x):
            parts = self.parts(x).view(1, 4, 2, 12).transpose(1, 2).chunk(3, 3)
            mask = self.positions(x.new_ones(4, 4, 1)).permute(2, 0, 1)[None].contiguous()
            y = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
            return y.transpose(1, 2).reshape(1, 2, 2, -1)

    with torch.no_grad():
        program = torch.export.export(Net().eval(), (X[None],))
    run(program, [X[None]])


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: x.mode(0),
         r"node 'mode' \(aten.mode.default\) cannot be exported as ONNX: torch"),
        (lambda x: x.lgamma(), "node 'lgamma'"),
        (lambda x: torch.histc(x, 4), "node 'histc' .* has no exact form in ONNX; replace it$"),
        (lambda x: functional.avg_pool2d(x, 2, divisor_override=3), "node 'avg_pool2d' .* exact"),
        (lambda x: functional.dropout(x, 0.5, True), "node 'dropout' .* drops values at random"),
        (lambda x: functional.embedding_bag(torch.tensor([1, 0]), x[0, 0], torch.tensor([0])),
         "node 'embedding_bag' .* cannot be imported"),
        (lambda x: x + torch.randn_like(x), "node 'randn_like' .* draws random numbers"),
        (lambda x: torch.polar(x.abs(), x), r"output .polar. is torch\.complex64, .*view_as_real"),
        (lambda x: functional.batch_norm(x, torch.zeros(3), torch.ones(3), training=True),
         r"node 'batch_norm' normalises as in training; export after eval\(\)"),
    ],
)  # fmt: skip
def test_what_the_importer_cannot_read_is_refused_by_name(function, named):
    with pytest.raises(ModelError, match=named):
        autosplit.load_model(exported(function, IMAGE))


class Buffered(torch.nn.Module):
    def __init__(self, **buffers):
        super().__init__()
        for name, tensor in buffers.items():
            if name == "count":  # a parameter may be updated as well
                self.count = torch.nn.Parameter(tensor.clone(), requires_grad=False)
            else:
                self.register_buffer(name, tensor.clone())


class Sum(Buffered):
    """The output needs the total, and the total of the next step the count of this one."""

    def forward(self, x):
        result = self.total * 2
        self.total += x * self.count
        self.count += 1
        return result


class Delayed(Buffered):
    """Its input two steps before, as it came, and whether the last one was large.

    A buffer has the name of an input, and no output needs the count.
    """

    def forward(self, x, flag):
        self.count += 1
        result = self.before * 2 + x + self.flag
        self.before.copy_(self.last)
        self.last.copy_(x)
        self.flag.copy_(flag)
        return result


class Updating(Buffered):
    """Changes its inputs, one of which it returns too; a buffer is set anew before it is read."""

    def forward(self, x, total, count, at):
        self.position.copy_(at[0])
        total.add_(x * count)
        count.add_(1)
        return total * 2 + self.position, total


ZEROS, NUMBER = torch.zeros(4, 6), torch.zeros(())


@pytest.mark.parametrize(
    ("module", "buffers", "inputs", "changed", "states"),
    [
        (Sum, {"total": ZEROS + 0.5, "count": NUMBER}, {"x": X}, {},
         {"total": "total_next", "count": "count_next"}),
        (Delayed, {"last": ZEROS, "before": ZEROS, "flag": ZEROS.bool(), "count": NUMBER},
         {"x": X, "flag": FLAGS}, {}, dict.fromkeys(("last", "before", "b_flag"))),
        (Updating, {"position": NUMBER.long()}, {"x": X, "at": torch.tensor([3])},
         {"total": (4, 6), "count": ()}, {"total": "add_", "count": "count_next"}),
    ],
)  # fmt: skip
def test_what_decides_outputs_is_a_state(module, buffers, inputs, changed, states, tmp_path):
    changed = {name: torch.zeros(shape) for name, shape in changed.items()}
    program = torch.export.export(module(**buffers), (), inputs | changed)
    torch.export.save(program, tmp_path / "net.pt2")
    model = autosplit.load_model(tmp_path / "net.pt2")
    outputs = {state.input: state.output for state in model.graph.states}
    assert outputs.keys() == states.keys()
    assert all(outputs[name] == output for name, output in states.items() if output)
    items, instance = model.items(5), module(**buffers)
    assert all(item.keys() == inputs.keys() for item in items)
    items[1]["x"][0, :3] = np.nan, -0.0, np.inf
    current, steps = dict(instance.state_dict()) | changed, []

    def require_states(pipeline):
        for name, array in pipeline.state().items():
            np.testing.assert_allclose(array, current[name.removeprefix("b_")], atol=1e-5)

    model.split([]).export(tmp_path / "out")
    with model.split([]).pipeline() as pipeline, autosplit.load(tmp_path / "out") as loaded:
        require_states(pipeline)
        for item in items:
            tensors = {name: torch.from_numpy(array) for name, array in item.items()}
            result = instance(**tensors, **changed)
            steps.append((result[0] if changed else result).numpy())
        for running in (pipeline, loaded):
            for result, array in zip(running.run(items), steps, strict=True):
                (output,) = result.values()
                np.testing.assert_allclose(output, array, atol=1e-5)
            require_states(running)
        model.require_equal(pipeline, ["tvm"])
    assert verify(tmp_path / "out").accuracy.equal
