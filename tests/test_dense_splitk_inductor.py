"""Inductor's ways to compute `dense_splitk`, as far as a CPU shows them, and torch's switches around `torch.mm`."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
import torch

from gemmgate.kernels._inductor import tuning
from gemmgate.kernels._inductor.compiled import compile_once, has_option
from gemmgate.kernels._triton.host import target_of
from gemmgate.kernels.dense_splitk import FAMILY, cublas_flags, custom_op_autotune, inductor
from gemmgate.kernels.dense_splitk.cases import case_of
from gemmgate.kernels.dense_splitk.inputs import make_inputs
from gemmgate.suite.cases import Case, Target
from gemmgate.suite.catalog import Selection, find

BY_NAME = {case.name: case for case in FAMILY.cases}
CPU = Target("cpu")
H200 = Target("sm_90", sm_count=132, shared_bytes=232448)
SMALL = case_of(16, 16, 512, "fp32", "ieee")


@pytest.fixture(scope="module")
def tuned() -> Iterator[tuple[Any, tuning.Tuning]]:
    """The operator with its decompositions, compiled and autotuned for 16 x 512 x 16, and what the tuner saw."""
    inputs = make_inputs(SMALL, 0, "cpu")
    with tuning.recorded() as seen:
        compiled = compile_once(custom_op_autotune._operator(), (inputs["a"], inputs["b"]), {})
    yield compiled, seen
    torch._dynamo.reset()


def exact(inputs: Any) -> torch.Tensor:
    """The product in float64, as fp32."""
    return (inputs["a"].double() @ inputs["b"].double()).float()


# the autotuner, seen through its hooks


def test_options_hold_while_it_compiles() -> None:
    """While choices are made there is one compiling thread and no cache of graphs or readings; afterwards as before."""
    config, seen = torch._inductor.config, []

    def look(name: str) -> bool:
        seen.append((config.compile_threads, config.fx_graph_cache, config.autotune_local_cache))
        return True

    before = (config.compile_threads, config.fx_graph_cache, config.autotune_local_cache)
    inputs = make_inputs(SMALL, 0, "cpu")
    with tuning.recorded(look):
        compile_once(inductor.mm, (inputs["a"], inputs["b"]), {"max_autotune": True})
    assert set(seen) == {(1, False, False)}
    assert (config.compile_threads, config.fx_graph_cache, config.autotune_local_cache) == before


def test_every_choice_is_read(tuned: tuple[Any, tuning.Tuning]) -> None:
    """The tuner reads a positive time for the plain product and for K in 2 and 4 parts, and picks the least."""
    _, seen = tuned
    names = {f"custom_decompose_k_splits_{splits}" for splits in (1, 2, 4)}
    assert names < set(seen.readings_s)
    assert all(0 < seconds < 10 for seconds in seen.readings_s.values())
    assert seen.readings_s[seen.pick] == min(seen.readings_s.values())


def test_compiled_function_is_held_without_dynamo(tuned: tuple[Any, tuning.Tuning]) -> None:
    """After Dynamo was reset, and on other inputs, the compiled product is right and nothing is compiled again."""
    compiled, _ = tuned
    torch._dynamo.reset()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for seed in (1, 2):
        inputs = make_inputs(SMALL, seed, "cpu")
        torch.testing.assert_close(compiled(inputs["a"], inputs["b"]), exact(inputs), rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


def test_no_process_is_left(tuned: tuple[Any, tuning.Tuning]) -> None:
    """Compiling and tuning leave no process behind that could outlive this one."""
    assert psutil.Process().children(recursive=True) == []


def test_each_choice_can_be_called(tuned: tuple[Any, tuning.Tuning]) -> None:
    """Each choice that the tuner timed gives the product of inputs that it was not timed on."""
    _, seen = tuned
    inputs = make_inputs(SMALL, 3, "cpu")
    for choice in seen.choices.values():
        out = tuning.call_of(choice, (inputs["a"], inputs["b"]))()
        torch.testing.assert_close(out, exact(inputs), rtol=1e-4, atol=1e-5)


def test_a_template_is_launched_where_the_call_is_made() -> None:
    """A template's launch is made anew by each call, on an output of the choice's own layout."""
    launched: list[torch.Tensor] = []

    def make_run_fn(*tensors: torch.Tensor, out: torch.Tensor) -> Any:
        launched.append(out)
        return lambda: torch.mm(*tensors, out=out)

    layout = SimpleNamespace(size=[16, 24], stride=[24, 1], dtype=torch.float32)
    choice = SimpleNamespace(layout=layout, bmreq=SimpleNamespace(make_run_fn=make_run_fn))
    inputs = make_inputs(case_of(16, 24, 512, "fp32", "ieee"), 0, "cpu")
    call = tuning.call_of(choice, (inputs["a"], inputs["b"]))
    assert launched == []
    torch.testing.assert_close(call(), exact(inputs), rtol=1e-4, atol=1e-5)
    assert call() is launched[0] is launched[1]


def test_choices_can_be_left_out(tuned: tuple[Any, tuning.Tuning]) -> None:
    """Left with one choice, the tuner takes it without timing, and the hooks are gone afterwards."""
    inputs = make_inputs(SMALL, 0, "cpu")
    with tuning.recorded(lambda name: name.endswith("_splits_4")) as seen:
        compiled = compile_once(custom_op_autotune._operator(), (inputs["a"], inputs["b"]), {})
    assert (seen.pick, seen.readings_s) == ("custom_decompose_k_splits_4", {})
    torch.testing.assert_close(compiled(inputs["a"], inputs["b"]), exact(inputs), rtol=1e-4, atol=1e-5)
    cache = tuning.select_algorithm.get_algorithm_selector_cache()
    assert cache.feedback_saver_fns == []
    assert all(function.__module__ == "torch._inductor.select_algorithm" for function in cache.preprocessing_fns)


@pytest.mark.parametrize(
    ("name", "description", "said"),
    [
        ("decompose_k_mm_32_split_7", "", "decompose_k_mm_32_split"),
        ("custom_decompose_k_splits__16_3", "CustomOp decompose_k", "custom_decompose_k_splits_16"),
        (
            "triton_mm_17",
            "ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=128, BLOCK_M=64, BLOCK_N=32, num_stages=3, num_warps=4",
            "triton_mm BLOCK_K=128 BLOCK_M=64 BLOCK_N=32 num_stages=3 num_warps=4",
        ),
    ],
)
def test_labels(name: str, description: str, said: str) -> None:
    """A choice is called by what it is, without the number that the process gave it."""
    assert tuning.label(SimpleNamespace(name=name, description=description)) == said


def test_a_choice_that_failed_has_no_reading() -> None:
    """What the tuner could not time is a choice without a reading, and is not picked."""
    good, bad = (Mock(description="") for _ in range(2))
    good.name, bad.name = "mm_good_0", "mm_bad_0"
    with tuning.recorded() as seen:
        cache = tuning.select_algorithm.get_algorithm_selector_cache()
        for function in cache.preprocessing_fns[-1:]:
            assert function([good, bad]) == [good, bad]
        for function in cache.feedback_saver_fns:
            function({good: 0.25, bad: float("inf")}, "mm", [], [good, bad], None, {})
    assert set(seen.choices) == {"mm_good", "mm_bad"}
    assert seen.readings_s == {"mm_good": 0.25e-3}
    assert seen.pick == "mm_good"


# the implementations


def test_default_leaves_the_product_to_the_library() -> None:
    """Without tuning, a product on a CPU stays the library's, and its result is the library's to the bit."""
    case = case_of(24, 40, 1000, "fp32", "ieee")
    inputs = make_inputs(case, 1, "cpu")
    prepared = inductor.prepare("inductor_default", case, make_inputs(case, 0, "cpu"), CPU)
    assert prepared.readings_s is None
    assert torch.equal(prepared.bind(inputs)(), torch.mm(inputs["a"], inputs["b"]))


def test_search_uses_the_tuning_of_the_same_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search over choices compiles once a case, and its tile is one of what it lists."""
    compiled = []
    compile_once_here = inductor.compile_once

    def counted(*arguments: Any) -> Any:
        compiled.append(arguments)
        return compile_once_here(*arguments)

    monkeypatch.setattr(inductor, "compile_once", counted)
    inputs = make_inputs(SMALL, 1, "cpu")
    (tile,) = inductor.choices(SMALL, CPU)
    prepared = inductor.prepare_choice(SMALL, inputs, CPU, tile)
    assert prepared.tile == {"choice": prepared.algorithm} == tile
    torch.testing.assert_close(prepared.bind(inputs)(), exact(inputs), rtol=1e-4, atol=1e-5)
    assert len(compiled) == 1
    with pytest.raises(ValueError, match="Inductor has no choice 'unheard_of'"):
        inductor.prepare_choice(SMALL, inputs, CPU, {"choice": "unheard_of"})


