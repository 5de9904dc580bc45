"""Pages are what one command makes of records, classes and docstrings; links lead somewhere."""

import contextlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from documents import GALLERY, MANUAL, ROOT, assert_says, load_script, read_table
from drawn import head
from PIL import Image
from scipy.stats import t as student_t

from creditscope.auditing.checks import all_checks
from creditscope.errors import CreditscopeError
from creditscope.paper.commands.figure import drawable
from creditscope.paper.figures.fading import film
from creditscope.paper.studies import collect, find_missing, resolve_study
from creditscope.record import Record
from creditscope.registry import STUDIES

pytestmark = pytest.mark.slow

sys.path.insert(0, str(ROOT / "docs"))
SCRIPT = load_script(ROOT / "docs" / "make.py")
IMAGES = ROOT / "docs" / "images"
ALL_IMAGES = 3_000_000
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read_links(page: Path) -> list[tuple[Path, str]]:
    """The files that a page links to, and the headings in them; code and addresses aside."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = [target.partition("#") for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    return [((page.parent / file).resolve() if file else page, heading) for file, _, heading in found]


def list_anchors(page: Path) -> set[str]:
    """Headings as they are linked to."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


class TestLinks:
    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
    def test_lead_somewhere(self, page):
        links = read_links(page)
        assert [str(file) for file, _ in links if not file.exists()] == []
        assert [(file.name, heading) for file, heading in links if heading and heading not in list_anchors(file)] == []

    def test_every_page_is_reached_from_readme_or_the_first_page(self):
        reached, ahead = set(), [PAGES[0], ROOT / "docs" / "index.md"]
        while ahead:
            page = ahead.pop()
            reached.add(page)
            ahead += [file for file, _ in read_links(page) if file.suffix == ".md" and file not in reached]
        assert [page.name for page in PAGES if page not in reached] == []


@pytest.fixture(scope="module")
def records(shipped_records) -> list[Record]:
    return shipped_records


def of_setting(records: list[Record], rule: str) -> list[Record]:
    """Plain runs of ResMLP on CIFAR-10."""
    wanted = {"task": "cifar10", "net": "resmlp", "rule": rule, "epochs": 100, "frozen": False, "penalty": 0.0}
    wanted |= {
        "targets": "true",
        "credit_norm": "none",
        "net_options": {"depth": 4, "width": 256, "terminal_norm": True},
    }
    found = [r for r in records if r.spec and not r.facts.rule.variant]
    return [r for r in found if all(getattr(r.spec, name) == value for name, value in wanted.items())]


class TestMade:
    def test_what_is_made_is_what_is_committed(self, records, shipped_audit):
        made = dict(SCRIPT.make_pages(SCRIPT.Shipped(records, shipped_audit.methods)))
        other = [path.name for path, text in made.items() if not path.is_file() or path.read_text("utf-8") != text]
        assert other == [], "Expected these pages as made by make docs."
        assert {path.stem for path in made if path.parent == IMAGES} == set(drawable())

    def test_every_part_stands_somewhere(self):
        text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
        assert set(re.findall(r"<!-- made: (\w+)", text)) == set(SCRIPT.PARTS)

    def test_an_accuracy_by_hand(self, records):
        own = [r.last.accuracy for r in of_setting(records, "fa")]
        [row] = [row for row in read_table("| rule | seeds |", MANUAL) if row["rule"] == "FA"]
        half = student_t.ppf(0.975, len(own) - 1) * np.std(own, ddof=1) / len(own) ** 0.5
        assert int(row["seeds"]) == len(own) == 20
        assert_says(row["accuracy"], float(np.mean(own)), half)

    def test_a_deep_graph_by_hand(self, records):
        own = [
            r.last.accuracy
            for r in records
            if r.spec and (r.spec.task, r.spec.rule, r.spec.epochs, r.spec.frozen) == ("pubmed", "kaft", 100, False)
            if r.spec.net_options["depth"] == 10
        ]
        rows = [row for row in read_table("| method | 2 |", MANUAL) if row["method"] == "KAFT"]
        assert len(own) == 5
        assert_says(rows[2]["10"], float(np.mean(own)))

    @pytest.mark.parametrize(
        ("value", "said"), [(0.967, ".967"), (903.2, "903"), (8811.0, "8.8·10³"), (4.56e-6, "4.6·10⁻⁶"), (None, "–")]
    )
    def test_sizes(self, value, said):
        assert SCRIPT._size(value) == said


def test_all_runs_of_the_studies_are_on_record(records):
    for name in STUDIES.names():
        with contextlib.suppress(CreditscopeError):
            assert find_missing(resolve_study(name, "paper"), records, whole=True) == [], name
    assert {record.provenance.device for record in records} == {"cuda (NVIDIA H200)"}


class TestGallery:
    @pytest.mark.parametrize("name", drawable())
    def test_a_figure_has_its_section_image_and_numbers(self, name):
        section = GALLERY.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"](images/{name}.png)" in section
        assert f"](images/{name}.md)" in section
        assert len(section.split()) > 25
        assert (IMAGES / f"{name}.png").is_file()

    def test_nothing_else_and_not_too_large(self):
        images = list(IMAGES.glob("*.png"))
        assert {path.stem for path in images if not path.stem.startswith("report")} == set(drawable())
        assert sum(path.stat().st_size for path in images) <= ALL_IMAGES

    def test_the_film_is_that_of_the_records(self, records):
        """As many frames as epochs that all runs have; what README and gallery say of it is its title."""
        study = resolve_study("fading", "paper")
        made = film(collect(study, ROOT / "results" / "paper", records=records, train=False, problems=[]))
        shipped = IMAGES / "fading.gif"
        with Image.open(shipped) as gif:
            assert getattr(gif, "n_frames", 1) == made.moments == 15
        assert shipped.stat().st_size <= 500_000
        assert head(made.figure.axes[1])[1] == "DFA: h₂–h₄ never leave one run's band"


class TestCheckPictures:
    """Of rules; those of networks are in tests/clinic."""

    def test_what_is_drawn_of_runs_is_what_the_check_says(self, records):
        examples = load_script(ROOT / "docs" / "check_examples.py")
        methods = examples.find_methods(records)
        for code, check in ((check.code, check) for check in all_checks() if not check.network):
            fires, passes = examples.make_examples(code, methods)
            assert fires.finding.outcome == ("tip" if check.advisory else "issue"), code
            assert passes.finding.outcome == "passed", code
            assert any(mark.fired for mark in fires.marks), code
            assert not any(mark.fired for mark in passes.marks), code

    def test_some_numbers_by_hand(self, records):
        """DFA of CIFAR-10: the cosines of the last three taps, the lower of both means, are under δ."""
        examples = load_script(ROOT / "docs" / "check_examples.py")
        fires, _ = examples.make_examples("CS005", examples.find_methods(records))
        own = of_setting(records, "dfa")
        means = [min(np.mean([getattr(r.last.taps, n)[tap] for r in own]) for n in ("cos", "cos_F")) for tap in (2, 3)]
        assert [mark.value for mark in fires.marks if mark.place in ("h₂", "h₃")] == pytest.approx(means)
        assert [mark.place for mark in fires.marks if mark.fired] == ["h₂", "h₃", "h₄"]
