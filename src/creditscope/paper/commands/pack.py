"""`creditscope pack`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from creditscope.commands import register_command
from creditscope.commands._options import Folder, Name, Records, RecordsByName, choose_records, say, with_problems
from creditscope.errors import CreditscopeError
from creditscope.text import count

if TYPE_CHECKING:
    from creditscope.paper.studies import Study
    from creditscope.record import Record


@dataclass(frozen=True)
class StudyShare:
    """What a study gets: the records of its runs, and those of them that no earlier study has, which it ships."""

    study: "Study"
    wanted: list["Record"]
    own: list["Record"]
    path: Path
    """Of its bundle."""


@register_command("pack")
@dataclass(frozen=True)
class Pack:
    """Pack records into bundles, one compressed file a study: rounded, thinned, without weights; needs no torch.

    Example: creditscope pack out/records --out results/paper
    """

    records: Records = None
    by_name: RecordsByName = None
    out: Folder = Path("results/paper")
    """STUDY.jsonl.xz go here; every command that reads records reads them, too."""
    scale: Name = "paper"
    """Scale of the studies whose runs are packed: demo or paper."""
    replace: bool = False
    """Replace bundles even if runs that they hold are lost by it."""

    def run(self) -> None:
        from creditscope.paper.studies import find_missing
        from creditscope.record import load_records
        from creditscope.record.bundle import SUFFIX

        source, problems = choose_records(self.records, self.by_name), []
        records = load_records(source, problems=problems)
        shares = self._share_out(records)
        targets = [share.path for share in shares if share.own]
        if not targets:
            message = f"Expected records of a study at scale {self.scale!r} under {source}, but got none."
            raise CreditscopeError(with_problems(f"{message} creditscope reproduce trains them.", problems))
        packed = {record.spec.digest() for share in shares for record in share.own if record.spec}
        there = sorted(self.out.rglob(f"*{SUFFIX}")) if self.out.is_dir() else []
        others = {path: _digests(path, []) for path in there if path not in targets}
        if not self.replace:
            _refuse_loss([path for path in there if path in targets], packed.union(*others.values()), problems)
        for share in shares:
            runs = len(share.study.runs)
            say(
                [f"{share.study.name}: {runs - len(find_missing(share.study, records))} of {count(runs, 'wanted run')}"]
            )
        files = _write(shares, source, self.out)
        say([f"wrote {path} ({count(runs, 'run')}, {path.stat().st_size:,} bytes)" for path, runs in files])
        unwanted = [r.name for r in records if r.spec is None or r.spec.digest() not in packed]
        size = sum(path.stat().st_size for path, _ in files)
        say([f"{count(len(records) - len(unwanted), 'run')}, {size:,} bytes together"])
        if unwanted:
            names = ", ".join(unwanted[:3]) + " …" * (len(unwanted) > 3)
            say([f"left out: {count(len(unwanted), 'run')} of no study at scale {self.scale!r}: {names}"])
        stale = "is of a study that ships no run of its own now; it was left as it was"
        left = sorted({share.path for share in shares} & others.keys())
        say([f"stale: {path} ({count(len(others[path]), 'run')}) {stale}" for path in left])
        say([f"note: {problem}" for problem in problems])

    def _share_out(self, records: Sequence["Record"]) -> list[StudyShare]:
        from creditscope.paper.studies import find_wanted, studies_at
        from creditscope.record.bundle import SUFFIX

        shares, taken = [], set()
        for study in studies_at(self.scale):
            wanted = find_wanted(study, records)
            own = [r for r in wanted if id(r) not in taken]
            taken |= {id(r) for r in own}
            shares.append(StudyShare(study, wanted, own, self.out / f"{study.name}{SUFFIX}"))
        return shares


def _write(shares: Sequence[StudyShare], root: Path, out: Path) -> list[tuple[Path, int]]:
    """OUT/STUDY.jsonl.xz for every study with runs of its own, and what it derived; files with the runs behind each."""
    from creditscope.record import write_bundle

    files = []
    for share in shares:
        if share.own:
            write_bundle(share.own, share.path)
            files.append((share.path, len(share.own)))
    for share in shares:
        if share.study.ship:
            shipped = [share.study.ship(record, root, out) for record in share.wanted]
            files += [(path, 1) for path in shipped if path]
    return files


def _digests(path: Path, problems: list[str]) -> set[str]:
    from creditscope.record import read_bundle

    return {record.spec.digest() for record in read_bundle(path, problems=problems) if record.spec}


def _refuse_loss(replaced: Sequence[Path], kept: set[str], problems: Sequence[str]) -> None:
    """An error if bundles that would be replaced hold runs that no bundle would hold afterwards, or cannot be read."""
    unread: list[str] = []
    losses = {path: len(_digests(path, unread) - kept) for path in replaced}
    lost = [f"{count} of {path.name}" for path, count in losses.items() if count]
    if not lost and not unread:
        return
    what = "there is one that cannot be read, so that nobody knows what it held"
    what = f"runs would be lost: {', '.join(lost)}" if lost else what
    message = (
        f"Expected bundles under {replaced[0].parent} whose runs are all packed again, but {what}. Nothing was "
        "written; with --replace they are replaced all the same."
    )
    raise CreditscopeError(" ".join([message, *dict.fromkeys([*unread, *problems])]))
