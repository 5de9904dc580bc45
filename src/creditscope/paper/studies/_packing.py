"""Pack the records of all studies of a scale into bundles to be shipped, each run once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.paper.studies._derived import ship_derived
from creditscope.paper.studies._scales import studies_at
from creditscope.paper.studies._study import Study, find_missing, find_wanted
from creditscope.record import Record, read_bundle, write_bundle
from creditscope.record.bundle import DIGITS, SUFFIX


@dataclass(frozen=True)
class Share:
    """What a study gets: the records of its runs, and those of them that no earlier study has, which it ships."""

    study: Study
    wanted: list[Record]
    own: list[Record]
    missing: int
    """Its runs that are not on record."""


@dataclass(frozen=True)
class Packed:
    """What was written: files with the runs behind each and their sizes, and the runs that no study wants."""

    shares: list[Share]
    files: list[tuple[Path, int, int]]
    unwanted: list[Record]
    stale: list[tuple[Path, int]]
    """Bundles that were there, of studies that ship no run now, and the runs they hold."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for *_, size in self.files)


def pack_studies(
    records: Sequence[Record], root: Path, out: Path, *, scale: str, replace: bool = False, problems: Sequence[str] = ()
) -> Packed:
    """OUT/STUDY.jsonl.xz for every study, with the runs that no earlier one has; what was derived in OUT/STUDY/.

    Without `replace`, bundles that hold runs which would be lost are an error, and nothing is written. `problems` are
    what could not be read of the records; an error names them.
    """
    shares = _share_out(records, scale)
    targets = {out / f"{share.study.name}{SUFFIX}": share for share in shares if share.own}
    if not targets:
        message = f"Expected records of a study at scale {scale!r} under {root}, but got none."
        raise CreditscopeError(" ".join([message, "creditscope reproduce trains them.", *problems]))
    there = sorted(out.rglob(f"*{SUFFIX}")) if out.is_dir() else []
    others = {path: _digests(path, []) for path in there if path not in targets}
    packed = {record.spec.digest() for share in shares for record in share.own if record.spec}
    if not replace:
        _refuse_loss([path for path in there if path in targets], packed.union(*others.values()), problems)
    files = []
    for path, share in targets.items():
        files.append((path, len(share.own), write_bundle(share.own, path)))
    for share in shares:
        files += _ship(share.study, share.wanted, root, out)
    unwanted = [r for r in records if r.spec is None or r.spec.digest() not in packed]
    stale = {out / f"{share.study.name}{SUFFIX}" for share in shares} & others.keys()
    return Packed(shares, files, unwanted, [(path, len(others[path])) for path in sorted(stale)])


def _share_out(records: Sequence[Record], scale: str) -> list[Share]:
    shares, packed = [], set()
    for study in studies_at(scale):
        wanted = find_wanted(study, records)
        own = [r for r in wanted if id(r) not in packed]
        packed |= {id(r) for r in own}
        shares.append(Share(study, wanted, own, len(find_missing(study, records))))
    return shares


def _digests(path: Path, problems: list[str]) -> set[str]:
    return {record.spec.digest() for record in read_bundle(path, problems=problems) if record.spec}


def _refuse_loss(replaced: Sequence[Path], kept: set[str], problems: Sequence[str]) -> None:
    """An error if bundles that would be replaced hold runs that no bundle would hold afterwards, or cannot be read."""
    unread: list[str] = []
    losses = {path: len(_digests(path, unread) - kept) for path in replaced}
    lost = [f"{count} of {path.name}" for path, count in losses.items() if count]
    if lost:
        what = f"runs would be lost: {', '.join(lost)}"
    elif unread:
        what = "there is one that cannot be read, so that nobody knows what it held"
    else:
        return
    message = (
        f"Expected bundles under {replaced[0].parent} whose runs are all packed again, but {what}. Nothing was "
        "written; with --replace they are replaced all the same."
    )
    raise CreditscopeError(" ".join([message, *dict.fromkeys([*unread, *problems])]))


def _ship(study: Study, records: Sequence[Record], root: Path, out: Path) -> list[tuple[Path, int, int]]:
    if study.derive is None:
        return []
    paths = [ship_derived(study.name, record, root, out, digits=DIGITS) for record in records]
    return [(path, 1, path.stat().st_size) for path in paths if path]
