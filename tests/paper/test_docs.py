"""What README, the gallery and the page of studies say is what the shipped records say; links lead somewhere."""

import contextlib
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from documents import GALLERY, MANUAL, README, ROOT, assert_says, read_sizes
from pages import texts

from creditscope.auditing import MethodAudit
from creditscope.errors import CreditscopeError
from creditscope.paper.commands.figure import drawable
from creditscope.paper.figures import describe_figure
from creditscope.paper.figures._words import half_width
from creditscope.paper.published.compare import compare, compare_settings, tally
from creditscope.paper.published.findings import list_artefacts, size
from creditscope.paper.published.numbers import OURS, PUBLISHED, SAMPLE
from creditscope.paper.published.readings import RunFinder
from creditscope.paper.studies import collect, find_missing, resolve_study, study_on_record
from creditscope.paper.studies.rescaling import DerivedRecord
from creditscope.record import Record
from creditscope.registry import FIGURES, STUDIES

pytestmark = pytest.mark.slow

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

    def test_every_page_is_reached_from_readme(self):
        reached, ahead = set(), [PAGES[0]]
        while ahead:
            page = ahead.pop()
            reached.add(page)
            ahead += [file for file, _ in read_links(page) if file.suffix == ".md" and file not in reached]
        assert [page.name for page in PAGES if page not in reached] == []


@pytest.fixture(scope="module")
def records(shipped_records) -> list[Record]:
    return shipped_records


MAIN = "cifar10 · resmlp (depth 4, width 256) · 100 epochs"
"""ResMLP with a terminal LayerNorm."""


@pytest.fixture(scope="module")
def everything(shipped_audit) -> list[MethodAudit]:
    return list(shipped_audit.methods)


@pytest.fixture(scope="module")
def audited(everything) -> dict[str, MethodAudit]:
    return {method.method: method for method in everything if method.setting == MAIN}


@pytest.fixture(scope="module")
def methods(audited) -> dict[str, MethodAudit]:
    """Those with credit as it is."""
    return {name: method for name, method in audited.items() if ", norm " not in name}


@pytest.fixture(scope="module")
def finder(records) -> RunFinder:
    return RunFinder(records)


class TestReproductionTable:
    def test_counts(self, finder):
        found = tally([compare_settings(published, finder) for published in PUBLISHED])
        said = f"holds {len(PUBLISHED)} published numbers beside ours, {len(found.numbers)} of them like for like."
        assert said in " ".join(README.split())

    def test_backprop_is_near(self, finder):
        """The sentence speaks of four numbers."""
        entries = [p for p in PUBLISHED if p.accuracy and re.match("accuracy, BP", p.quantity)]
        assert [compare(p, p.reading(finder)).close for p in entries] == [True] * 4
        assert "BP is within 1.5 pp of all four published accuracies on CIFAR-10" in README

    def test_sizes(self, finder):
        published = next(p for p in PUBLISHED if p.quantity == "‖h_L‖, DFA")
        readings = (published.readings[name] for name in (OURS, SAMPLE))
        plain, normalised = (compare(published, reading(finder)).mean for reading in readings)
        said = (
            f"published as {published.said[0]}, is {size(plain)} without normalisation and {size(normalised)} with it"
        )
        assert said in " ".join(README.split())

    @pytest.mark.parametrize(
        ("bullet", "title"),
        [
            ("- Block FA's Γ counts", "A tap with exact credit in Γ"),
            ("- The zero gradients of a GCN", "Coupled weight decay"),
        ],
    )
    def test_artefacts(self, bullet, title, finder):
        """Every number of the sentence is one of that made from records, rounded."""
        said = " ".join(README[README.index(bullet) :].partition("\n- ")[0].partition("\n\n")[0].split())
        made = list_artefacts(finder, ())[title]
        numbers, counts = re.findall(r"(?<!\d)\.\d+", said), re.findall(r"\d+ of \d+", said)
        known = [float(n) for n in re.findall(r"\d+\.\d+", made)]
        assert len(numbers) >= 2
        assert [n for n in numbers if all(f"{value:.{len(n) - 1}f}" != f"0{n}" for value in known)] == []
        assert [count for count in counts if count not in made] == []


def read_section(name: str) -> str:
    """What the gallery says of a figure, without its image."""
    section = GALLERY.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    return " ".join(re.sub(r"!\[.*?\]\(.*?\)", "", section).split())


