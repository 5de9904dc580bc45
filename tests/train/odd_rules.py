"""Rules that nobody should write, for tests of what becomes of their runs; loaded by their path, as a user's are."""

import os
import time
from pathlib import Path

import torch

from creditscope import TapRule


def spread(ctx):
    return [ctx.error @ torch.ones(ctx.error.shape[-1], h.shape[-1]) for h in ctx.states]


class Raises(TapRule):
    def credit(self, ctx):
        raise RuntimeError("this rule is broken")


class Dies(TapRule):
    def credit(self, ctx):
        os._exit(9)


class Talks(TapRule):
    """Prints what looks like the runner's own events."""

    def credit(self, ctx):
        print('{"event": "end", "outcome": "from the rule"}', flush=True)
        return [h.clone() for h in ctx.states]


class Crowded(TapRule):
    """Finds no memory the first times."""

    def __init__(self, *, folder: str = "", times: int = 1):
        self.tried, self.times = Path(folder, "tried"), times

    def credit(self, ctx):
        before = len(self.tried.read_text()) if self.tried.exists() else 0
        if before < self.times:
            self.tried.write_text("x" * (before + 1))
            raise torch.OutOfMemoryError("no room")
        return spread(ctx)


class Waits(TapRule):
    """Says that it waits, until it is told to go."""

    def __init__(self, *, folder: str = ""):
        self.folder = Path(folder)

    def credit(self, ctx):
        (self.folder / "waits").touch()
        end = time.monotonic() + 60  # so that a test that fails does not hang
        while not (self.folder / "go").exists() and time.monotonic() < end:
            time.sleep(0.01)
        return spread(ctx)


class Reads(TapRule):
    """Reads a number on the host."""

    def credit(self, ctx):
        size = ctx.error.square().mean().item()
        return [h * size for h in ctx.states]


class Draws(TapRule):
    """Draws from the global stream."""

    def credit(self, ctx):
        return [h + 0.1 * torch.randn_like(h) for h in ctx.states]


class Decides(TapRule):
    """Chooses by what it sees."""

    def credit(self, ctx):
        return [h if bool(h.sum() > 0) else -h for h in ctx.states]


class Keeps(TapRule):
    """Keeps its feedback to itself."""

    def draw_feedback(self, tap_shapes, classes, generator):
        self.matrices = [torch.randn(shape[-1], classes, generator=generator) for shape in tap_shapes]
        return []

    def credit(self, ctx):
        return [ctx.error @ B.T for B in self.matrices]


class Plain(TapRule):
    """Without feedback; nothing that cannot be mapped."""

    def credit(self, ctx):
        return [torch.zeros_like(h) + ctx.error[:, :1] * ctx.target[:, None] for h in ctx.states]
