"""What a CUDA device offers: kernels side by side in a captured step, and Triton."""

import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from creditscope.errors import raise_out_of_memory


def side_by_side(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """What the functions return; while a CUDA graph is captured, each becomes a branch of it, joined at the end.

    One alone would leave part of the GPU idle. Every branch starts after all that was queued before, and all that is
    queued later starts after every branch, so memory can be used again as if there was one stream. Outside a capture
    they run one after the other: there, the time goes into starting kernels.
    """
    if not torch.cuda.is_available() or not torch.cuda.is_current_stream_capturing():
        return [function() for function in functions]
    main = torch.cuda.current_stream()
    streams = [_stream(main.device.index, i) for i in range(len(functions) - 1)]
    branches, begun = [], []
    try:
        for function, stream in zip(functions[1:], streams, strict=True):
            stream.wait_stream(main)
            begun.append(stream)
            with torch.cuda.stream(stream):
                branches.append(function())
        first = functions[0]()
    finally:  # else the capture's complaint would hide the error of a branch
        for stream in begun:
            main.wait_stream(stream)
    return [first, *branches]


@cache
def _stream(device: int, number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@cache
def has_triton() -> bool:
    """Whether kernels of our own can be made: Triton is there, and has what it needs (a compiler, a GPU it knows)."""
    if importlib.util.find_spec("triton") is None:
        return False

    def launch() -> None:
        from creditscope.stacked_functions._triton_kernels import layer_norm_forward

        row = torch.zeros(1, 1, 2, device="cuda")
        layer_norm_forward(row, row[0], row[0], 1e-5)

    return works(launch)


@cache
def has_tensor_cores() -> bool:
    """Whether they can be given float32 in parts; older ones take half precision only."""

    def launch() -> None:
        from creditscope.stacked_functions._triton_kernels import rows_by_matrix

        square = torch.zeros(1, 16, 16, device="cuda")
        rows_by_matrix(square, square)

    return has_triton() and torch.cuda.get_device_capability() >= (8, 0) and works(launch)


def works(launch: Callable[[], object]) -> bool:
    """Whether a kernel can be launched here; whatever hinders it, torch's own operations do, if there is memory."""
    try:
        launch()
    except Exception as error:
        raise_out_of_memory(error)
        return False
    return True
