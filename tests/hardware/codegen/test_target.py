"""What a target asks of the processors that run the exports of a model."""

from __future__ import annotations

import json

import pytest

from autosplit.hardware.codegen.target import spelled, target_of, without_bytes

VNNI, AMX = "+avx512vnni", "+amx-int8"


@pytest.mark.parametrize(
    ("features", "dtypes", "expected"),
    [
        ([VNNI], {"float32"}, None),
        ([VNNI], {"float32", "int8"}, [VNNI]),
        ([VNNI], {"uint8"}, [VNNI]),
        ([AMX, VNNI], {"float32"}, [AMX]),
        ([], {"float32"}, None),
    ],
)
def test_products_of_bytes_are_asked_for_where_a_model_has_bytes(
    features: list[str], dtypes: set[str], expected: list[str] | None
) -> None:
    options = {"kind": "llvm", "mcpu": "x86-64-v4"} | ({"mattr": features} if features else {})
    target = without_bytes(target_of(json.dumps(options)), dtypes)
    assert json.loads(spelled(target)).get("mattr") == expected
