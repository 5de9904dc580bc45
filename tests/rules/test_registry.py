"""Users' own rules: registered, checked by the test kit, refused with reasons."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.registry import RULES
from creditscope.rules import rule_class, rule_source
from creditscope.testing import assert_rule


class SignDFA(cs.TapRule):
    """DFA from the sign of the error."""

    def draw_feedback(self, tap_shapes, classes, generator):
        return [torch.randn(shape[-1], classes, generator=generator) for shape in tap_shapes]

    def credit(self, ctx: cs.CreditContext) -> Sequence[Tensor]:
        return [ctx.error.sign() @ B.T for B in ctx.feedback]


class DividesByRows(SignDFA):
    def credit(self, ctx):
        return [a / len(ctx.error) for a in super().credit(ctx)]


class DrawsGlobally(SignDFA):
    def draw_feedback(self, tap_shapes, classes, generator):
        return [torch.randn(shape[-1], classes) for shape in tap_shapes]


class ForgetsATap(SignDFA):
    def credit(self, ctx):
        return list(super().credit(ctx))[1:]


class ClaimsExactness(SignDFA):
    def exact_taps(self, count):
        return (count - 1,)


@pytest.mark.parametrize("rule", ["bp", "dfa", "block_fa", "fa", "grape", SignDFA, SignDFA()])
def test_good_rules_pass(rule):
    assert_rule(rule)


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        (DividesByRows, AssertionError, "credit per sample at tap 0"),
        (DrawsGlobally, AssertionError, "the same seed to give the same 'feedback.0'"),
        (ForgetsATap, CreditscopeError, "one credit per tap"),
        (ClaimsExactness, AssertionError, "Expected the exact gradient at tap 3"),
    ],
)
def test_bad_rules_are_caught(rule, error, text):
    with pytest.raises(error, match=text):
        assert_rule(rule)


def test_drawing_from_the_global_stream_is_caught_even_if_reproducible():
    class Sneaky(SignDFA):
        def draw_feedback(self, tap_shapes, classes, generator):
            torch.rand(1)
            return super().draw_feedback(tap_shapes, classes, generator)

    with pytest.raises(AssertionError, match="global random stream"):
        assert_rule(Sneaky)


def test_register_and_look_up():
    cs.register_rule("sign_dfa_for_test")(SignDFA)
    assert rule_class("sign_dfa_for_test") is SignDFA
    assert SignDFA.name == "sign_dfa_for_test"
    assert len(rule_source("sign_dfa_for_test")) == 16
    assert rule_source("dfa") == ""
    with pytest.raises(CreditscopeError, match="derived from TapRule or WeightRule"):
        cs.register_rule("nonsense")(int)  # pyright: ignore[reportArgumentType]


def test_unknown_rule_names_the_choices():
    with pytest.raises(
        CreditscopeError,
        match=r"Expected the name of a rule, but got 'dfaa'.*block_fa, bp, dfa, dfa_gnn, fa, grape, kaft",
    ):
        rule_class("dfaa")


def test_rule_from_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import creditscope as cs\n"
        "class Mine(cs.TapRule):\n"
        "    def credit(self, ctx):\n"
        "        return [h * 0 for h in ctx.states]\n"
    )
    assert rule_class(f"{file}:Mine").name == "Mine"
    first = rule_source(f"{file}:Mine")
    file.write_text(file.read_text() + "# edited\n")
    assert rule_source(f"{file}:Mine") != first
    with pytest.raises(CreditscopeError, match=r"Expected .*mine.py to define a rule class 'Other'"):
        rule_class(f"{file}:Other")
    with pytest.raises(CreditscopeError, match="does not exist"):
        rule_class("nowhere.py:Mine")


def test_rule_of_another_package(tmp_path, monkeypatch):
    """Found by its entry point, without an import of ours; workers find it, too."""
    (tmp_path / "outside.py").write_text(
        "import creditscope as cs\n"
        "class Zero(cs.TapRule):\n"
        '    """Credit of zeros."""\n'
        "    def credit(self, ctx):\n"
        "        return [h * 0 for h in ctx.states]\n"
    )
    about = tmp_path / "outside-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[creditscope.rules]\nzero_from_outside = outside:Zero\n")
    monkeypatch.setattr(RULES, "_registered", dict(RULES._registered))
    with pytest.raises(CreditscopeError, match="but got 'zero_from_outside'"):
        rule_class("zero_from_outside")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "zero_from_outside" in RULES.names()
    assert not RULES.is_local("zero_from_outside")
    assert rule_class("zero_from_outside").__module__ == "outside"
    assert RULES.summary("zero_from_outside") == "Credit of zeros."
    assert len(rule_source("zero_from_outside")) == 16
