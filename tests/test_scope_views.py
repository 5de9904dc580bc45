"""Scopes have what runs have: named axes, a long table, and a picture in notebooks."""

import pytest
import torch
from torch import nn

import creditscope as cs
from creditscope.errors import CreditscopeError


@pytest.fixture
def scope(own_stream):
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    return cs.watch(model, taps="1", stem="0")


def take(scope, epochs: int) -> None:
    x, y = torch.randn(20, 4), torch.arange(20) % 3
    for epoch in range(epochs):
        scope.snapshot(x, y, epoch=epoch, tier="quick")


def test_table_has_the_numbers_of_the_snapshots(scope):
    take(scope, 3)
    found = scope.to_xarray()
    assert dict(found.sizes) == {"rule": 1, "seed": 1, "epoch": 3, "tap": 2}
    assert found.tap.values.tolist() == ["0", "1"]
    for snapshot in scope.snapshots:
        own = found.isel(rule=0, seed=0).sel(epoch=snapshot.epoch)
        assert own.g_norm.values.tolist() == list(snapshot.taps.g_norm)
        assert float(own.loss) == snapshot.loss
    frame = scope.frame()
    assert len(frame) == 3 * 2
    assert frame.query("epoch == 2 and tap == '1'").h_norm.tolist() == [scope.snapshots[2].taps.h_norm[1]]


def test_nothing_to_view_without_a_snapshot(scope):
    with pytest.raises(CreditscopeError, match="at least one snapshot"):
        scope.frame()
    assert repr(scope) in scope._repr_html_()


def test_picture_is_that_of_its_audit(scope):
    take(scope, 3)
    picture, audit = scope._repr_html_(), scope.audit()
    assert audit.methods[0].verdict.word in picture
    assert picture.count("<svg") == audit._repr_html_().count("<svg") == 2  # sizes of states and gradients
    assert scope._repr_html_() == picture
    assert len(scope.snapshots) == 3


def test_snapshots_by_step_have_an_axis_of_steps(scope):
    """Epochs alone would make one moment of them."""
    x, y = torch.randn(20, 4), torch.arange(20) % 3
    for step in (0, 10, 25, 60):
        scope.snapshot(x, y, step=step, tier="quick")
    found = scope.to_xarray()
    assert found.step.values.tolist() == [0, 10, 25, 60]
    assert found.g_norm.sel(step=25, tap="1").item() == scope.snapshots[2].taps.g_norm[1]
    assert scope.frame().step.nunique() == 4
    assert "layers over steps" in scope._repr_html_()
    figure = scope.plot()
    assert "step" in {ax.get_xlabel() for ax in figure.axes}


def test_steps_that_begin_anew_are_counted(scope):
    """Neither epoch nor step goes forward: each snapshot is one more."""
    x, y = torch.randn(20, 4), torch.arange(20) % 3
    for epoch, step in ((0, 0), (0, 5), (1, 0), (1, 5)):
        scope.snapshot(x, y, epoch=epoch, step=step, tier="quick")
    assert scope.to_xarray().snapshot.values.tolist() == [0, 1, 2, 3]
    assert [(s.epoch, s.step) for s in scope.snapshots] == [(0, 0), (0, 5), (1, 0), (1, 5)]