@pytest.fixture(scope="module")
def collected(records) -> dict[str, list[Record]]:
    """The shipped records by study."""
    shipped = ROOT / "results" / "paper"
    studies = {name: study_on_record(name, records) for name in drawable()}
    return {name: collect(study, shipped, records=records, train=False, problems=[]) for name, study in studies.items()}


@pytest.fixture(scope="module")
def figure_texts(collected) -> dict[str, str]:
    """All that each figure says, on its page and as text, drawn once from the shipped records."""
    found = {}
    for name, own in collected.items():
        plot = FIGURES.get(name)
        fig = plot(own)
        found[name] = " ".join(f"{texts(fig)} {describe_figure(plot, own)}".replace("\u00a0", " ").split())
        plt.close(fig)
    return found


def read_measured(title: str) -> str:
    """What the page of studies says was measured on the GPU, without where and how."""
    section = MANUAL.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    heads = [block.partition("):") for block in section.split("\n**Measured** (")[1:]]
    return " ".join(text.partition("\n\n**")[0] for head, _, text in heads if "NVIDIA H200" in head)


def list_means(own: list[Record]) -> list[float]:
    """By condition, over its seeds: accuracy, cosines, that of the deep taps, and the last tap's norms."""
    groups = defaultdict(list)
    for record in own:
        assert record.spec
        groups[str(replace(record.spec, seed=0))].append(record.last)
    found = []
    for group in groups.values():
        cos = np.array([last.taps.cos for last in group], dtype=float).mean(axis=0)
        tops = np.array([(last.taps.h_norm[-1], last.taps.g_norm[-1]) for last in group], dtype=float)
        found += [np.mean([last.accuracy for last in group]), *cos, cos[2:].mean(), *10 ** np.log10(tops).mean(axis=0)]
    return [abs(float(value)) for value in found]


JUDGED = {
    "audit_hero": [(MAIN, method) for method in ("BP", "block FA", "DFA")],
    "penalty_rescue": [
        (MAIN.replace("100", "30"), method) for method in ("BP, λ 0.01", "DFA", "DFA, λ 0.01", "DFA, λ 0.0001")
    ],
}
"""Figures of which the pages also give numbers of the audit, and of which methods."""


@pytest.fixture(scope="module")
def known_sizes(figure_texts, collected, methods, everything) -> dict[str, list[float]]:
    """The numbers that each figure says; of three, which draw numbers without saying them, those as well.

    Of some also those in the findings of the audit.
    """
    known = {name: [size for _, size, _ in read_sizes(text)] for name, text in figure_texts.items()}
    for name in ("audit_hero", "normalisation"):
        known[name] += list_means(collected[name])
    by_name = {(method.setting, method.method): method for method in everything}
    for name, chosen in JUDGED.items():
        said = [finding.message for each in chosen for finding in by_name[each].findings]
        known[name] += [size for message in said for _, size, _ in read_sizes(message.replace("+", ""))]
    shown = [methods[label] for label in ("BP", "block FA", "DFA")]
    known["audit_hero"] += [
        v for m in shown for v in (half_width(m.accuracy), m.gamma, m.gamma_inexact, *m.z) if v is not None
    ]
    for record in collected["rescaling"]:
        if isinstance(record, DerivedRecord):
            known["rescaling"] += [*list_means([record]), max(n for n in record.last.taps.g_noise if n is not None)]
    return known


def list_strange(said: list[tuple[str, float, float]], known: list[float]) -> list[str]:
    """The numbers of a text that are none of those known, rounded to the digits that they have there."""
    return [text for text, size, unit in said if all(abs(size - value) > 0.5001 * unit for value in known)]


class TestMeasured:
    """A number of the page of studies that was measured at full scale is among those of its figure; audits by cell."""

    @pytest.mark.parametrize(
        "names",
        [
            ("snapshot_resmlp", "snapshot_vit"),
            ("bp_bottleneck", "forward_magnitude"),
            *((name,) for name in ("cross_architecture", "bottleneck_controls", "graph_depth", "penalty_rescue")),
            *((name,) for name in ("audit_hero", "normalisation", "rescaling")),
        ],
        ids=lambda names: names[0],
    )
    def test_numbers(self, names, known_sizes):
        title = " and ".join(names) if names[0].startswith("snapshot") else names[0]
        said = read_sizes(read_measured(title))
        assert list_strange(said, [size for name in names for size in known_sizes[name]]) == []
        assert len(said) > 12

    def test_first_epochs_and_descent(self, audited):
        fired, said = audited["DFA"].verdict.fired, " ".join(MANUAL.split())
        assert (fired["CS005"], fired["CS006"], fired["CS001"]) == ("epoch 1", "epoch 2", "epoch 3–18")
        assert "CS005 fires from epoch 1, CS006 from epoch 2 and CS001 from epoch 3 to 18" in said
        numbers = re.findall(r"relative descent at taps 0 to 4 is (.*?)\. Its", said)
        assert_says(numbers[0], *(tap.descent.mean for tap in audited["DFA"].per_tap))


