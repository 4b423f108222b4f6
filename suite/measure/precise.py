"""Whether samples say enough: how far every ratio to the yardstick is known."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgate.suite.statistics import half_width, ratio_interval


class Precise:
    """`names` in the order of the samples; the first of `yardsticks` among them counts, else the first name."""

    def __init__(self, names: Sequence[str], yardsticks: Sequence[str], share: float) -> None:
        self._names = list(names)
        self._yardstick = next((name for name in yardsticks if name in self._names), self._names[0])
        self._share = share

    def is_enough(self, samples: Sequence[Sequence[float]]) -> bool:
        """Whether every interval is within the share."""
        return all(self._reach(name, samples) <= self._share for name in self._others())

    def remark(self, name: str, samples: Sequence[Sequence[float]]) -> str:
        """What could not have been seen of one that is not known so well; empty where it is."""
        reach = self._reach(name, samples) if name in self._others() else 0.0
        if reach <= self._share:
            return ""
        return (
            f"after {len(samples[0])} rounds the ratio to {self._yardstick} is known within {100 * reach:.2g} %: "
            "a smaller difference could not have been seen"
        )

    def _others(self) -> list[str]:
        return [name for name in self._names if name != self._yardstick]

    def _reach(self, name: str, samples: Sequence[Sequence[float]]) -> float:
        by_name = dict(zip(self._names, samples, strict=True))
        return half_width(ratio_interval(by_name[self._yardstick], by_name[name], paired=True))
