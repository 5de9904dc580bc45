"""A worker process: reads run specs as JSON lines, trains them on one thread, writes events as JSON lines.

A subprocess rather than `multiprocessing`, so that `creditscope.run` works in any script without a main guard.
"""

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path


def main() -> None:
    """Serve runs until standard input ends, or until asked to stop."""
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, lambda *_: stop.set())  # before the slow imports: from now on no signal loses work
    import torch
    from pydantic import TypeAdapter

    from creditscope.errors import CreditscopeError
    from creditscope.record.schema import RunSpec
    from creditscope.train.recording import StoppedError, record_run

    torch.set_num_threads(1)
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a user's rule prints must not look like an event
    root = Path(sys.argv[1])

    def send(**event) -> None:
        events.write(json.dumps(event) + "\n")

    adapter = TypeAdapter(RunSpec)
    for line in sys.stdin:
        spec = adapter.validate_json(line)
        try:
            status = record_run(
                spec,
                root,
                on_epoch=lambda done, loss: send(event="epoch", done=done, loss=loss),
                should_stop=stop.is_set,
            )
            send(event="end", outcome=status)
        except StoppedError:
            send(event="end", outcome="stopped")
        except CreditscopeError as error:
            send(event="failed", reason=str(error))
        except Exception:
            send(event="failed", reason=traceback.format_exc())
        if stop.is_set():
            break


if __name__ == "__main__":
    main()
