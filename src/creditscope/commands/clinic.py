"""`creditscope clinic`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from creditscope.commands import register_command
from creditscope.commands._options import option, say
from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from creditscope.clinic.results import Result


@register_command("clinic")
@dataclass(frozen=True)
class Clinic:
    """Break nets in known ways, train them a little, and see whether the audit names each fault, and no healthy net.

    Exit code 1 if in either half it names less than 95 % of the faults first, or any healthy net.
    Example: creditscope clinic --only "detached, transformer"
    """

    only: Annotated[str, option("TEXT", "all")] = ""
    """Keep cases whose name or half holds every part of a list such as "detached, transformer"."""
    json: Annotated[Path | None, option("FILE", "none")] = None
    """Also write what was expected and what was said of every case."""
    seed: Annotated[int, option("N", "7")] = 7
    """Of weights, order of rows and dropout; the tables are of the first."""

    def run(self) -> None:
        from creditscope.clinic._patient import SEED
        from creditscope.clinic.results import tally

        token = SEED.set(self.seed)
        try:
            results = self._examine()
        finally:
            SEED.reset(token)
        if not all(count.fine for count in tally(results)):
            raise SystemExit(1)

    def _examine(self) -> "list[Result]":
        from creditscope.clinic.cases import CASES, HALVES
        from creditscope.clinic.examine import examine, is_available
        from creditscope.clinic.results import tally, to_json
        from creditscope.files import write_whole

        parts = [part.strip() for part in self.only.split(",") if part.strip()]
        chosen = [c for c in CASES if all(part in f"{c.name}, {HALVES[c.name]}" for part in parts)]
        if not chosen:
            raise CreditscopeError(f"Expected parts of the name of a case, but got {self.only!r}. See docs/clinic.md.")
        results: list[Result] = []
        for at, case in enumerate(chosen, 1):
            if not is_available(case):
                say([f"left out: {case.name}: needs {', '.join(case.needs)}"])
                continue
            found = examine(case, HALVES[case.name])
            results += found
            say([f"{at:>3}/{len(chosen)} {line(result)}" for result in found])
        say(["", *(count.line for count in tally(results))])
        if self.json:
            write_whole({self.json: to_json(results)})
            say([f"wrote {self.json}"])
        return results


def line(result: "Result") -> str:
    """What was said of a case; what is wrong with that comes first."""
    mark = "ok   " if result.right else "place" if result.named else "ALARM" if result.healthy else "MISS "
    said = f"{result.word} ({', '.join(result.codes)})" if result.codes else result.word
    where = f" at {result.where}" if result.where else ""
    wanted = "" if result.right or not result.expected else f"; expected {' or '.join(result.expected)}"
    places = f" at {', '.join(result.places)}" if wanted and result.places else ""
    when = f" ({result.when})" if result.healthy else ""
    return f"{mark} {result.name}{when}: {said}{where}{wanted}{places} [{result.seconds:.1f} s]"