@pytest.mark.parametrize("name", sorted(inductor.IMPLEMENTATIONS))
def test_no_tile_of_ones_own(name: str) -> None:
    """A tile that Inductor does not choose from is refused, by name."""
    implementation = inductor.IMPLEMENTATIONS[name]
    with pytest.raises(ValueError, match=r"takes no tile|no choice"):
        implementation.prepare(SMALL, make_inputs(SMALL, 0, "cpu"), CPU, {"choice": "splits"})


@pytest.mark.parametrize("name", [*inductor.IMPLEMENTATIONS, "custom_op_autotune"])
def test_refusals(name: str) -> None:
    """On a CPU only the default is taken; a GPU is refused nothing but an empty product and K that has no split."""
    here = {**inductor.IMPLEMENTATIONS, "custom_op_autotune": custom_op_autotune.IMPLEMENTATION}[name]
    long, prime = BY_NAME["m32-n32-k32768-bf16"], BY_NAME["m32-n32-k65537-bf16"]
    empty = case_of(0, 16, 0, "bf16", "acc32")
    said = here.supports(long, CPU)
    assert said is None if name == "inductor_default" else said is not None and said[0] == "gpu_only"
    assert here.supports(long, H200) is None
    codes = [refusal[0] if (refusal := here.supports(case, H200)) else "" for case in (prime, empty)]
    said_of = {
        "inductor_decompose_k": ["no_split_offered", "empty"],
        "custom_op_autotune": ["no_legal_split", "no_legal_split"],
    }
    assert codes == said_of.get(name, ["", "empty"])


