"""Figures on paper: letters that can be read at the width at which they are printed, panels, captions and formats."""

import ctypes
import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pypdfium2
import pytest
from colours import distance
from drawn import head
from matplotlib.figure import Figure
from matplotlib.text import Text
from pages import assert_clear, texts
from PIL import Image
from pypdfium2 import raw

from creditscope.errors import CreditscopeError
from creditscope.paper.commands.figure import Figure as FigureCommand
from creditscope.paper.commands.figure import drawable
from creditscope.paper.figures import draw_figure, graph_rules
from creditscope.paper.figures._graphs import STARTS
from creditscope.paper.figures._layout import Page, Panel, draw_page, grey_key
from creditscope.paper.studies import collect, resolve_study, shipped_scale
from creditscope.plots import save_figure
from creditscope.registry import FIGURES
from creditscope.rule_styles import LOOKS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SHIPPED, IMAGES = ROOT / "results" / "paper", ROOT / "docs" / "images"
LEAST = 7.0
"""Points, at the final width."""


@pytest.fixture(scope="module")
def shipped(shipped_records, league_records):
    """The records of a study, by its name."""
    records = {"paper": shipped_records, "league": league_records}

    def of(name):
        scale = shipped_scale(name)
        return collect(resolve_study(name, scale), SHIPPED, records=records[scale], train=False, problems=[])

    return of


def font_sizes(pdf: bytes) -> tuple[float, dict[str, float]]:
    """Width of the page in inches, and points of every piece of text on it."""
    with closing(pypdfium2.PdfDocument(pdf)) as document:
        page, found = document[0], {}
        written = page.get_textpage()
        for thing in page.get_objects(filter=[raw.FPDF_PAGEOBJ_TEXT], max_depth=5):
            size, matrix = ctypes.c_float(), thing.get_matrix()
            raw.FPDFTextObj_GetFontSize(thing.raw, size)
            box = thing.get_bounds()
            found[f"{written.get_text_bounded(*box)} {box}"] = size.value * math.hypot(matrix.c, matrix.d)
        return page.get_width() / 72, found


@pytest.mark.parametrize("name", drawable())
def test_letters_can_be_read_at_the_final_width_and_nothing_touches(name, shipped, tmp_path):
    records = shipped(name)
    for width in (5.5, 3.25):
        fig, _ = draw_figure(FIGURES.get(name), records, page=Page(width=width))
        (pdf,) = save_figure(fig, tmp_path, name, formats=["pdf"])
        wide, sizes = font_sizes(pdf.read_bytes())
        assert wide == pytest.approx(width)
        assert len(sizes) > 20
        assert min(sizes.values()) >= LEAST - 0.01, min(sizes, key=sizes.__getitem__)
        assert fig.get_size_inches()[1] < 9  # a page of a paper
        assert not [t for t in fig.findobj(Text) if isinstance(t, Text) and "$" in t.get_text()]  # scripts are smaller
        assert not [t for t in fig.findobj(Text) if isinstance(t, Text) and t.get_gid() == "caption"]
        assert_clear(fig)


def test_small_letters_would_be_found(tmp_path):
    fig = Figure(figsize=(3, 1))
    fig.text(0.1, 0.5, "large", size=9)
    fig.text(0.6, 0.5, "small", size=5)
    _, sizes = font_sizes(save_figure(fig, tmp_path, "own", formats=["pdf"])[0].read_bytes())
    assert sorted(round(size, 2) for size in sizes.values()) == [5, 9]


class TestPage:
    @staticmethod
    def draw(page: Page, **how) -> Figure:
        panels = [Panel(f"finding {i}", lambda ax: ax.plot([1, 2], gid="mark"), least=1.7) for i in range(3)]
        return draw_page(page, panels, keys=lambda drawn: [grey_key("a mark")] * ("mark" in drawn), **how)

    @pytest.mark.parametrize(("width", "columns"), [(5.5, 3), (5.0, 1), (3.25, 1)])
    def test_panels_stand_in_rows_that_are_all_full(self, width, columns):
        fig = self.draw(Page(width=width))
        left = {round(ax.get_position().x0, 2) for ax in fig.axes}
        assert len(left) == columns
        assert [head(ax) for ax in fig.axes] == [("A", "finding 0"), ("B", "finding 1"), ("C", "finding 2")]
        assert_clear(fig)

    def test_panels_are_chosen_by_their_letters_and_keep_them(self):
        top = Panel("", lambda ax: ax.text(0, 0, "above"), height=0.5)
        fig = self.draw(Page(panels=("A", "C")), top=top)
        assert [head(ax)[0] for ax in fig.axes] == ["A", "C"]
        assert len(self.draw(Page(), top=top).axes) == 4
        with pytest.raises(CreditscopeError, match=r"panels among A, B, C, but got D"):
            self.draw(Page(panels=("A", "D")))
        with pytest.raises(CreditscopeError, match=r"from 2 in on, but got 0.5"):
            self.draw(Page(width=0.5))

    def test_long_titles_are_wrapped_and_begin_on_one_line(self):
        long = "a finding of so many words that no panel has a line of that length to write it on"
        fig = draw_page(Page(), [Panel(text, lambda ax: None) for text in (long, "short", "short")])
        assert_clear(fig)
        letters = [text for ax in fig.axes for text in ax.texts if text.get_gid() == "letter"]
        assert np.ptp([letter.get_window_extent().y0 for letter in letters]) < 1
        assert head(fig.axes[0])[1] == long

    def test_one_key_for_the_marks_that_are_drawn(self):
        fig = self.draw(Page())
        keys = [text.get_text() for own in fig.subfigs for key in own.legends for text in key.get_texts()]
        assert keys == ["a mark"]


