"""Square products in float32 that wait as long as their tile says. Of the fastest, some are wrong, raise or kill."""

import os
import time

import torch

from gemmgate.kernels import _tuned
from gemmgate.suite.cases import Footprint, Implementation, Prepared

WAITS_S = {"wrong": 1e-4, "kills": 1e-4, "raises": 1e-4, "best": 2e-4, "good": 4e-4, "slow": 8e-4}
DEFAULT = {"kind": "slow", "warps": 2}


def make_inputs(case, seed, device, data):
    generator = torch.Generator(device).manual_seed(seed)
    n = case.dims["n"]
    return {name: torch.randn(n, n, generator=generator, device=device) for name in ("a", "b")}


def reference(case, inputs):
    return inputs["a"].double() @ inputs["b"].double()


def tiles(case, target):
    return [{"kind": kind, "warps": warps} for kind in WAITS_S for warps in (2, 4)]


def footprint(case, target, tile):
    return Footprint(8, tile["warps"], 1024, 1024)


def choose_tile(case, target):
    entry = _tuned.lookup(__package__, f"{case.name}/tiled", target)
    return dict(entry["tile"]) if entry else DEFAULT


def prepare(case, example, target, tile=None):
    chosen = dict(tile or choose_tile(case, target))
    kind = chosen["kind"]
    if kind == "raises":
        raise RuntimeError("this tile does not compile")
    wait_s = WAITS_S[kind] * (1.0 if chosen["warps"] == 2 else 1.5)

    def bind(inputs):
        def call():
            end = time.perf_counter() + wait_s
            while time.perf_counter() < end:
                pass
            if kind == "kills" and case.dims["n"] == 8 and chosen["warps"] == 2:
                os._exit(3)
            return inputs["a"] @ inputs["b"] * (1.001 if kind in ("wrong", "kills") else 1.0)

        return call

    return Prepared(bind, tile=chosen)


def _plain(case, example, target, tile=None):
    return Prepared(lambda inputs: lambda: inputs["a"] @ inputs["b"])


PLAIN = Implementation("plain", "yardstick", True, lambda case, target: None, _plain)
ROUNDED = Implementation("rounded", "yardstick", True, lambda case, target: None, _plain)
"""Means nothing for a case in fp32, of which alone there are."""
FIXED = Implementation("fixed", "own", True, lambda case, target: None, _plain)
TILED = Implementation("tiled", "own", True, lambda case, target: None, prepare, tiles=tiles, footprint=footprint)
