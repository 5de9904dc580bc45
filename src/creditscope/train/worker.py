"""A worker process: reads groups of runs as lines of JSON, trains them on one thread, writes events as lines of JSON.

A subprocess rather than `multiprocessing`, so that `creditscope.run` works in any script without a main guard.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path


def main() -> None:
    """Serve runs until standard input ends, or until asked to stop."""
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, lambda *_: stop.set())  # before the slow imports: from now on no signal loses work
    import torch
    from pydantic import TypeAdapter

    from creditscope.train.events import Done, to_line
    from creditscope.train.groups import RunGroup
    from creditscope.train.training import StoppedError, train_group

    torch.set_num_threads(1)
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a user's rule prints must not look like an event
    root, device = Path(sys.argv[1]), torch.device(sys.argv[2])
    with suppress(Exception):  # wakes the device while there is nothing else to do; what is amiss, runs will say
        torch.zeros((), device=device)
    adapter = TypeAdapter(RunGroup)
    for line in sys.stdin:
        with suppress(StoppedError):
            for event in train_group(adapter.validate_json(line), root, device=device, should_stop=stop.is_set):
                events.write(to_line(event))
        events.write(to_line(Done()))
        if stop.is_set():
            break


if __name__ == "__main__":
    main()
