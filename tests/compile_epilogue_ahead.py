"""Compiles a product with ReLU for an H200 that need not be here, as Triton before 3.7 tells its hooks of a kernel.

There constants are spelled as JSON, which has no functions. Prints the answer.
"""

from __future__ import annotations

import json
from typing import Any

from triton.runtime import jit

from gemmgate.kernels.dense_splitk_epilogue.cases import CASES
from gemmgate.kernels.dense_splitk_epilogue.inputs import make_inputs
from gemmgate.kernels.dense_splitk_epilogue.own import IMPLEMENTATIONS
from gemmgate.suite.cases import Target
from gemmgate.suite.measure.compile_only import compile_ahead, meta_inputs

CASE = next(case for case in CASES if case.name == "m16-n16-k16384-bf16-relu")


def spelled(name: str, signature: Any, constants: dict[Any, Any], *rest: Any) -> str:
    return json.dumps([str(value) if value.__class__.__name__ == "dtype" else value for value in constants.values()])


if __name__ == "__main__":
    jit.serialize_specialization_data = spelled
    example = meta_inputs(lambda: make_inputs(CASE, 0, "cpu"))
    target = Target("sm_90", "NVIDIA H200", sm_count=132, shared_bytes=232448)
    answer = compile_ahead(IMPLEMENTATIONS["two_launches"], CASE, example, target, None, None, lambda step: None)
    assert jit.serialize_specialization_data is spelled
    print(json.dumps(answer))
