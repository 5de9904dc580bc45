"""A worker process: reads groups of runs as lines of JSON, trains them on one thread, writes events as lines of JSON.

A subprocess rather than `multiprocessing`, so that `creditscope.run` works in any script without a main guard.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

LOOK = 0.5  # seconds between two looks whether the parent is there


def main() -> None:
    """Serve runs until standard input ends, or until asked to stop."""
    asked: list[int] = []  # and no event, whose lock a second signal would find taken by the first
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))  # from now on no signal loses work
    root, device, parent = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    import torch
    from pydantic import TypeAdapter

    from creditscope.train.events import Done, to_line
    from creditscope.train.groups import RunGroup
    from creditscope.train.training import StoppedError, train_group

    torch.set_num_threads(1)
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a user's rule prints must not look like an event
    device = torch.device(device)
    with suppress(Exception):  # wakes the device while there is nothing else to do; what is amiss, runs will say
        torch.zeros((), device=device)
    adapter = TypeAdapter(RunGroup)
    for line in sys.stdin:
        with suppress(StoppedError):
            for event in train_group(adapter.validate_json(line), root, device=device, should_stop=lambda: bool(asked)):
                events.write(to_line(event))
        events.write(to_line(Done()))
        if asked:
            break


def end_with(parent: int) -> None:
    """End this process at once when its parent has gone, which nobody was asked about: a kill, a crash."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)
