"""What a kernel became, and what is different between two of them: facts, instructions, and the text of each stage."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

STAGES = ("ttgir", "ptx", "sass")
"""What is kept and compared: Triton's last form, NVIDIA's assembly, machine code."""
_MOST_OPCODES = 8
_NO_CODE = re.compile(r"\s*(?:#loc|\.loc\b|\.file\b|//|\$L__tmp|\.b(?:8|32|64)\b|Fatbin|host =|compile_size)")


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel. `facts` are what a launch takes, `instructions` counts opcodes without their modifiers."""

    name: str
    facts: Mapping[str, int]
    instructions: Mapping[str, int]
    texts: Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """One thing about a kernel, or about the whole call where `kernel` is empty, on both sides."""

    kernel: str
    what: str
    before: str
    after: str

    @property
    def is_equal(self) -> bool:
        return self.before == self.after


def differences(before: Sequence[Kernel], after: Sequence[Kernel]) -> tuple[Difference, ...]:
    """What was compared, equal or not: facts, stages and the opcodes whose counts moved most, kernel by kernel."""
    sides = {kernel.name: kernel for kernel in before}, {kernel.name: kernel for kernel in after}
    found = [Difference("", "Triton kernels", *(" ".join(side) or "none" for side in sides))]
    for name, old in sides[0].items():
        if name in sides[1]:
            found += _compared(old, sides[1][name])
    return tuple(found)


def changed_lines(before: str, after: str) -> list[str]:
    """A unified diff of two texts of one stage, without addresses and positions in the source."""
    return list(islice(difflib.unified_diff(_plain(before), _plain(after), lineterm="", n=2), 2, None))


def _compared(old: Kernel, new: Kernel) -> Iterator[Difference]:
    for fact in old.facts:
        yield Difference(old.name, fact, str(old.facts[fact]), str(new.facts[fact]))
    for stage in STAGES:
        if stage in old.texts and stage in new.texts:
            lines = changed_lines(old.texts[stage], new.texts[stage])
            sides = ((old.texts[stage], "-"), (new.texts[stage], "+"))
            yield Difference(old.name, stage, *(_described(text, lines, sign) for text, sign in sides))
    opcodes = {**old.instructions, **new.instructions}
    counts = [(opcode, old.instructions.get(opcode, 0), new.instructions.get(opcode, 0)) for opcode in opcodes]
    moved = sorted((one for one in counts if one[1] != one[2]), key=lambda one: (-abs(one[2] - one[1]), one[0]))
    for opcode, was, now in moved[:_MOST_OPCODES]:
        yield Difference(old.name, opcode, str(was), str(now))


def _described(text: str, changed: Sequence[str], sign: str) -> str:
    """`3f2a91c0: 12 of 240 lines`, the lines being those that the other side does not have."""
    lines = _plain(text)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    return f"{digest}: {sum(line.startswith(sign) for line in changed)} of {len(lines)} lines"


def _plain(text: str) -> list[str]:
    """Lines without what depends on where a source lies and on which line of it: that is no difference in code."""
    without = re.sub(
        r"[ \t]*/\*[ \t]*(?:0x)?[0-9a-f]+[ \t]*\*/[ \t]*", " ", text
    )  # addresses and encodings of machine code
    without = re.sub(r"[ \t]*loc\([^)\n]*\)+", "", without)
    return [line for line in map(str.rstrip, without.splitlines()) if line.strip() and not _NO_CODE.match(line)]
