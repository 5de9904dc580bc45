"""`creditscope league`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from creditscope.commands import register_command
from creditscope.commands._options import DataRoot, Folder, HowToTrain, Name, option, say
from creditscope.commands.run import read_seeds
from creditscope.errors import CreditscopeError, UnfinishedError, one_of
from creditscope.files import write_whole

if TYPE_CHECKING:
    from creditscope.paper.standings import Standing
    from creditscope.paper.studies._league import Block
    from creditscope.record import Record, RunSpec

OWN, OTHERS = "▶ ", "  "
"""Before a row of one's own, and before the others."""
HEAD = "share of BP's gain over frozen blocks, ± 95 % over seeds, then the strip; ▶ your rule"


@register_command("league")
@dataclass(frozen=True)
class League:
    """Print where rules stand by their share of backprop's gain, or train one's own rule and put its row among them.

    It is trained in the settings of the league, with its frozen twin; other rows are those that ship (creditscope fetch
    league). Without these BP is trained, too, and stands alone beside it.

    Example: creditscope league add my_rule.py:Rule
    """

    action: tyro.conf.Positional[Literal["show", "add"]] = "show"
    """Print what is on record, or add rules."""
    rule: Annotated[tyro.conf.Positional[tuple[str, ...]], option("[FILE.py:CLASS ...]", "none")] = ()
    """Rules of your own to add."""
    scale: Name = "demo"
    """Of what is added: demo (mnist1d on a CPU, three seeds), league (all of it; made for a GPU)."""
    block: Annotated[str, option("NAME", "add: A; show: all")] = ""
    """Which net and task: A (ResMLP, mnist1d); at scale league B, C, D (CIFAR-10), E2, E6 (Cora), too."""
    seeds: Annotated[tuple[str, ...], option("N | SEED SEED ...", "those of the block")] = ()
    """How many, or which; by default three at scale demo."""
    penalty: Annotated[float, option("λ", "none")] = 0.0
    """Add a second row under the residual penalty λ, as rules have whose local objective is unbounded (0.01)."""
    records: Folder = Path("results/league")
    """Records of the other rows."""
    out: Folder = Path("out/league")
    """Records, the table (league.md) and reporting cards of what is added go here; runs that are there are reused."""
    data_root: DataRoot = None
    training: HowToTrain = field(default_factory=HowToTrain)

    def run(self) -> None:
        if self.action == "add":
            self._add()
        else:
            self._show()

    def _show(self) -> None:
        from creditscope.paper.standings import count_missing, judge_block, rank
        from creditscope.paper.studies.league import SCALES
        from creditscope.record import load_records

        if self.rule:
            raise CreditscopeError(
                f"Expected no rule to show, but got {' '.join(self.rule)}. creditscope league add trains one."
            )
        blocks = SCALES["league"]
        chosen = [one_of("block of the league", self.block, blocks)] if self.block else list(blocks)
        problems: list[str] = []
        records = load_records(self.records, problems=problems) if self.records.exists() else []
        judged = {name: judge_block(blocks[name], records) for name in chosen}
        ranked = {name: rank(found) if found else [] for name, found in judged.items()}
        if not any(ranked.values()):
            raise CreditscopeError(
                f"Expected records of the league under {self.records}, but got none. creditscope fetch league gets "
                "them; --records names another folder."
            )
        say([HEAD.partition(";")[0]])
        for name, standings in ranked.items():
            missing, all_runs = count_missing(blocks[name], records)
            lacking = f", {missing} of {all_runs} runs not on record" if missing else ""
            say(["", f"{name}: {standings[0].found.setting if standings else 'nothing on record'}{lacking}"])
            print_standings(standings)
        say([f"note: {problem}" for problem in problems])

    def _add(self) -> None:
        from creditscope.auditing import audit
        from creditscope.auditing.card import write_cards
        from creditscope.paper.standings import ABOUT_COLUMNS, rank, write_block

        problems: list[str] = []
        specs = self._plan()
        others = self._find_others(problems)
        records = self._train(specs, others, problems)
        judged = audit([*others, *records])
        standings = rank(judged)
        say([HEAD, standings[0].found.setting])
        print_standings(standings, self.rule)
        lost = [f"{m.method}: diverged: {m.verdict.diverged}" for m in judged.methods if m.verdict.diverged]
        say([f"note: {problem}" for problem in (*problems, *judged.problems, *lost)])
        cards = [c for c, m in zip(judged.cards(), judged.groups, strict=True) if m.spec and m.spec.rule in self.rule]
        page = "\n\n".join([f"# {standings[0].found.setting}", write_block(standings, self.rule), ABOUT_COLUMNS]) + "\n"
        paths = [*write_whole({self.out / "league.md": page}), *write_cards(cards, self.out / "cards")]
        say([f"wrote {path}" for path in paths])

    def _block(self) -> "Block":
        from creditscope.paper.studies import choose_scale
        from creditscope.paper.studies.league import SCALES

        blocks = choose_scale(SCALES, self.scale)
        return blocks[one_of(f"block at scale {self.scale!r}", self.block or "A", blocks)]

    def _plan(self) -> "list[RunSpec]":
        """Every rule, its twin, BP and its twin; a rule's file is in its spec, so that an edited one is another run."""
        from creditscope.paper.studies import drop_repeated
        from creditscope.paper.studies._league import Row
        from creditscope.registry import RULES
        from creditscope.train.plan import choose_seeds, plan_run

        if not self.rule:
            raise CreditscopeError(
                "Expected a rule to add, but got none. Name its file and class: creditscope league add my_rule.py:Rule."
            )
        for rule in self.rule:
            if RULES.is_built_in(rule):
                raise CreditscopeError(
                    f"Expected a rule of your own as path/to/file.py:Class, but got {rule!r}, which is a built-in one. "
                    "creditscope league prints its rows."
                )
        block = self._block()
        seeds = choose_seeds(read_seeds(self.seeds)) if self.seeds else block.seeds
        penalties = (0.0, self.penalty) if self.penalty else (0.0,)
        rows = tuple(Row(rule, penalties=penalties, local=RULES.get(rule).local) for rule in dict.fromkeys(self.rule))
        wanted = replace(block, rows=rows, seeds=seeds).plan()
        return [plan_run(**one) for one in drop_repeated(wanted)]

    def _find_others(self, problems: list[str]) -> "list[Record]":
        """Shipped records of every block with the same recipe."""
        from creditscope.paper.standings import find_block
        from creditscope.paper.studies.league import SCALES
        from creditscope.record import load_records

        if not self.records.exists():
            problems.append(f"{self.records} is not there; creditscope fetch league gets the other rows.")
            return []
        records, recipe = load_records(self.records, problems=problems), self._block().recipe
        alike = [b for scale in SCALES.values() for b in scale.values() if b.recipe == recipe]
        return list({id(r): r for block in alike for r in find_block(block, records)}.values())

    def _train(self, specs: "Sequence[RunSpec]", others: "Sequence[Record]", problems: list[str]) -> "list[Record]":
        """What others have not; BP is not trained again on seeds that it has on record."""
        from creditscope.paper.studies import train_runs

        known = {(r.spec.rule, r.spec.penalty, r.spec.frozen, r.spec.seed) for r in others if r.spec}
        missing = [s for s in specs if (s.rule, s.penalty, s.frozen, s.seed) not in known]
        how = {"reused": len(specs) - len(missing), **self.training.options()}
        try:
            return train_runs(missing, self.out / "records", problems=problems, **how)
        except UnfinishedError:
            raise
        except CreditscopeError as error:  # some runs failed; rules that did not take their place
            trained = self._find_trained(missing)
            if not any(r.spec and r.spec.rule in self.rule and not r.spec.frozen for r in trained):
                raise
            problems.append(str(error))
            return trained

    def _find_trained(self, specs: "Sequence[RunSpec]") -> "list[Record]":
        from creditscope.record import load_records

        asked = {spec.digest() for spec in specs}
        found = load_records(self.out / "records", problems=[])
        return [r for r in found if r.spec and r.spec.digest() in asked and r.provenance.status != "running"]


def print_standings(standings: "Sequence[Standing]", own: Collection[str] = ()) -> None:
    """A line a row: its share, of how many seeds where these differ, and its strip; rules in `own` are marked."""
    from rich.text import Text

    from creditscope.auditing.printing import make_console
    from creditscope.auditing.show import draw_strips
    from creditscope.paper.standings import write_share

    console = make_console()
    marks = [OWN if one.rule in own else OTHERS for one in standings] if own else [""] * len(standings)
    seeds = [len(one.method.whole) for one in standings]
    told = [f"  n = {n}" * (len(set(seeds)) > 1) for n in seeds]
    shares = [write_share(one.share) for one in standings]
    most = max(map(len, shares), default=0)
    heads = [mark + share.ljust(most) + n for mark, share, n in zip(marks, shares, told, strict=True)]
    beside = max(map(len, heads), default=0) + 2
    drawn = draw_strips([one.found for one in standings], console.width - beside)
    for head, strip in zip(heads, drawn, strict=True):
        first, *more = strip.split("\n")
        style = "bold" if head.startswith(OWN) else ""
        console.print(Text.assemble((head.ljust(beside), style), first), soft_wrap=True)
        for line in more:
            console.print(Text.assemble(" " * beside, line), soft_wrap=True)