class TestStudies:
    """The table of studies holds the runs that they want."""

    @pytest.mark.parametrize("name", STUDIES.names())
    def test_runs(self, name):
        row = re.search(rf"^\| `{name}` \|.*\| (.+) \| (.+) \|$", MANUAL, re.MULTILINE)
        assert row
        if name == "forward_magnitude":
            assert STUDIES.get(name)("paper").runs == STUDIES.get("bp_bottleneck")("paper").runs
            assert row.groups() == ("the same", "the same")
            return
        for scale, said in zip(("demo", "paper"), row.groups(), strict=True):
            if said == "–":
                with pytest.raises(CreditscopeError):
                    resolve_study(name, scale)
            else:
                assert int(said.replace(",", "")) == len(resolve_study(name, scale).runs)

    def test_all_is_on_record(self, records):
        for name in STUDIES.names():
            with contextlib.suppress(CreditscopeError):
                assert find_missing(resolve_study(name, "paper"), records, whole=True) == [], name
        assert f"those of `paper` are {len(records):,}, all in `results/paper`" in " ".join(MANUAL.split())
        assert {record.provenance.device for record in records} == {"cuda (NVIDIA H200)"}

    def test_reproduction(self):
        small, large = (len(resolve_study("reproduction", scale).runs) for scale in ("demo", "paper"))
        said = " ".join(MANUAL.partition("\n## reproduction\n")[2].split())
        assert f"{small} at scale `demo`, seeds 42, 123, 456, and {large} at scale `paper`" in said


SPREADS = {
    **dict.fromkeys(("graph_depth", "bottleneck_controls", "normalisation"), "95 % t interval"),
    **dict.fromkeys(("bp_bottleneck", "forward_magnitude"), "quartiles over seeds"),
}
"""What bars and bands are; ± sd in the others."""


class TestGallery:
    @pytest.mark.parametrize("name", drawable())
    def test_a_figure_says_what_its_bars_are(self, name, figure_texts):
        assert SPREADS.get(name, "± sd") in figure_texts[name]

    @pytest.mark.parametrize("name", drawable())
    def test_every_number_is_one_of_the_figure(self, name, known_sizes):
        said = read_sizes(read_section(name))
        assert list_strange(said, known_sizes[name]) == []
        assert len(said) > 3

    @pytest.mark.parametrize("name", drawable())
    def test_epochs_are_those_of_the_figure(self, name, figure_texts):
        spans = re.findall(r"epoch (\d+) (?:to|or) (\d+)", read_section(name))
        assert [span for span in spans if f"epoch {'–'.join(span)}" not in figure_texts[name]] == []
        assert len(spans) == {"snapshot_resmlp": 2, "snapshot_vit": 1}.get(name, 0)

    @pytest.mark.parametrize("name", drawable())
    def test_every_figure_has_its_section_and_image(self, name):
        assert f"](images/{name}.png)" in GALLERY
        assert len(read_section(name).split()) > 25
        assert (IMAGES / f"{name}.png").is_file()

    def test_numbers_are_read_as_they_are_written(self):
        """Labels, subscripts and names of formats are none."""
        said = "1.4·10⁸-fold, 10⁻²⁸, .442, 1,000 rows; 2.0e-3, 14–72, CIFAR-10, float64, H₁₇ and N=8."
        sizes = [1.4e8, 1e-28, 0.442, 1000, 2e-3, 14, 72, 8]
        assert [size for _, size, _ in read_sizes(said)] == pytest.approx(sizes)
        assert [unit for *_, unit in read_sizes(said)[:4]] == pytest.approx([1e7, 1e-28, 1e-3, 1])

    def test_nothing_else_and_not_too_large(self):
        assert re.findall(r"^## (\w+)$", GALLERY, re.MULTILINE) == [
            *dict.fromkeys(re.findall(r"images/(\w+)\.png", GALLERY))
        ]
        images = list(IMAGES.glob("*.png"))
        assert {path.stem for path in images if not path.stem.startswith("report")} == set(drawable())
        assert sum(path.stat().st_size for path in images) <= ALL_IMAGES
