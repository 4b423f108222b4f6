"""The ring of fresh inputs."""

import weakref
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="rings hold tensors")

from gemmgate.suite.measure import rotation  # noqa: E402  torch first
from gemmgate.suite.measure.refusal import status_of  # noqa: E402
from gemmgate.suite.measure.work import Work  # noqa: E402

CPU = torch.device("cpu")


def _make(slot):
    return {"a": torch.full((16, 16), float(slot)), "b": torch.full((16, 8), float(slot))}


def test_a_ring_is_three_times_the_cache():
    """60 MB of cache and 4 MB of inputs take 45 slots."""
    assert rotation.slots_needed(4_000_000, 60_000_000) == 45


@pytest.mark.parametrize("input_bytes", [1, 1000, 65536, 10**7, 10**9])
def test_a_ring_is_never_capped_below_coldness(input_bytes):
    """However small or large the inputs, slots times bytes is at least three times the cache."""
    cache = 60 * 2**20
    assert rotation.slots_needed(input_bytes, cache) * input_bytes >= 3 * cache


def test_slots_are_made_in_order_and_are_fresh():
    """Slot i comes from make(i) and shares no memory with another."""
    ring = rotation.build_ring(_make, cache_bytes=4096, device=CPU)
    assert ring.cold
    assert [float(slot["a"][0, 0]) for slot in ring.slots] == list(range(len(ring.slots)))
    pointers = {tensor.data_ptr() for tensor in rotation.tensors_in(ring.slots)}
    assert len(pointers) == 2 * len(ring.slots)


def test_a_ring_that_memory_cannot_hold_is_not_cold_and_says_why():
    """With a cache as large as the memory the ring keeps one slot and the sentence has both sizes."""
    ring = rotation.build_ring(_make, cache_bytes=2**50, device=CPU)
    assert not ring.cold
    assert len(ring.slots) == 1
    assert "MiB" in ring.why


def test_a_serving_ring_holds_its_activations_once(monkeypatch):
    """Ten thousand large activations that one slot's replace are never there together, nor counted as if they were:
    only weights need memory, of a slot each. So it is with the ring of twice its size.
    """
    alive = weakref.WeakSet()
    most = 0

    def make(slot):
        nonlocal most
        made = {"x": torch.full((64, 1024), float(slot)), "w": torch.full((2, 1024), float(slot))}
        alive.add(made["x"])
        most = max(most, len(alive))
        return made

    # 256 KiB of x and 8 KiB of w; 192 KiB of cache: three slots of both, 72 slots of w. A quarter of 8 MiB holds those
    # of w, 576 KiB, and not 72 of both, 18 MiB.
    monkeypatch.setattr(rotation, "_memory_bytes", lambda device: (8 * 2**20, 8 * 2**20))
    family = SimpleNamespace(name="made", activations=("x",))
    ring = rotation.build_ring(make, cache_bytes=192 * 2**10, device=CPU)
    work = Work(None, family, make, None, ring, CPU, 192 * 2**10)  # type: ignore[arg-type]
    serving = work.ring_of("serving")
    assert [float(slot["w"][0, 0]) for slot in serving.slots] == list(range(72))
    assert {slot["x"].data_ptr() for slot in serving.slots} == {ring.slots[0]["x"].data_ptr()}
    doubled = work.doubled_ring("serving")
    assert len(doubled.slots) == 144 and len({slot["w"].data_ptr() for slot in doubled.slots}) == 144
    assert most <= 3 + 2  # those of the cold ring, the one that is made, and the one before it
    monkeypatch.setattr(rotation, "_memory_bytes", lambda device: (2**20, 2**20))
    short = rotation.serving_ring(ring, make, ("x",), 192 * 2**10, CPU)
    assert not short.cold and "MiB" in short.why


def test_tensors_are_found_in_any_nesting():
    """Tensors come out of mappings and sequences in order; other values are passed over."""
    one, two = torch.zeros(2), torch.zeros(3)
    assert [t.numel() for t in rotation.tensors_in({"x": [one, (two, "text", 5)]})] == [2, 3]
    assert rotation.storage_bytes([one, two]) == 20


def test_a_lack_of_room_is_a_sentence():
    """What is larger than the free memory is told in GiB; what fits is nothing to say."""
    said = rotation.no_room(2**60, CPU)
    assert said.startswith("1073741824.0 GiB are needed, and ")
    assert rotation.no_room(4096, CPU) == ""


def test_memory_that_torch_cannot_get_is_no_fault_of_the_code():
    """Torch's plain error for a CPU allocation that fails is read as a lack of memory."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    outcome = status_of(caught.value)
    assert (outcome["status"], outcome["reason"]) == ("out_of_memory", "host_memory")


def test_a_serving_ring_holds_one_slots_activations():
    """Weights differ from slot to slot, also where it has more slots than the cold ring; activations are the first's.

    Those made for further slots are let go one by one: no two are there at once.
    """
    alive, most = set(), 0

    class Activation(torch.Tensor):
        def __del__(self):
            alive.discard(id(self))

    def make(slot):
        nonlocal most
        made = torch.full((64, 16), float(slot)).as_subclass(Activation)
        alive.add(id(made))
        most = max(most, len(alive))
        return {"x": made, "w": torch.full((4, 4), float(slot))}

    ring = rotation.build_ring(make, cache_bytes=4160, device=CPU)
    held = len(alive)
    assert len(ring.slots) == held == 3
    serving = rotation.serving_ring(ring, make, ("x",), cache_bytes=4160, device=CPU)
    assert serving.cold and len(serving.slots) == 195
    assert {slot["x"].data_ptr() for slot in serving.slots} == {ring.slots[0]["x"].data_ptr()}
    assert [float(slot["w"][0, 0]) for slot in serving.slots] == list(range(195))
    assert most <= held + 2