def test_options_exist_here() -> None:
    """This torch has the options that decide over decompose-K, and an unknown one is refused by name."""
    assert has_option("triton.num_decompose_k_splits") and has_option("triton.decompose_k_threshold")
    with pytest.raises(ValueError, match=r"has no option triton\.no_such_thing"):
        compile_once(inductor.mm, (torch.ones(2, 2), torch.ones(2, 2)), {"triton.no_such_thing": 1})


def test_gates_are_forgotten() -> None:
    """What Inductor remembers of a size is forgotten with each preparation, whose options may decide otherwise."""
    inductor.inductor_splits(SMALL)
    assert inductor.utils.get_k_splits.cache_info().currsize > 0
    inductor.prepare("inductor_default", SMALL, make_inputs(SMALL, 0, "cpu"), CPU)
    assert inductor.utils.get_k_splits.cache_info().currsize == 0


@pytest.mark.parametrize(
    ("m", "k", "splits"),
    [
        (48, 24576, (1, 2, 4, 8, 16, 32, 64, 128, 192)),  # seven powers of two, and the largest of 3, 6, ... 192
        (64, 177147, (1, 3, 9, 27, 81, 243)),
        (32, 65537, (1,)),
        (32, 131074, (1, 2)),
    ],
)
def test_splits_to_try(m: int, k: int, splits: tuple[int, ...]) -> None:
    """No split, and the legal ones nearest to powers of two: worked out by hand from the divisors."""
    assert custom_op_autotune.splits_to_try(case_of(m, m, k, "bf16", "acc32")) == splits


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", ["m32-n32-k32768-bf16", "m64-n64-k2048-bf16"])
def test_ways_on_a_gpu(name: str) -> None:
    """Each way gives the product, decompose-K is what was forced, and is absent where it was switched off."""
    case, device = BY_NAME[name], torch.device("cuda", 0)
    inputs, target = make_inputs(case, 0, device), target_of(device)
    exactly = inputs["a"].double() @ inputs["b"].double()
    algorithms = {}
    for way in inductor.WAYS:
        prepared = inductor.prepare(way, case, inputs, target)
        algorithms[way] = prepared.algorithm
        assert (prepared.bind(inputs)().double() - exactly).norm() / exactly.norm() < 5e-3
    assert algorithms["inductor_default"] == "mm"
    assert algorithms["inductor_decompose_k"].startswith("decompose_k")
    assert not algorithms["inductor_no_decompose_k"].startswith("decompose_k")
    inductor.prepare("inductor_max_autotune", case, inputs, target)
    tiles = inductor.choices(case, target)
    assert len(tiles) > 3
    for tile in tiles:
        out = inductor.prepare_choice(case, inputs, target, tile).bind(inputs)()
        assert (out.double() - exactly).norm() / exactly.norm() < 5e-3, tile


