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


def watch(*, cut: bool = False, spoil: float = 1.0, **options):
    """One scope on four blocks before any training; the weights of block 1 are multiplied by `spoil`."""
    torch.manual_seed(0)
    blocks = [Block(cut=cut and i == 2) for i in range(4)]
    model = nn.Sequential(nn.Linear(8, 16), *blocks, nn.Linear(16, 3))
    with torch.no_grad():
        blocks[1].linear.weight.mul_(spoil)
    scope = cs.watch(model, stem="0", taps=["1", "2", "3", "4"], **options)
    scope.snapshot(torch.randn(120, 8), torch.randint(3, (120,)), epoch=7)
    return scope


def test_a_network_has_words_of_its_own_and_a_rule_keeps_its():
    (whole,), (cut,) = watch().audit().methods, watch(cut=True).audit().methods
    assert (whole.verdict.word, whole.verdict.codes) == ("healthy", ())
    assert (cut.verdict.word, cut.verdict.codes[0]) == ("ill", "CS103")
    (rule,) = watch(rule="dfa").audit().methods
    assert (rule.network, rule.verdict.word, rule.findings[0].code) == (False, "not measured", "CS001")


def test_nothing_of_a_rule_is_printed_of_a_network():
    said = str(watch().audit())
    assert "healthy" in said
    assert [word for word in ("Γ", "cos", "frozen", "credit") if word in said] == []


def test_every_layer_has_its_line_with_its_numbers():
    found = watch().audit()
    (method,) = found.methods
    lines = {line.split()[0]: line.split() for line in str(found).splitlines() if " Linear " in line}
    assert list(lines) == ["0", "1.linear", "2.linear", "3.linear", "4.linear", "5"] == [m.name for m in method.modules]
    assert [f"{row.rms:.2g}" for row in method.modules] == [lines[row.name][2] for row in method.modules]
    assert max(row.gradient for row in method.modules) == 1


def test_a_state_that_is_no_number_is_said_with_its_module_and_epoch():
    (method,) = watch(spoil=float("nan")).audit().methods
    (finding,) = [f for f in method.findings if f.code == "CS102"]
    assert (method.verdict.codes[0], finding.where) == ("CS102", "2.linear")
    assert "epoch 7" in finding.message


def test_records_give_the_same_as_the_scope(tmp_path):
    scope = watch(cut=True)
    (kept,) = cs.audit(scope.save(tmp_path / "mine")).methods
    (there,) = scope.audit().methods
    assert (kept.verdict, kept.modules, kept.setting) == (there.verdict, there.modules, "network mine")


def test_strict_sensitivity_decisions_and_cards_know_networks():
    ill, healthy = watch(cut=True).audit(), watch().audit()
    assert ("CS103" in ill.failures()[0], healthy.failures()) == (True, [])
    assert ill.sensitivity("vanishing")["vanishing"].low is None  # a cut path is cut at any threshold
    assert {row.criterion for row in ill.decisions()} == {f"CS{n}" for n in range(101, 111)} | {"whole protocol"}
    (card,) = ill.cards()
    assert (card.network, card.results, card.pitfalls) == (True, {}, ())
    assert card.to_dict()["modules"][0]["name"] == "0"
    assert "growth" not in card.limits
    assert "Γ" not in card.to_markdown()
