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
