"""How split-K kernels are held: a product to compute, scratch to compute it with, and a way to add the parts.

A discipline is one way in which the programs that share a tile of C bring their sums together. Each is a file
with a kernel and a launch; what they have in common - operands, refusals, binding - is here.
"""

# Triton ships no types:
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmgate.kernels._triton import host
from gemmgate.kernels._triton.epilogue import Epilogue, function_of
from gemmgate.kernels._triton.product import Operands, units_of
from gemmgate.kernels.dense_splitk import tiling
from gemmgate.kernels.dense_splitk.tiling import Tile
from gemmgate.suite.cases import Call, Case, Footprint, Implementation, Inputs, Prepared, Refusal, Target
from gemmgate.suite.cases import Tile as TileData

_DOT_DTYPE = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@dataclass(frozen=True)
class Problem:
    """C = cast(f(alpha * factor * (A @ B) + beta * addend)), into `c` [M, N] of any strides and dtype.

    a [M, K] and b [K, N] of any strides; both are converted to `dtype` (by default a's) before they are
    multiplied, a after it was multiplied by `k_scale` [K]. `factor` and `addend` broadcast to [M, N]; with beta 0 the
    addend is not read and may hold NaN, as with `torch.addmm`. `activation` is a name of `ACTIVATIONS`, or a jit
    function from fp32 to fp32. `output` is what a caller gets where that is not `c` itself but the tensor that `c` is
    a view of.
    """

    a: Tensor
    b: Tensor
    c: Tensor
    precision: str
    activation: Any = None
    factor: Tensor | None = None
    addend: Tensor | None = None
    alpha: float = 1.0
    beta: float = 1.0
    k_scale: Tensor | None = None
    dtype: torch.dtype | None = None
    output: Tensor | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(M, N, K)"""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]

    @property
    def is_linear(self) -> bool:
        """Whether the parts of a sum may be stored one by one: no activation follows them."""
        return self.activation is None

    @property
    def function(self) -> Any:
        """The jit function of the activation, or None."""
        return function_of(self.activation) if isinstance(self.activation, str) else self.activation

    def epilogue(self) -> Epilogue:
        """As kernels take it."""
        factor, stride_fm, stride_fn = self._spread(self.factor)
        addend, stride_dm, stride_dn = self._spread(self.addend if self.beta else None)
        return Epilogue(
            c=self.c,
            stride_cm=self.c.stride(0),
            stride_cn=self.c.stride(1),
            factor=factor,
            stride_fm=stride_fm,
            stride_fn=stride_fn,
            addend=addend,
            stride_dm=stride_dm,
            stride_dn=stride_dn,
            alpha=float(self.alpha),
            beta=float(self.beta),
        )

    def _spread(self, x: Tensor | None) -> tuple[Tensor | None, int, int]:
        """A tensor that broadcasts to C, and its strides there: 0 where it repeats."""
        if x is None:
            return None, 0, 0
        x = x.broadcast_to(self.sizes[:2])
        return x, x.stride(0), x.stride(1)


@dataclass(frozen=True)
class Scratch:
    """What a launch needs beside its outputs: parts, of any content, and counters and sums, zero between launches."""

    partials: Tensor | None
    counters: Tensor | None
    sums: Tensor | None

    @property
    def state(self) -> list[Tensor]:
        """What every launch leaves as it found it."""
        return [x for x in (self.counters, self.sums) if x is not None]


def loads_of(problem: Problem, tile: Tile) -> str:
    """`pointers`, or `tma_` with `n` or `t` for each operand, where descriptors can hold them."""
    if tile.loads == "pointers" or problem.k_scale is not None:
        return "pointers"
    ways = [_way(problem.a), _way(problem.b)]
    return "pointers" if None in ways else f"tma_{ways[0]}{ways[1]}"


def _way(x: Tensor) -> str | None:
    """`n` where rows lie 16-byte aligned and contiguous, `t` where columns do, None where neither."""
    if min(x.shape) == 0 or x.data_ptr() % 16:
        return None
    for way, apart, along in (("n", x.stride(0), x.stride(1)), ("t", x.stride(1), x.stride(0))):
        if along == 1 and apart > 0 and apart * x.element_size() % 16 == 0:
            return way
    return None


def arguments(problem: Problem, tile: Tile, kernel: Any) -> dict[str, Any]:
    """The arguments that all disciplines' kernels share, and the options of the launch."""
    m, n, k = problem.sizes
    a, b = problem.a, problem.b
    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    units = units_of(m, n, k, strides, min(a.element_size(), b.element_size()))
    tiles_m, tiles_n = tiling.ceil_div(m, tile.block_m), tiling.ceil_div(n, tile.block_n)
    loads = loads_of(problem, tile)
    operand_a, operand_b = a, b
    if loads != "pointers":
        operand_a = _descriptor(a, loads[-2], (tile.block_m, tile.block_k))
        operand_b = _descriptor(b, loads[-1], (tile.block_k, tile.block_n))
    return {
        "a": operand_a,
        "b": operand_b,
        "operands": Operands(problem.k_scale, m, n, k, *strides, units, tiles_m, tiles_n),
        "epilogue": problem.epilogue(),
        "BM": tile.block_m,
        "BN": tile.block_n,
        "BK": tile.block_k,
        "SLICES": tile.slices,
        "GROUP": tiling.GROUP,
        "LOADS": loads,
        "WHOLE_K": k > 0 and k % tile.block_k == 0,
        "PRECISION": problem.precision,
        "DTYPE": _DOT_DTYPE[problem.dtype or a.dtype],
        "ACTIVATION": problem.function,
        "INTERPRETED": host.is_interpreted(kernel),
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
    }


