"""GPUs that the router's choices are made for without them."""

from __future__ import annotations

from gemmgate.suite.cases import Target

CPU = Target("cpu")
H200 = Target("sm_90", name="NVIDIA H200", sm_count=132, shared_bytes=232448)
