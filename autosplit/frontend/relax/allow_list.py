"""What a Relax module may hold: types of nodes, ops, attributes and names known to be harmless."""

from __future__ import annotations

import re


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


NODE_TYPES = words(
    """
    None DataType bool int float ffi.Array ffi.BigInt ffi.Map ffi.Shape ffi.String ffi.Tensor
    ir.Call ir.DictAttrs ir.FloatImm ir.GenericConst ir.GlobalVar ir.IRModule ir.IntImm ir.Op
    ir.PrimType ir.Range ir.SequentialSpan ir.SourceMap ir.SourceName ir.Span ir.StringImm
    ir.StringType ir.TensorLoad ir.TensorRegion ir.Tuple ir.TupleGetItem ir.TupleType ir.Var
    prim.Add prim.And prim.BitwiseAnd prim.BitwiseNot prim.BitwiseOr prim.BitwiseXor
    prim.Broadcast prim.Cast prim.Div prim.EQ prim.FloorDiv prim.FloorMod prim.GE prim.GT
    prim.LE prim.LShift prim.LT prim.Let prim.Max prim.Min prim.Mod prim.Mul prim.NE prim.Not
    prim.Or prim.RShift prim.Ramp prim.Select prim.Shuffle prim.Sub relax.AnyType relax.FuncType
    relax.ShapeType relax.TensorType relax.expr.BindingBlock relax.expr.DataflowBlock
    relax.expr.DataflowVar relax.expr.Function relax.expr.If relax.expr.MatchCast
    relax.expr.SeqExpr relax.expr.ShapeExpr relax.expr.VarBinding s_tir.SBlock
    s_tir.SBlockRealize tirx.AllocBuffer tirx.AssertStmt tirx.AttrStmt tirx.Bind
    tirx.BufferRegionType tirx.BufferStore tirx.BufferType tirx.Evaluate tirx.For
    tirx.IfThenElse tirx.IndexMap tirx.IterVar tirx.PrimFunc tirx.SeqStmt tirx.While
    """
)
# Attributes of Relax ops are numbers, texts and index maps; the list of ops decides what they do.
OP_ATTRIBUTES = "relax.attrs."

# Arithmetic: nothing here takes an address, a symbol's name or a text.
_KERNEL_OPS = words(
    """
    acos acosh asin asinh atan atan2 atanh copysign cos cosh ctpop erf exp exp10 exp2 fabs floor
    fma fmod hypot isfinite isinf isnan ldexp log log10 log1p nearbyint nextafter popcount pow
    q_multiply_shift q_multiply_shift_per_axis reinterpret round rsqrt sigmoid sin sinh sqrt tan
    tanh trunc
    """
)
_PRIM_OPS = words("ceil clz if_then_else likely log2")
_RELAX_OPS = words(
    """
    abs acos acosh add arange argmax argmin argsort asin asinh astype atan atan2 atanh
    bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_to bucketize call_tir ceil clip
    collapse_sum_like collapse_sum_to concat cos cosh cumprod cumsum dequantize divide
    dynamic_strided_slice einsum equal erf ewise_fma exp expand_dims eye eye_like flatten flip
    floor floor_divide floor_mod full full_like gather_elements gather_nd greater greater_equal
    hamming_window image.affine_grid image.grid_sample image.resize2d image.resize3d index_put
    index_tensor isfinite isinf isnan layout_transform left_shift less less_equal log
    log_add_exp logical_and logical_not logical_or logical_xor matmul max maximum mean median
    meshgrid min minimum mod multinomial_from_uniform multiply negative nn.adaptive_avg_pool1d
    nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.attention nn.attention_bias
    nn.attention_var_len nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.batch_flatten
    nn.batch_norm nn.conv1d nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d
    nn.conv3d_transpose nn.cross_entropy_with_logits nn.dropout nn.gelu nn.gelu_tanh
    nn.group_norm nn.instance_norm nn.layer_norm nn.leakyrelu nn.log_softmax nn.max_pool1d
    nn.max_pool2d nn.max_pool3d nn.nll_loss nn.pad nn.pixel_shuffle nn.prelu nn.relu nn.rms_norm
    nn.selu nn.silu nn.softmax nn.softplus nonzero not_equal one_hot ones ones_like outer
    permute_dims power prod quantize repeat reshape reverse_sequence right_shift round rsqrt
    scatter_elements scatter_nd shape_of shape_to_tensor sigmoid sign sin sinh size
    slice_scatter sort split sqrt square squeeze stack std strided_slice subtract sum take tan
    tanh tensor_to_shape tile topk tril triu trunc unique variance
    vision.all_class_non_max_suppression vision.get_valid_counts vision.multibox_transform_loc
    vision.non_max_suppression vision.roi_align vision.roi_pool where zeros zeros_like
    """
)
OPS = frozenset(
    (
        *(f"tirx.{name}" for name in _KERNEL_OPS),
        *(f"prim.{name}" for name in _PRIM_OPS),
        *(f"relax.{name}" for name in _RELAX_OPS),
    )
)

FUNCTION_ATTRIBUTES = words(
    """
    Primitive global_symbol num_input op_pattern relax.force_pure s_tir tirx.is_scheduled
    tirx.noalias
    """
)
# AttrStmt keys, loop annotations and block annotations: those that LegalizeOps and schedules leave.
ANNOTATIONS = words(
    "axis pragma_auto_unroll_max_step pragma_scope pragma_unroll_explicit schedule_rule"
)
SCOPES = ("global", "local", "")
SCHEDULE_RULE = re.compile(r"None|meta_schedule\.\w+")
DTYPE = re.compile(r"(|bool|void|u?int\d{1,2}|float\d{1,2}|bfloat16|float[468]_\w+)(x\d+)?")
NAME = re.compile(r"[A-Za-z_][\w.]{0,199}", re.ASCII)