class TestCommand:
    def test_width_panels_captions_and_formats(self, tmp_path):
        how = {"width": 3.25, "panels": "b", "captions": True, "format": "svg,pdf", "train": False}
        FigureCommand("forward_magnitude", SHIPPED, out=tmp_path, **how).run()
        assert {path.suffix for path in tmp_path.iterdir()} == {".svg", ".pdf", ".md", ".tex"}
        assert "(forward_magnitude.svg)" in (tmp_path / "forward_magnitude.md").read_text(encoding="utf-8")
        wide, sizes = font_sizes((tmp_path / "forward_magnitude.pdf").read_bytes())
        assert wide == pytest.approx(3.25)
        words = " ".join(sizes)
        assert "by that of" in words
        assert "quartiles" not in words  # that is A's
        assert min(sizes.values()) >= LEAST - 0.01
        first = (tmp_path / "forward_magnitude.svg").read_bytes()
        FigureCommand("forward_magnitude", SHIPPED, out=tmp_path, **how).run()
        assert (tmp_path / "forward_magnitude.svg").read_bytes() == first

    def test_statements_are_those_of_the_panels(self, shipped):
        records = shipped("rescaling")
        _, all_ = draw_figure(FIGURES.get("rescaling"), records)
        fig, some = draw_figure(FIGURES.get("rescaling"), records, page=Page(panels=("A",)), caption=True)
        assert {s.panel for s in all_.statements} == {"A", "B", "C"}
        assert {s.panel for s in some.statements} == {"A"}
        assert len(fig.axes) == 1
        assert some.reading[:60] in texts(fig)
        assert [letter for letter in "ABC" if f" {letter}: " in all_.reading] == ["A", "B", "C"]
        assert [letter for letter in "ABC" if f" {letter}: " in some.reading] == ["A"]
        assert_clear(fig)

    @pytest.mark.parametrize(
        ("how", "said"),
        [
            ({"name": "audit_hero", "format": "bmp"}, "formats among png, pdf, svg, gif, but got 'bmp'"),
            ({"name": "audit_hero", "format": "gif"}, "a figure that moves for a gif"),
            ({"name": "audit_hero", "format": ""}, "but got none"),
            ({"name": "all", "panels": "A"}, "Name one figure"),
            ({"name": "own", "width": 3.0}, "Name one figure"),
        ],
    )
    def test_what_cannot_be_done_is_refused_before_anything_is(self, how, said, tmp_path):
        with pytest.raises(CreditscopeError, match=said):
            FigureCommand(**how, out=tmp_path / "out").run()
        assert not (tmp_path / "out").exists()

    def test_a_figure_of_another_package_may_know_no_pages(self):
        def plot_mine(records):
            return Figure()

        assert isinstance(draw_figure(plot_mine, [])[0], Figure)
        with pytest.raises(CreditscopeError, match="plot_mine takes no page"):
            draw_figure(plot_mine, [], page=Page(width=3.25))


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("audit_hero", ("bp", "block_fa", "dfa")),
        ("cross_architecture", ("bp", "fa", "dfa")),
        ("penalty_rescue", ("bp", "dfa")),
        ("graph_depth", ("bp", "dfa", "dfa_gnn", "grape", "kaft")),
        ("graph_rules", ("bp", "dfa", "dfa_gnn", "grape", "kaft")),
    ],
)
def test_images_of_the_pages_keep_the_colours_of_rules(name, rules):
    with Image.open(IMAGES / f"{name}.png") as image:
        counts = image.convert("RGB").getcolors(1 << 24) or []
    pixels = {"#{:02x}{:02x}{:02x}".format(*colour): count for count, colour in counts}
    assert all(pixels.get(LOOKS[rule].colour, 0) > 50 for rule in rules)


def test_cells_above_and_below_are_told_apart_in_grey():
    above, below = (graph_rules.TINTS[way] for way in ("above", "below"))
    assert distance(above, below, "grey") > 10
    starts = [colour for _, _, colour in STARTS.values()]
    near = [distance(a, b, "deuteranopia") for i, a in enumerate(starts) for b in starts[:i]]
    assert min(near) > 12
