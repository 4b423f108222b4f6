"""What changed in compiled code is named, and only what slows code fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gemmgate.suite.compare import Verdict
from gemmgate.suite.compiling.judge import judge_static
from gemmgate.suite.errors import UsageError
from gemmgate.suite.gate import judge
from gemmgate.suite.records import Row, Stack, Status

STACK = Stack(triton="3.7.1")
SOUND = Row(
    "static",
    "m64-n64-k4096-bf16",
    "planted/product",
    kind="static",
    target="sm_90",
    phase="_product",
    flags={"tile": "rule"},
    tile={"block_k": 64},
    registers=64,
    spill_bytes=0,
    stack_bytes=0,
    shared_bytes=49152,
    tensor_core="wgmma",
    resident_warps=16,
    resident_limit="shared memory",
    instructions={"all": 400, "wgmma": 8, "load_16_bytes": 16, "load_narrow": 4},
    cubin_sha="a",
)


def changed(**fields: Any) -> Row:
    """The same kernel with other code."""
    return replace(SOUND, cubin_sha="b", **fields)


def counts(**groups: int) -> dict[str, Any]:
    """Other instructions of the same kernel."""
    return {"instructions": {**(SOUND.instructions or {}), **groups}}


@pytest.mark.parametrize(
    ("fields", "verdict", "reason", "said"),
    [
        ({}, Verdict.SAME, "code_changed", "The code changed"),
        ({"spill_bytes": 8}, Verdict.SLOWER, "spills", "Spills 0 -> 8 bytes."),
        ({"stack_bytes": 64}, Verdict.SLOWER, "local_memory", "Local memory 0 -> 64 bytes."),
        ({"tensor_core": "mma"}, Verdict.SLOWER, "tensor_core", "Tensor cores wgmma -> mma."),
        ({"tensor_core": ""}, Verdict.SLOWER, "tensor_core", "Tensor cores wgmma -> none."),
        ({"resident_warps": 12}, Verdict.SLOWER, "occupancy", "Resident warps 16 -> 12"),
        ({"resident_warps": 20}, Verdict.FASTER, "occupancy", "Resident warps 16 -> 20"),
        ({"instructions": {"all": 400}}, Verdict.SLOWER, "loads", "Loads of 16 bytes or by TMA 16 -> 0."),
        ({"instructions": {"all": 400, "tma": 2}}, Verdict.SAME, "code_changed", "The code changed"),
        ({"resident_warps": 20, "spill_bytes": 4}, Verdict.SLOWER, "spills", "Spills 0 -> 4 bytes."),
        (
            {"resident_warps": 12, "tile": {"block_k": 128}},
            Verdict.PICK_CHANGED,
            "occupancy",
            "block_k=64 -> block_k=128",
        ),
        ({"spill_bytes": 8, "tile": {"block_k": 128}}, Verdict.SLOWER, "spills", "The tile changed"),
        (counts(wgmma=2, mma=500), Verdict.SLOWER, "tensor_core", "Tensor cores wgmma 8 -> 2, mma 0 -> 500."),
        (counts(wgmma=2), Verdict.SAME, "code_changed", "The code changed"),
        (counts(wgmma=5, mma=500), Verdict.SAME, "code_changed", "The code changed"),
        (
            counts(load_16_bytes=1, load_narrow=60),
            Verdict.SLOWER,
            "loads",
            "Loads load_16_bytes 16 -> 1, load_narrow 4",
        ),
        (counts(load_16_bytes=8), Verdict.SAME, "code_changed", "The code changed"),
        (counts(load_16_bytes=8, load_narrow=6), Verdict.SAME, "code_changed", "The code changed"),
        (counts(load_16_bytes=9, load_narrow=60), Verdict.SAME, "code_changed", "The code changed"),
        (counts(load_16_bytes=1, load_narrow=60, tma=2), Verdict.SAME, "code_changed", "The code changed"),
        (
            counts(load_16_bytes=1, load_narrow=60, wgmma=2, mma=500) | {"tile": {"block_k": 128}},
            Verdict.PICK_CHANGED,
            "tensor_core",
            "The tile changed",
        ),
    ],
)
def test_changes_are_named(fields: dict[str, Any], verdict: Verdict, reason: str, said: str) -> None:
    """What slows code is SLOWER with its numbers, its loss FASTER, and another tile's lower occupancy a choice."""
    (found,) = judge_static([SOUND], [changed(**fields)], (STACK, STACK))
    assert (found.verdict, found.reason) == (verdict, reason)
    assert said in found.sentence
    assert judge([found]).exit_code == (1 if verdict is Verdict.SLOWER else 0)


def test_the_end_of_a_fallback_is_faster() -> None:
    """What was partly lost and comes back is FASTER; of counts that a stored run lacks nothing is said."""
    partly = changed(**counts(load_16_bytes=1, load_narrow=60, wgmma=2, mma=500))
    (found,) = judge_static([partly], [SOUND], (STACK, STACK))
    assert (found.verdict, found.reason) == (Verdict.FASTER, "tensor_core")
    assert "loads load_16_bytes 1 -> 16, load_narrow 60 -> 4" in found.sentence
    stored = replace(SOUND, instructions={"all": 400, "wgmma": 8, "load_16_bytes": 16})
    (found,) = judge_static([stored], [changed(**counts(load_16_bytes=1, load_narrow=60))], (STACK, STACK))
    assert (found.verdict, found.reason) == (Verdict.SAME, "code_changed")


