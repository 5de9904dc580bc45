"""The film of FA and DFA over training: every moment is what the records hold then, and titles are true of them."""

from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from builders import make_facts, make_record, make_snapshot
from drawn import head, line, lines, reach, stated
from matplotlib.figure import Figure
from pages import assert_clear
from PIL import Image

from creditscope.errors import CreditscopeError
from creditscope.paper.figures.fading import describe, film, find_titles, plot_fading, select
from creditscope.plots import save_figure
from creditscope.plots._film import DPI
from creditscope.record import Record

pytestmark = pytest.mark.slow

SEEDS, EPOCHS, SD = (1, 2, 3), (0, 1, 4), 0.02
BAND = 1.96 * SD
COS = {
    "fa": ((0.0,) * 5, (0.2,) * 5, (0.3,) * 5),
    "dfa": ((0.0,) * 5, (0.3, 0.2, 0.02, 0.1, 0.0), (0.4, 0.3, 0.03, 0, 0.01)),
}
ACCURACY = {"fa": (0.1, 0.4, 0.5), "dfa": (0.1, 0.33, 0.34)}


def make_runs(**changed) -> list[Record]:
    """Seeds differ by .01 in all; `changed` are the cosines of a rule."""
    found, courses = [], COS | changed
    for rule, course in courses.items():
        for seed in SEEDS:
            off = 0.01 * (seed - 2)
            shots = [
                make_snapshot(
                    make_facts(rule=rule),
                    epoch=epoch,
                    accuracy=ACCURACY[rule][i] + off,
                    taps={"cos": tuple(c + off for c in course[i]), "null_sd": SD},
                )
                for i, epoch in enumerate(EPOCHS)
            ]
            found.append(make_record(rule=rule, seed=seed, snapshots=shots, epochs=4))
    return found


def test_every_moment_is_what_the_records_hold_then():
    made = film(make_runs())
    accuracy, taps = made.figure.axes
    for moment in (2, 0, 1):  # in any order
        made.show(moment)
        assert line(accuracy, "DFA mean") == pytest.approx(np.array([EPOCHS, ACCURACY["dfa"]])[:, : moment + 1])
        assert [y[-1] for _, y in lines(accuracy, "FA seed")] == pytest.approx(
            [ACCURACY["fa"][moment] + off for off in (-0.01, 0, 0.01)]
        )
        assert line(taps, "DFA filled")[1] == pytest.approx(COS["dfa"][moment])
        assert [text.get_text() for text in accuracy.texts if text.get_gid() == "epoch"] == [f"epoch {EPOCHS[moment]}"]
        bars = [bar for bar in taps.patches if bar.get_gid() == "null"]
        assert [bar.get_y() for bar in bars] == pytest.approx([-BAND] * 5, abs=1e-4)
        assert [bar.get_height() for bar in bars] == pytest.approx([2 * BAND] * 5, abs=1e-4)


def test_titles_are_true_of_the_data():
    """h₃ left the band once, so only h₂ and h₄ never did; where none stays, it is said who ends there."""
    fig = plot_fading(make_runs())
    assert_clear(fig)
    assert [head(ax)[1] for ax in fig.axes] == [
        "DFA: accuracy .33 after 1 epoch, .34 after 4",
        "DFA: h₂, h₄ never leave one run's band",
    ]
    back = find_titles(select(make_runs(dfa=((0.0,) * 5, (0.3,) * 5, (0.3, 0.3, 0.3, 0.01, 0.02))))[1])
    assert back["taps"] == "DFA: h₃, h₄ end in one run's band"
    for told in (COS["fa"], ((0.0,) * 5, (-0.3,) * 5, (-0.3,) * 5)):  # opposed is not chance either
        assert "band" not in find_titles(select(make_runs(dfa=told))[1])["taps"]


def test_it_states_ends_and_how_long_taps_were_within_the_band():
    said = stated(describe(make_runs()))
    assert said["accuracy after 1 epoch", "DFA"].value.mean == pytest.approx(0.33)
    last = said["cosine at h₁", "DFA"].value
    assert (last.mean, last.high - last.mean) == pytest.approx((0.3, reach([0.29, 0.3, 0.31])))
    assert said["h₃ within the band", "DFA"].value == "1 of 2 epochs"
    assert said["h₁ within the band", "FA"].value == "0 of 2 epochs"


def test_a_film_is_written_as_a_gif_whose_last_frame_stays(tmp_path):
    made = film(make_runs())
    save_figure(made.figure, tmp_path, "mine", formats=("gif",), film=made)
    with Image.open(BytesIO((tmp_path / "mine.gif").read_bytes())) as gif:
        assert gif.size[0] == round(5.5 * DPI)
        times, frames = [], []
        for moment in range(gif.n_frames):
            gif.seek(moment)
            times.append(gif.info["duration"])
            frames.append(np.asarray(gif.convert("RGB")))
    assert len(frames) == len(EPOCHS)
    assert times[-1] > 5 * times[0]
    assert all((one != other).any() for one, other in pairwise(frames))
    assert tuple(frames[-1][0, -1]) == (255, 255, 255)


def test_what_does_not_move_is_no_film(tmp_path):
    with pytest.raises(CreditscopeError, match="moves"):
        save_figure(Figure(), tmp_path, "mine", formats=("gif",))
    assert list(tmp_path.iterdir()) == []


def test_one_rule_alone_is_drawn_and_the_other_named_as_missing():
    alone = [record for record in make_runs() if record.spec.rule == "dfa"]
    assert describe(alone).gaps == ("fa: not on record",)
    assert len(lines(plot_fading(alone).axes[0], "DFA seed")) == len(SEEDS)