def _descriptor(x: Tensor, way: str, block: tuple[int, int]) -> TensorDescriptor:
    if way == "t":
        x, block = x.t(), (block[1], block[0])
    return TensorDescriptor(x, list(x.shape), list(x.stride()), list(block))


def _none(m: int, n: int, tile: Tile) -> int:
    return 0


def _nothing(case: Case, target: Target) -> None:
    return None


def _with_parts(case: Case, tile: Tile) -> Footprint:
    return tiling.footprint(case, tile, partials=True)


@dataclass(frozen=True)
class Discipline:
    """One way to bring partial sums together.

    `launch(problem, tile, scratch)` returns what Triton returned for each of its launches. `partials(m, n, tile)`,
    `counters` and `sums` count the elements of its scratch. `linear` says that parts reach C
    one by one, so that no activation can follow, nor a rounding to 16 bits.
    """

    name: str
    kernel: Any
    deterministic: bool
    launch: Callable[[Problem, Tile, Scratch], tuple[Any, ...]]
    choose_tile: Callable[[Case, Target], Tile]
    tiles: Callable[[Case, Target], list[Tile]]
    algorithm: str
    partials: Callable[[int, int, Tile], int] = _none
    counters: Callable[[int, int, Tile], int] = _none
    sums: Callable[[int, int, Tile], int] = _none
    footprint: Callable[[Case, Tile], Footprint] = _with_parts
    refuses: Callable[[Case, Target], Refusal | None] = _nothing
    linear: bool = False
    tile_type: type[Tile] = Tile

    def supports(self, case: Case, target: Target) -> Refusal | None:
        if 0 < target.compute_capability < 80 and (case.dtype == "bf16" or case.precision in ("tf32", "3xtf32")):
            return "needs_sm_80", f"{case.dtype} {case.precision} products need sm_80, this is {target.arch}."
        return host.needs_gpu(self.kernel, target) or self.refuses(case, target)

    def scratch(self, problem: Problem, tile: Tile) -> Scratch:
        """New scratch for one stream of launches."""
        m, n, _ = problem.sizes
        return Scratch(
            _elements(problem, self.partials(m, n, tile), torch.empty, torch.float32),
            _elements(problem, self.counters(m, n, tile), torch.zeros, torch.int32),
            _elements(problem, self.sums(m, n, tile), torch.zeros, torch.float32),
        )


def _elements(problem: Problem, count: int, make: Callable[..., Tensor], dtype: torch.dtype) -> Tensor | None:
    return make(count, dtype=dtype, device=problem.a.device) if count else None


def plain_problem(case: Case, inputs: Inputs) -> Problem:
    """C = A @ B in their dtype."""
    a, b = inputs["a"], inputs["b"]
    return Problem(a, b, a.new_empty(a.shape[0], b.shape[1]), case.precision)


def prepare(
    discipline: Discipline,
    problem_of: Callable[[Case, Inputs], Problem],
    case: Case,
    example: Inputs,
    target: Target,
    tile: TileData | None = None,
) -> Prepared:
    """Launches once on the example; without a tile the discipline chooses."""
    chosen = discipline.choose_tile(case, target) if tile is None else discipline.tile_type.from_data(tile)
    problem = problem_of(case, example)
    if loads_of(problem, chosen) == "pointers":
        chosen = replace(chosen, loads="pointers")
    compiled = discipline.launch(problem, chosen, discipline.scratch(problem, chosen)) if target.is_gpu else ()
    workspaces: list[Tensor] = []
    state: list[Tensor] = []

    def bind(inputs: Inputs) -> Call:
        bound = problem_of(case, inputs)
        scratch = discipline.scratch(bound, chosen)
        workspaces.extend(x for x in (scratch.partials,) if x is not None)
        state.extend(scratch.state)

        def call() -> Tensor:
            discipline.launch(bound, chosen, scratch)
            return bound.c if bound.output is None else bound.output

        return call

    return Prepared(
        bind,
        tile=chosen.as_data(),
        algorithm=discipline.algorithm,
        workspaces=workspaces,
        device_code=host.device_code(*compiled),
        state=state,
    )


def implementation(
    discipline: Discipline, problem_of: Callable[[Case, Inputs], Problem] = plain_problem, **changes: Any
) -> Implementation:
    """The discipline as the harness knows it, for the products that `problem_of` makes of a family's inputs."""
    made = Implementation(
        discipline.name,
        "own",
        discipline.deterministic,
        discipline.supports,
        partial(prepare, discipline, problem_of),
        tiles=partial(_tiles, discipline),
        footprint=partial(_footprint, discipline),
    )
    return replace(made, **changes)


def _tiles(discipline: Discipline, case: Case, target: Target) -> Sequence[TileData]:
    return [tile.as_data() for tile in discipline.tiles(case, target)]


def _footprint(discipline: Discipline, case: Case, target: Target, tile: TileData) -> Footprint:
    return discipline.footprint(case, discipline.tile_type.from_data(tile))
