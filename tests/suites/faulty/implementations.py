"""Square products in float32: one right, the others each with a fault of their own."""

import ctypes
import os
import subprocess
import sys
import time

import torch

from gemmgate.suite.cases import Implementation, Prepared


def make_inputs(case, seed, device, data):
    generator = torch.Generator(device).manual_seed(seed)
    n = case.dims["n"]
    return {name: torch.randn(n, n, generator=generator, device=device) for name in ("a", "b")}


def reference(case, inputs):
    return inputs["a"].double() @ inputs["b"].double()


def _product(inputs):
    return lambda: inputs["a"] @ inputs["b"]


def _wrong(inputs):
    return lambda: inputs["a"] @ inputs["b"] * 1.001


def _crashes(inputs):
    return lambda: ctypes.string_at(0)


def _hangs(inputs):
    def call():
        while True:
            time.sleep(60)

    return call


def _hangs_when_timed(inputs):
    """Behaves for the first calls, as a checker would see, then never returns."""
    count = 0

    def call():
        nonlocal count
        count += 1
        if count > 200:
            time.sleep(3600)
        return inputs["a"] @ inputs["b"]

    return call


def _exits(inputs):
    return lambda: os._exit(3)


def _leaves_children(inputs):
    """Starts a program and a copy of itself in the first call, then fails: neither may be waited for, or stay."""

    def call():
        program = subprocess.Popen(["sleep", "3600"])
        copy = os.fork()
        if copy == 0:
            time.sleep(3600)
        print(f"children: {program.pid} {copy}", file=sys.stderr, flush=True)
        os._exit(3)

    return call


def _runs_out_of_memory(inputs):
    def call():
        raise MemoryError("no room for the workspace")

    return call


def _raises(inputs):
    def call():
        raise RuntimeError("the kernel does not like this shape")

    return call


def _writes_inputs(inputs):
    def call():
        out = inputs["a"] @ inputs["b"]
        inputs["a"][0, 0] += 1
        return out

    return call


def _writes_nothing(inputs):
    """Computes once, then relies on what stands in its buffers."""
    out = torch.empty_like(inputs["a"])
    done = False

    def call():
        nonlocal done
        if not done:
            torch.mm(inputs["a"], inputs["b"], out=out)
            done = True
        return out

    return call


def _prints(inputs):
    def call():
        print("noise on standard output")
        os.write(1, b"more noise\n")
        return inputs["a"] @ inputs["b"]

    return call


def _slow(inputs):
    def call():
        time.sleep(0.05)
        return inputs["a"] @ inputs["b"]

    return call


def _make(name, bind, supports=lambda case, target: None):
    return Implementation(
        name=name,
        kind="yardstick" if name == "plain" else "own",
        deterministic=name != "plain",
        supports=supports,
        prepare=lambda case, example, target, tile: Prepared(bind=bind, algorithm=name),
    )


def _cannot_say(case, target):
    raise LookupError(f"no table for {case.name}")


def _forgets():
    """Remembers the first inputs it was bound to and answers for those ever after."""
    kept = []

    def bind(inputs):
        kept.append(inputs)
        return lambda: kept[0]["a"] @ kept[0]["b"]

    return bind


IMPLEMENTATIONS = {
    "plain": _make("plain", _product),
    "twin": _make("twin", _product),
    "wrong": _make("wrong", _wrong),
    "crashes": _make("crashes", _crashes),
    "hangs": _make("hangs", _hangs),
    "hangs_when_timed": _make("hangs_when_timed", _hangs_when_timed),
    "exits": _make("exits", _exits),
    "leaves_children": _make("leaves_children", _leaves_children),
    "runs_out_of_memory": _make("runs_out_of_memory", _runs_out_of_memory),
    "raises": _make("raises", _raises),
    "refuses": _make(
        "refuses", _product, lambda case, target: ("too_square", f"n = {case.dims['n']} is as many rows as columns")
    ),
    "cannot_say": _make("cannot_say", _product, _cannot_say),
    "writes_inputs": _make("writes_inputs", _writes_inputs),
    "writes_nothing": _make("writes_nothing", _writes_nothing),
    "forgets": _make("forgets", _forgets()),
    "prints": _make("prints", _prints),
    "slow": _make("slow", _slow),
}
