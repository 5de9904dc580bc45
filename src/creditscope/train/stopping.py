"""When runs shall stop: a signal, a time limit, somebody's word, or nobody who listens any more."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

LOOK = 0.1  # seconds between two looks at what has come
PATIENCE = 10.0  # seconds from a signal until all ends at once, as if it had come twice
STOPPING = "stopping at the end of the step; Ctrl-C again stops at once"
LEAVING = "leaving jobs that go on; `creditscope status DIR` tells of them, `creditscope cancel DIR` ends them"


class Stopping:
    """Whether to stop: asked by the runs after every step, and by who feeds the workers.

    Signals are counted. What they bring about is seen to by a thread, and only where `interruptible` says so does one
    raise, once: an exception out of a signal handler can come between taking a lock and knowing that it is held.
    """

    def __init__(self) -> None:
        self.deadline, self.presses, self.given_up = math.inf, 0, False
        self.ask: Callable[[], None] = lambda: None
        """What asks others to stop, or ends them if it shall be at once."""
        self.says = STOPPING
        self.told: Callable[[], bool] = lambda: False
        """Whether somebody else said so."""
        self._signal, self._raise_from = int(signal.SIGINT), math.inf

    def __call__(self) -> bool:
        """Whether all runs shall stop at the end of their step."""
        return self.given_up or self.presses > 0 or time.monotonic() >= self.deadline

    @property
    def at_once(self) -> bool:
        """Whether they shall not even end their step."""
        return self.presses > 1

    def limit(self, seconds: float | None) -> None:
        """Stop so many seconds from now."""
        self.deadline = math.inf if seconds is None else time.monotonic() + seconds

    def leave(self) -> NoReturn:
        """Raise what the signal stands for."""
        raise KeyboardInterrupt if self._signal == signal.SIGINT else SystemExit(128 + self._signal)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, the first Ctrl-C or SIGTERM is only counted, so that the step can end; the second stops at once."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,), daemon=True)
        watcher.start()
        before: dict[int, Any] = {}
        # signals can be handled in the main thread alone, and are not where the shell, or who calls, has said so
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, None), (signal.SIGTERM, signal.SIG_DFL)):
                handler = signal.getsignal(number)
                if handler is not signal.SIG_IGN and (usual is None or handler is usual):
                    before[number] = signal.signal(number, self._press)
        try:
            yield
        finally:
            self._raise_from = math.inf
            over.set()
            watcher.join()
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def interruptible(self, *, presses: int) -> Iterator[None]:
        """Inside, so many signals raise at once what they stand for."""
        self._raise_from = presses
        try:
            if self.presses >= presses:
                self.leave()
            yield
        finally:
            self._raise_from = math.inf

    def _press(self, number: int, _: object) -> None:
        """Takes no lock and prints nothing: whatever it interrupts may hold what that needs."""
        self.presses, self._signal = self.presses + 1, number
        if self.presses >= self._raise_from:
            self._raise_from = math.inf
            self.leave()

    def _watch(self, over: threading.Event) -> None:
        """Asks when all shall stop, and again when it shall be at once; says once that a signal has come."""
        asked, pressed_at, last = 0, math.inf, False
        while not last:
            last = over.wait(LOOK)  # one more look after it is over
            self.given_up = self.given_up or self.told()
            if self.presses and pressed_at == math.inf:
                pressed_at = time.monotonic()
                with suppress(OSError, ValueError):  # if nobody reads it, all shall stop nevertheless
                    print(self.says, file=sys.stderr, flush=True)
            if self.presses == 1 and not last and time.monotonic() - pressed_at > PATIENCE:
                os.kill(os.getpid(), self._signal)
                pressed_at = time.monotonic()
            if self() + self.at_once > asked:
                asked = self() + self.at_once
                self.ask()
