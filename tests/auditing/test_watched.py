"""Audits of watched models: what people whose own deep network does not train read first."""

import torch
from torch import Tensor, nn

import creditscope as cs


class Block(nn.Module):
    """h + ReLU(W h), cut off from what lies below where asked."""

    def __init__(self, *, cut: bool):
        super().__init__()
        self.linear, self.cut = nn.Linear(16, 16), cut

    def forward(self, h: Tensor) -> Tensor:
        h = h.detach() if self.cut else h
        return h + torch.relu(self.linear(h))


def watch(*, cut: bool = False, spoil: float = 1.0):
    """One audit of four blocks before any training; the weights of block 1 are multiplied by `spoil`."""
    torch.manual_seed(0)
    blocks = [Block(cut=cut and i == 2) for i in range(4)]
    model = nn.Sequential(nn.Linear(8, 16), *blocks, nn.Linear(16, 3))
    with torch.no_grad():
        blocks[1].linear.weight.mul_(spoil)
    scope = cs.watch(model, stem="0", taps=["1", "2", "3", "4"])
    scope.snapshot(torch.randn(120, 8), torch.randint(3, (120,)), epoch=7)
    return scope.audit()


def test_whole_streams_carry_credit_and_cut_ones_leave_it_open():
    (whole,), (cut,) = watch().methods, watch(cut=True).methods
    assert whole.verdict.lines[1].answer == "yes"
    assert cut.verdict.lines[1].answer == "not measured"
    assert "taps 0, 1, 2" in cut.verdict.lines[1].reason
    assert (whole.verdict.word, whole.verdict.lines[2].answer) == ("not measured", "not measured")  # of depth


def test_every_tap_has_its_sizes():
    found = watch()
    lines = [line.split() for line in str(found).splitlines() if line.strip().startswith("tap ")]
    (method,) = found.methods
    assert [line[:3] for line in lines] == [["tap", f"{i}", f"{i}"] for i in range(5)]
    assert [float(line[-1]) for line in lines] == [
        float(f"{tap.g_norm.mean:.2g}") for tap in method.per_tap if tap.g_norm
    ]


def test_a_state_that_is_no_number_is_said_with_its_tap_and_epoch():
    found = watch(spoil=float("nan"))
    said = found.methods[0].verdict.diverged
    assert ("tap 2 (2)" in said, said.endswith("epoch 7"), f"Diverged: {said}" in str(found)) == (True, True, True)
    assert "float64" not in str(found)  # no remedy of a check helps a net that has diverged
