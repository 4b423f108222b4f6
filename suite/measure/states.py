"""Shows for a case that its cache state is what it is called, at the cost of two short measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gemmgate.suite.measure import proof
from gemmgate.suite.measure.proof import Proof
from gemmgate.suite.measure.refusal import Refused, status_of
from gemmgate.suite.measure.rotation import CACHE_MULTIPLE
from gemmgate.suite.measure.sampler import Clock, ImpossibleTime, Launch
from gemmgate.suite.measure.timed import GRAPH_S, Timed, make_timed
from gemmgate.suite.measure.work import Work


def show(
    work: Work,
    cache: str,
    timed: Mapping[str, Timed],
    medians_s: Mapping[str, float],
    clocks: dict[str, Clock],
    at: Callable[[str, str], None],
    out_of_time: Callable[[], bool],
) -> dict[str, Proof]:
    """A proof for each name in `medians_s`.

    The yardstick and the fastest are measured; what they show of the ring holds for the others, which
    read at least the same slots in the same order. Sizes decide without a measurement where they can.
    """
    input_bytes, cache_bytes = work.ring.input_bytes, work.cache_bytes
    sized = proof.by_size(cache, input_bytes, cache_bytes, CACHE_MULTIPLE)
    if sized is not None:
        return dict.fromkeys(medians_s, sized)
    if cache == "hot":
        return dict.fromkeys(medians_s, proof.of_hot(work.shown.get("cold"), input_bytes, cache_bytes))
    yardsticks = [name for name in work.family.yardsticks if name in medians_s][:1]
    fastest = sorted(medians_s, key=lambda name: medians_s[name])[:1]
    measured = {}
    for name in dict.fromkeys((*yardsticks, *fastest)):
        if out_of_time():
            break
        at(name, "prove the cache state")
        measured[name] = _measure(work, cache, timed[name], clocks, out_of_time)
    ring = proof.of_ring(measured.values())
    work.shown[cache] = ring
    found = {
        name: ring if ring.verdict == "proven" and one.verdict == "unknown" else one for name, one in measured.items()
    }
    said = {name: found.get(name, ring) for name in medians_s}
    if cache == "serving":
        return {n: proof.of_serving(p, work.activation_bytes, input_bytes, cache_bytes) for n, p in said.items()}
    return said


def _measure(work: Work, cache: str, timed: Timed, clocks: dict[str, Clock], out_of_time: Callable[[], bool]) -> Proof:
    """Compares the ring with one of twice its size and with one buffer. What goes wrong here costs the proof alone."""
    try:
        doubled = work.doubled_ring(cache)
        if doubled is None:
            return Proof("unknown", "there is no memory for a ring of twice the size")
        prepared = work.ready[timed.name]
        others = (
            make_timed(timed.name, prepared, ring, state, clocks, lambda step: None, passes)
            for ring, state, passes in (
                (doubled, cache, timed.passes_over(len(doubled.slots))),
                (work.ring, "hot", None),
            )
        )
        return proof.prove(clocks[timed.timer], [_sampled(one) for one in (timed, *others)], out_of_time)
    except (Refused, ImpossibleTime) as error:
        return Proof("unknown", f"the proof failed: {error}")
    except Exception as error:
        outcome = status_of(error)
        if outcome["fatal"]:
            raise
        return Proof("unknown", f"the proof failed: {outcome['detail']}")


def _sampled(timed: Timed) -> Launch:
    return timed.repeated(min(max(1, round(GRAPH_S / timed.launch_s)), timed.most_repeats or 10_000))
