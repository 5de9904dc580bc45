"""Options that several commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

DataRoot = Annotated[
    Path | None,
    tyro.conf.arg(metavar="DIR", help="Folder of data files; default CREDITSCOPE_DATA or the user's cache."),
]
TimeLimit = Annotated[
    float | None, tyro.conf.arg(metavar="SECONDS", help="Stop cleanly after this long; the same command goes on.")
]
Device = Annotated[
    str, tyro.conf.arg(metavar="NAME", help="Where to train: auto (CUDA where there is one), cpu, cuda.")
]
Engine = Annotated[
    Literal["auto", "loop", "stacked"],
    tyro.conf.arg(help="Seeds one by one or all at once; auto takes the faster for the case."),
]
Jobs = Annotated[
    int | None, tyro.conf.arg(metavar="N", help="Worker processes; default one per core, on CUDA at most 16.")
]


@dataclass(frozen=True, kw_only=True)
class HowToTrain:
    """Options of the commands that train what is missing."""

    time_limit: TimeLimit = None
    device: Device = "auto"
    engine: Engine = "auto"
    jobs: Jobs = None
    quiet: bool = False
    """No progress."""

    def how(self) -> dict[str, Any]:
        """As `collect` and `train_union` take them."""
        return {name: getattr(self, name) for name in ("quiet", "jobs", "time_limit", "device", "engine")}