def test_same_code_is_the_same() -> None:
    """Equal machine code that takes equal shared memory did not change, whatever the tile is called."""
    (found,) = judge_static([SOUND], [replace(SOUND, tile={"block_k": 32})], (STACK, STACK))
    assert (found.verdict, found.reason) == (Verdict.SAME, "same_code")


def failed(status: Status, reason: str) -> Row:
    """The one row of a preparation that came to nothing."""
    place = SOUND.case, SOUND.implementation
    return Row("static", *place, "static", status, reason, "no", target="sm_90", flags=SOUND.flags)


def absent(reason: str, implementation: str = SOUND.implementation) -> Row:
    """The row of a module that cannot be imported."""
    status: Status = "unsupported" if reason == "not_installed" else "error"
    return Row("static", "", implementation, "static", status, reason, "SyntaxError: here")


@pytest.mark.parametrize(("status", "reason"), [("unsupported", "compiler"), ("error", "KeyError")])
def test_a_preparation_that_fails_is_missing(status: Status, reason: str) -> None:
    """Where two kernels compiled and now the preparation fails, the one row that says why fails the gate."""
    found = judge_static([SOUND, replace(SOUND, phase="_add")], [failed(status, reason)], (STACK, STACK))
    assert [(c.verdict, c.reason) for c in found] == [(Verdict.INCOMPARABLE, "missing")]
    assert judge(found).exit_code == 1


@pytest.mark.parametrize(
    ("status", "reason"), [("timeout", "deadline"), ("error", "compiler_died"), ("error", "OSError")]
)
def test_what_something_else_ended_cannot_be_judged(status: Status, reason: str) -> None:
    """A compilation that was killed or took too long, on either side, is no verdict unless the baseline was refused."""
    ended, refused = failed(status, reason), failed("unsupported", "compiler")
    for old, new in ((SOUND, ended), (ended, SOUND), (ended, ended), (ended, refused)):
        (found,) = judge_static([old], [new], (STACK, STACK))
        assert (found.verdict, found.reason) == (Verdict.INCOMPARABLE, "failed")
        assert judge([found]).exit_code == 3
    (found,) = judge_static([refused], [ended], (STACK, STACK))
    assert found.reason == "not_measured"


def test_a_module_that_cannot_be_imported_stands_for_its_kernels() -> None:
    """Each case of it that compiled is missing, by its own name; what neither side compiled fails only where it is new
    and ours.
    """
    other = replace(SOUND, case="m32")
    for reason in ("not_imported", "not_installed"):
        found = judge_static([SOUND, other], [absent(reason)], (STACK, STACK))
        assert [(c.reason, c.row.case, c.row.target) for c in found] == [
            ("missing", SOUND.case, "sm_90"),
            ("missing", "m32", "sm_90"),
        ]
        assert "SyntaxError: here" in found[0].sentence and judge(found).exit_code == 1
        assert [c.reason for c in judge_static([absent(reason)], [SOUND, other], (STACK, STACK))] == ["new", "new"]
    peer = absent("not_installed", "planted/peer")
    assert [c.reason for c in judge_static([SOUND], [SOUND, peer], (STACK, STACK))] == ["same_code"]
    assert [c.reason for c in judge_static([peer], [peer], (STACK, STACK))] == ["not_measured"]
    broken = judge_static([SOUND], [SOUND, absent("not_imported", "planted/mine")], (STACK, STACK))
    assert [c.reason for c in broken] == ["same_code", "failed"] and judge(broken).exit_code == 3


def test_a_tile_that_no_longer_fits_is_missing() -> None:
    """A kernel whose block now takes more shared memory than there is fails the gate with the sentence that says so."""
    (found,) = judge_static(
        [SOUND], [changed(status="unsupported", reason="shared_memory", detail="needs 262144")], (STACK, STACK)
    )
    assert found.reason == "missing" and "needs 262144" in found.sentence
    assert judge([found]).exit_code == 1


def test_what_never_compiled_promises_nothing() -> None:
    """A kernel without a sound baseline is new, one that neither side has no reason to stop."""
    refused = changed(status="unsupported", reason="compiler")
    pairs = [(refused, SOUND, "new"), (refused, refused, "not_measured")]
    for old, new, reason in pairs:
        (found,) = judge_static([old], [new], (STACK, STACK))
        assert found.reason == reason
        assert judge([found]).exit_code == 0


def test_a_kernel_that_is_gone_is_missing_and_a_renamed_one_is_compared() -> None:
    """By position where names differ; one kernel fewer fails."""
    renamed = judge_static([SOUND], [changed(phase="_multiply", spill_bytes=8)], (STACK, STACK))
    assert [c.reason for c in renamed] == ["spills"]
    fewer = judge_static([SOUND, replace(SOUND, phase="_add")], [SOUND], (STACK, STACK))
    assert [c.reason for c in fewer] == ["same_code", "missing"]


def test_another_compiler_is_incomparable_unless_asked_for() -> None:
    """Code of two versions of Triton is compared only on request."""
    stacks = (STACK, Stack(triton="3.8.0"))
    (found,) = judge_static([SOUND], [changed(spill_bytes=8)], stacks)
    assert (found.verdict, found.reason) == (Verdict.INCOMPARABLE, "stack") and "3.7.1 -> 3.8.0" in found.sentence
    assert judge([found]).exit_code == 3
    (found,) = judge_static([SOUND], [changed(spill_bytes=8)], stacks, across_stacks=True)
    assert found.reason == "spills"


def test_nothing_in_common_is_an_error() -> None:
    """Two selections without a common kernel are not judged."""
    with pytest.raises(UsageError, match="no kernel in common"):
        judge_static([SOUND], [replace(SOUND, target="sm_80")], (STACK, STACK))
