"""Pack the records of all studies of a scale into bundles to be shipped, each run once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from creditscope.record import Record, write_bundle
from creditscope.record.bundle import DIGITS, SUFFIX
from creditscope.studies._derived import ship_derived
from creditscope.studies._scales import studies_at
from creditscope.studies._study import Study, find_wanted


@dataclass(frozen=True)
class Packed:
    """What was written: files with the runs behind each and their sizes, and the runs that no study wants."""

    files: list[tuple[Path, int, int]]
    unwanted: list[Record]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for *_, size in self.files)


def pack_studies(records: Sequence[Record], root: Path, out: Path, *, scale: str) -> Packed:
    """OUT/STUDY.jsonl.xz for every study, with the runs that no earlier one has; what was derived in OUT/STUDY/."""
    files, packed = [], set()
    for study in studies_at(scale):
        wanted = find_wanted(study, records)
        own = [r for r in wanted if id(r) not in packed]
        packed |= {id(r) for r in own}
        if own:
            path = out / f"{study.name}{SUFFIX}"
            files.append((path, len(own), write_bundle(own, path)))
        files += _ship(study, wanted, root, out)
    return Packed(files, [r for r in records if id(r) not in packed])


def _ship(study: Study, records: Sequence[Record], root: Path, out: Path) -> list[tuple[Path, int, int]]:
    if study.derive is None:
        return []
    paths = [ship_derived(study.name, record, root, out, digits=DIGITS) for record in records]
    return [(path, 1, path.stat().st_size) for path in paths if path]
