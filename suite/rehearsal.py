"""What the gate would do, played on drawn blocks: how often it rings in vain, what it finds, how many blocks it takes.

Pure. Screen, looks and corrections are those of `looks`; only where blocks come from is another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gemmgate.suite.block_rule import GATED_BLOCKS
from gemmgate.suite.looks import (
    CLEAR,
    LOOKS,
    OWN,
    OWN_COUNTS,
    SCREEN_STEPS,
    Decision,
    Noise,
    decide,
    looks_at,
    robust_sd,
    screen_steps,
)
from gemmgate.suite.resampling import draw
from gemmgate.suite.statistics import Floats, Interval, share_interval

Draw = Callable[[int, int], Floats]
"""Log-ratios of so many blocks of the case of that number, as it is unchanged."""


@dataclass(frozen=True)
class Rehearsed:
    """Counts over `gates`. `found` are decisions on cases that were changed, `blocks` are those of all cases."""

    gates: int
    alarms: int
    unjudged: int
    changed: int
    found: int
    screen_blocks: int
    confirm_blocks: int

    @property
    def false_alarms(self) -> Interval:
        return share_interval(self.alarms, self.gates)

    @property
    def power(self) -> float:
        return self.found / self.changed if self.changed else math.nan


def rehearse(
    take: Draw,
    noise: Sequence[Noise | None],
    changes: Sequence[float],
    gates: int,
    *,
    standing: bool = True,
    ends: Callable[[], int] = lambda: LOOKS[-1],
) -> Rehearsed:
    """Plays `gates` over the cases of which `noise` is known (None: learnt in the gate) and which take so much longer.

    With `standing`, only what is gated or extended counts, as in a real gate. `ends` says for each gate for how many
    fresh blocks there is time.
    """
    alarms = unjudged = found = screening = confirming = 0
    shifts = np.log1p(np.asarray(changes))
    is_due = {step[0]: np.array([step in screen_steps(one) for one in noise]) for step in SCREEN_STEPS}
    for _ in range(gates):
        screen = np.stack([take(case, GATED_BLOCKS[0]) for case in range(len(noise))]) + shifts[:, None]
        learnt = _learnt(noise, screen)
        goes_on, taken = np.ones(len(noise), dtype=bool), np.zeros(len(noise), dtype=int)
        flagged = np.zeros(len(noise), dtype=bool)
        for blocks, share in SCREEN_STEPS:
            looks_now = goes_on & is_due[blocks]
            taken[looks_now] = blocks
            medians = np.median(screen[:, :blocks], axis=-1)
            so_far = _learnt(noise, screen[:, :blocks])
            at = np.array([one.rule.screen_at for one in so_far])
            clear = looks_now & (np.abs(medians) > CLEAR * at)
            flagged |= clear & (medians > 0)
            for case in np.flatnonzero(clear).tolist():
                learnt[case] = so_far[case]
            goes_on &= ~clear & (~looks_now | (medians <= -at) | (medians >= share * at))
        taken[goes_on] = GATED_BLOCKS[0]
        flagged |= goes_on & (np.median(screen, axis=-1) > np.array([one.rule.screen_at for one in learnt]))
        screening += int(taken.sum())
        cases = {str(case): case for case in np.flatnonzero(flagged).tolist()}
        fresh = {
            name: {i: (float(x), None) for i, x in enumerate(take(case, LOOKS[-1]) + shifts[case])}
            for name, case in cases.items()
        }
        decided: dict[str, Decision] = dict.fromkeys(cases, "open")
        before, end = 0, ends()
        for look in looks_at(end, ended=True):
            confirming += (look - before) * sum(one == "open" for one in decided.values())
            decided = decide(fresh, {name: learnt[case] for name, case in cases.items()}, look, ended=look == end)
            before = look
            if "open" not in decided.values():
                break
        due = {name for name, case in cases.items() if not standing or learnt[case].rule.standing != "reported"}
        alarms += any(decided[name] == "slower" and not changes[cases[name]] for name in due)
        unjudged += any(decided[name] in ("open", "unclear", "clock") for name in due)
        found += sum(decided[name] == "slower" and bool(changes[cases[name]]) for name in due)
    changed = gates * sum(map(bool, changes))
    return Rehearsed(gates, alarms, unjudged, changed, found, screening, confirming)


def from_recorded(series: Sequence[Floats], gates: int, cases: int, source: np.random.Generator) -> Rehearsed | None:
    """Gates over cases drawn from recorded ones with unchanged code; None without any."""
    if not series:
        return None
    which = source.integers(len(series), size=cases)
    noise = [Noise(float(robust_sd(x)), source="recorded") for x in series]
    return rehearse(
        lambda case, blocks: draw(series[which[case]], (1, blocks), 0.0, source)[0, :, 0],
        [noise[index] for index in which],
        [0.0] * cases,
        gates,
    )


def _learnt(noise: Sequence[Noise | None], blocks: Floats) -> list[Noise]:
    """As `with_own` for all cases at once, but for two modes."""
    own = robust_sd(blocks)
    return [
        Noise(sd, source=OWN) if known is None else known if sd * OWN_COUNTS <= known.sd else Noise(sd * OWN_COUNTS)
        for known, sd in zip(noise, own.tolist(), strict=True)
    ]