# cuBLAS with torch's switch


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize(("name", "held"), [("cublas_full_reduction", False), ("cublas_reduced_reduction", True)])
def test_switch_is_held_for_a_call(name: str, held: bool, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch of that dtype is as the name says while torch multiplies, and as it was before and afterwards."""
    matmul, flag = torch.backends.cuda.matmul, cublas_flags.FLAGS[dtype]
    multiply, seen = torch.mm, []

    def watched(*arguments: Any, **options: Any) -> torch.Tensor:
        seen.append(getattr(matmul, flag))
        return multiply(*arguments, **options)

    monkeypatch.setattr(torch, "mm", watched)
    case = case_of(4, 4, 64, dtype, "acc32")
    inputs = make_inputs(case, 0, "cpu")
    found = getattr(matmul, flag)
    for before in (True, False, found):
        setattr(matmul, flag, before)
        prepared = cublas_flags.IMPLEMENTATIONS[name].prepare(case, inputs, H200, None)
        prepared.bind(inputs)()
        assert getattr(matmul, flag) == before
    assert seen == [held, held, held]
    assert prepared.algorithm == f"torch.mm {flag}={held}"


def test_switch_is_put_back_after_an_error() -> None:
    """A product that fails leaves the switch as it was."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_bf16_reduced_precision_reduction
    case = case_of(4, 4, 64, "bf16", "acc32")
    inputs = {"a": torch.ones(4, 64, dtype=torch.bfloat16), "b": torch.ones(63, 4, dtype=torch.bfloat16)}
    call = cublas_flags.IMPLEMENTATIONS["cublas_full_reduction"].prepare(case, inputs, H200, None).bind(inputs)
    with pytest.raises(RuntimeError):
        call()
    assert matmul.allow_bf16_reduced_precision_reduction == before


# the catalog


def test_audit_set() -> None:
    """The cases for a compiler's audit are forty, with the 28 published shapes in bf16 and every format among them."""
    tagged = {case.name for case in FAMILY.cases if "audit" in case.tags}
    published = {f"m{s}-n{s}-k{k}-bf16" for s in (16, 32, 48, 64) for k in range(8192, 32769, 4096)}
    assert len(published) == 28
    assert published < tagged
    assert len(tagged) == 40
    assert {name.rsplit("-", 1)[1] for name in tagged} == {"bf16", "fp16", "fp32", "tf32"}


def test_compilers_are_asked_for() -> None:
    """A run that names no implementation compiles nothing through Inductor."""
    catalog = find()
    chosen = {name for choice in catalog.select(Selection(tags=("quick",))) for name in choice.implementations}
    assert not [name for name in chosen if name.startswith("inductor") or name == "custom_op_autotune"]
    asked = catalog.select(Selection(implementations=("inductor_*",), tags=("audit",)))
    assert {name for choice in asked for name in choice.implementations} == {"cublas", *inductor.IMPLEMENTATIONS}


def test_switches_are_for_16_bits() -> None:
    """The implementations that hold a switch are offered for the formats that have one."""
    entry = next(entry for entry in FAMILY.implementations if entry.name == "cublas_full_reduction")
    applies: dict[str, bool] = {}
    for case in FAMILY.cases:
        applies[case.name.rsplit("-", 1)[1]] = entry.applies(case)
    assert applies == {"bf16": True, "fp16": True, "fp32": False, "tf32": False}


def _kind(case: Case, name: str) -> str:
    kind: str = find().implementation(case.family, name).kind
    return kind


def test_kinds() -> None:
    """What a compiler chose is not our own kernel, nor is what a library chose."""
    case = BY_NAME["m32-n32-k32768-bf16"]
    assert _kind(case, "inductor_max_autotune") == _kind(case, "custom_op_autotune") == "compiler"
    assert _kind(case, "cublaslt_best") == _kind(case, "cublas_full_reduction") == "peer"
