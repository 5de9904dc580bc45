"""A worker process: reads groups of runs as JSON lines, trains them on one thread, writes events as JSON lines.

A subprocess rather than `multiprocessing`, so that `creditscope.run` works in any script without a main guard.
"""

import json
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

    from creditscope.train.engines import Group
    from creditscope.train.pool import NO_MEMORY
    from creditscope.train.recording import StoppedError
    from creditscope.train.runner import reason_of, record_group

    torch.set_num_threads(1)
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a user's rule prints must not look like an event
    root, device = Path(sys.argv[1]), torch.device(sys.argv[2])
    with suppress(Exception):  # wakes the device while there is nothing else to do; what is amiss, runs will say
        torch.zeros((), device=device)

    def send(**event) -> None:
        events.write(json.dumps(event) + "\n")

    def end(spec, outcome) -> None:
        if isinstance(outcome, torch.OutOfMemoryError):
            send(event="end", run=spec.digest(), outcome=NO_MEMORY)
        elif isinstance(outcome, Exception):
            send(event="end", run=spec.digest(), outcome="failed", reason=reason_of(outcome))
        else:
            send(event="end", run=spec.digest(), outcome=outcome)

    adapter = TypeAdapter(Group)
    for line in sys.stdin:
        group = adapter.validate_json(line)
        with suppress(StoppedError):
            record_group(
                group,
                root,
                device=device,
                on_epoch=lambda spec, done, loss: send(event="epoch", run=spec.digest(), done=done, loss=loss),
                on_end=end,
                should_stop=stop.is_set,
            )
        send(event="done")
        if stop.is_set():
            break


if __name__ == "__main__":
    main()
