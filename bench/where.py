"""Where the time of a captured step goes, kernel by kernel, and how far it is from what arithmetic and memory allow.

Kernels on branches of the graph run side by side, so that their times add up to more than the step takes.

The two limits are measured in the same run: the rate of a large float32 product, and the bandwidth of a large copy. The
least bytes: weights read twice and gradients written once, the optimiser's share (weights, gradients and two moments
read, weights and moments written), and what the forward keeps for the backward, written once and read once. CUDA only.
"""

import itertools
import statistics
from collections import Counter
from unittest.mock import patch

import torch
from cases import GCN, RESMLP, VIT
from common import Table, arguments, timed
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from creditscope.stacked_functions import attention, layers
from creditscope.train.data import GraphData
from creditscope.train.stacked import StackedRun

CASES = ((RESMLP, 20), (RESMLP, 64), (GCN, 20), (VIT, 3))
KINDS = (
    ("optimiser", ("FusedOptimizer", "multi_tensor_apply")),
    ("matrix products", ("gemm", "Kernel2", "splitK", "cutlass_80", "_rows_by_matrix", "_over_rows")),
    ("sparse products", ("cusparse", "csr")),
    ("attention", ("fmha", "_attention_")),
    ("layer norm", ("layer_norm", "_norm_")),
    ("softmax", ("softmax", "SoftMax")),
    ("sums", ("reduce_kernel",)),
    ("gather", ("index", "gather", "scatter")),
    ("copies", ("copy", "Memcpy", "Memset", "memcpy", "Fill")),
)
OTHERS = "other elementwise"
STEPS = 20


def main() -> None:
    given = arguments(__doc__, rounds=5)
    if not torch.cuda.is_available():
        print("where: needs a CUDA device")
        return
    rate, bandwidth = product_rate(), copy_bandwidth()
    table = Table("Where a captured BP step's time goes", given.device)
    table.add(limit="float32 products", tflops=round(rate / 1e12, 1))
    table.add(limit="copy, read and written", tb_per_s=round(bandwidth / 1e12, 2))
    for case, seeds in CASES:
        run = case.stack(seeds, given.device)
        run.train_epoch(0, keep_last=False)
        step = step_time(run, given.rounds)
        kinds, kernels = kernel_times(run)
        flops, kept = count_work(run)
        size = sum(p.numel() * p.element_size() for p in run.trained.values())
        arithmetic, memory = 1e3 * flops / rate, 1e3 * (10 * size + 2 * kept) / bandwidth
        table.add(
            net=case.name, seeds=seeds, step_ms=round(step, 3), kernels_ms=round(sum(kinds.values()), 3),
            kernels=round(kernels),
            **{kind: f"{ms:.3f} ms" for kind, ms in kinds.most_common()},
            gflop=round(flops / 1e9, 1), arithmetic_ms=round(arithmetic, 3),
            megabytes=round((10 * size + 2 * kept) / 1e6), memory_ms=round(memory, 3),
            over_the_larger=round(step / max(arithmetic, memory), 2),
            over_their_sum=round(step / (arithmetic + memory), 2),
        )  # fmt: skip
        del run
        torch.cuda.empty_cache()
    table.save(given.json)


def step_time(run: StackedRun, rounds: int) -> float:
    """Milliseconds of a step: the median over epochs (of a graph, over so many steps)."""
    steps, epochs = run.data.steps if run.data.steps > 1 else STEPS, itertools.count(1)

    def some() -> None:
        for _ in range(steps // run.data.steps):
            run.train_epoch(next(epochs), keep_last=False)

    return 1e3 * statistics.median(timed(some, "cuda") for _ in range(rounds)) / steps


def kernel_times(run: StackedRun) -> tuple[Counter, float]:
    """Milliseconds of a step by kind of kernel, and the number of kernels."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for epoch in range(1, 2 if run.data.steps > 1 else 1 + STEPS):
            run.train_epoch(epoch, keep_last=False)
        torch.cuda.synchronize()
    steps = run.data.steps if run.data.steps > 1 else STEPS
    kinds, kernels = Counter(), 0
    for row in seen.key_averages():
        kind = next((kind for kind, words in KINDS if any(word in row.key for word in words)), OTHERS)
        kinds[kind] += row.self_device_time_total / 1e3 / steps
        kernels += row.count / steps
    return kinds, kernels


def count_work(run: StackedRun) -> tuple[float, float]:
    """Operations of a step's products, and bytes that its forward keeps for the backward, each storage once."""
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if tensor.layout != torch.sparse_csr and not isinstance(tensor, torch.nn.Parameter):
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = run._batch() if run.data.steps == 1 else run.data.train_batch(*(told[0] for told in run._plan or ()))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run.train_step(batch)
    counter = FlopCounterMode(display=False)
    with (  # it does not see into our own kernels
        counter,
        patch.object(attention, "has_triton", return_value=False),
        patch.object(layers, "has_tensor_cores", return_value=False),
    ):
        run.train_step(batch)
    flops = counter.get_total_flops()
    if isinstance(run.data, GraphData):
        # the counter takes a sparse product, the only plain `mm` there, for a dense one
        flops -= sum(counter.get_flop_counts()["Global"].get(op, 0) for op in (torch.ops.aten.mm, torch.ops.aten.addmm))
    return flops, sum(kept.values())


def product_rate() -> float:
    a = torch.randn(8192, 8192, device="cuda")
    _ = a @ a
    return 2 * 8192**3 / min(timed(lambda: a @ a, "cuda") for _ in range(3))


def copy_bandwidth() -> float:
    a, b = (torch.randn(2**28, device="cuda") for _ in range(2))
    b.copy_(a)
    return 2 * a.numel() * 4 / min(timed(lambda: b.copy_(a), "cuda") for _ in range(5))


if __name__ == "__main__":
    main()
