"""When training shall stop: at the time limit, or by Ctrl-C."""

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

STOPPING = "stopping at the end of the epoch; Ctrl-C again stops at once"


class Stopping:
    """Whether to stop: asked by the runs after every epoch, and by who feeds the workers."""

    def __init__(self, time_limit: float | None = None):
        self.deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        self.presses, self.given_up = 0, False

    def __call__(self) -> bool:
        """Whether all runs shall stop at the end of their epoch."""
        return self.given_up or self.presses > 0 or time.monotonic() >= self.deadline

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, the first Ctrl-C is only counted, so that the epoch can end; the second stops at once."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
            yield  # signals can be handled in the main thread alone, and are not where the shell has said so
            return
        signal.signal(signal.SIGINT, self._press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _press(self, *_: object) -> None:
        self.presses += 1
        if self.presses > 1:
            raise KeyboardInterrupt
        print(STOPPING, file=sys.stderr, flush=True)
