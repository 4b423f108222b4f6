"""C = A @ B for long K, as somebody might write it: each program multiplies a part of K, torch adds the parts."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 128
PARTS = 96  # most parts that K is cut into


@triton.jit
def _multiply_parts(
    a_ptr, b_ptr, parts_ptr, M, N, K, blocks_each,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """parts[p, m, n] = sum of a[m, k] b[k, n] over the `blocks_each` blocks of K that are part p's."""
    tiles_n = tl.cdiv(N, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)
    columns = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    part = tl.program_id(1)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for block in range(part * blocks_each, (part + 1) * blocks_each):
        ks = block * BK + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + ks[None, :], mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptr + ks[:, None] * N + columns, mask=(ks[:, None] < K) & (columns[None, :] < N), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    stored = parts_ptr + part * M * N + rows[:, None] * N + columns[None, :]
    tl.store(stored, total, mask=(rows[:, None] < M) & (columns[None, :] < N))


def multiply(a, b, parts, blocks_each):
    """A [M, K] @ B [K, N], both row-major, from `parts` parts of K of `blocks_each` blocks."""
    (m, k), n = a.shape, b.shape[1]
    sums = torch.empty(parts, m, n, dtype=torch.float32, device=a.device)
    tiles = triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N)
    _multiply_parts[(tiles, parts)](a, b, sums, m, n, k, blocks_each, BM=BLOCK_M, BN=BLOCK_N, BK=BLOCK_K)
    return sums.sum(0).to(a.dtype)


def matmul(a, b):
    """Parts of equal length, the last one shorter."""
    blocks = triton.cdiv(a.shape[1], BLOCK_K)
    blocks_each = triton.cdiv(blocks, min(PARTS, blocks))
    return multiply(a, b, triton.cdiv(blocks, blocks_each), blocks_each)
