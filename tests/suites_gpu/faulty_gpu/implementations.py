"""Twice a vector: once right, and with the faults that take a CUDA context down or cannot be captured."""

import torch
import triton
import triton.language as tl

from gemmgate.suite.cases import Implementation, Prepared


def make_inputs(case, seed, device, data):
    generator = torch.Generator(device).manual_seed(seed)
    return {"x": torch.randn(case.dims["n"], generator=generator, device=device)}


def reference(case, inputs):
    return 2 * inputs["x"].double()


@triton.jit
def _write(out, offset):
    tl.store(out + offset, 1.0)


@triton.jit
def _spin(flag):
    value = tl.load(flag, volatile=True)
    while value == 0:
        value = tl.load(flag, volatile=True)
    tl.store(flag, value)


def _plain(inputs):
    return lambda: inputs["x"] * 2


def _late(inputs):
    """Right, but some 300 us later than the others."""

    def call():
        torch.cuda._sleep(500_000)
        return inputs["x"] * 2

    return call


def _writes_far_away(inputs):
    def call():
        out = inputs["x"] * 2
        _write[(1,)](out, 2**40)
        return out

    return call


def _never_ends(inputs):
    flag = torch.zeros(1, dtype=torch.int32, device=inputs["x"].device)

    def call():
        _spin[(1,)](flag)
        return inputs["x"] * 2

    return call


def _waits_for_the_host(inputs):
    def call():
        inputs["x"][0].item()
        return inputs["x"] * 2

    return call


def _copies(inputs):
    """Reads a result that was computed when it was bound: a graph of one memcpy node, and no kernel."""
    doubled = inputs["x"] * 2

    def call():
        out = torch.empty_like(doubled)
        out.copy_(doubled)
        return out

    return call


def _allocates_all(inputs):
    return lambda: torch.empty(2**50, device=inputs["x"].device)


def _make(name, bind, *, capturable=True):
    return Implementation(
        name=name,
        kind="yardstick" if name == "plain" else "own",
        deterministic=True,
        supports=lambda case, target: None if target.is_gpu else ("no_gpu", "these faults need a GPU"),
        prepare=lambda case, example, target, tile: Prepared(bind=bind, capturable=capturable),
    )


IMPLEMENTATIONS = {
    "plain": _make("plain", _plain),
    "late": _make("late", _late),
    "writes_far_away": _make("writes_far_away", _writes_far_away),
    "never_ends": _make("never_ends", _never_ends),
    "waits_for_the_host": _make("waits_for_the_host", _waits_for_the_host),
    "not_capturable": _make("not_capturable", _waits_for_the_host, capturable=False),
    "copies": _make("copies", _copies),
    "allocates_all": _make("allocates_all", _allocates_all),
}
