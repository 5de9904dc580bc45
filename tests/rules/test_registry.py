"""Users' own rules: registered, checked by the test kit, refused with reasons."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.registry import NETS, RULES
from creditscope.rules import make_rule, rule_class
from creditscope.testing import assert_rule
from creditscope.train.plan import plan_runs


class SignDFA(cs.TapRule):
    """DFA from the sign of the error."""

    def draw_feedback(self, tap_shapes, classes, generator):
        return [torch.randn(math.prod(shape), classes, generator=generator) for shape in tap_shapes]

    def credit(self, ctx: cs.CreditContext) -> Sequence[Tensor]:
        return [(ctx.error.sign() @ B.T).view_as(h) for h, B in zip(ctx.states, ctx.feedback, strict=True)]


class ForVectors(SignDFA):
    def credit(self, ctx):
        return [ctx.error @ B.T for B in ctx.feedback]


class DividesByRows(SignDFA):
    def credit(self, ctx):
        return [a / len(ctx.error) for a in super().credit(ctx)]


class DrawsGlobally(SignDFA):
    def draw_feedback(self, tap_shapes, classes, generator):
        return [torch.randn(math.prod(shape), classes) for shape in tap_shapes]


class Sneaky(SignDFA):
    """Draws from the global stream, and is reproducible all the same."""

    def draw_feedback(self, tap_shapes, classes, generator):
        torch.rand(1)
        return super().draw_feedback(tap_shapes, classes, generator)


class ForgetsATap(SignDFA):
    def credit(self, ctx):
        return list(super().credit(ctx))[1:]


class ClaimsExactness(SignDFA):
    def exact_taps(self, count):
        return (count - 1,)


@pytest.mark.parametrize("rule", ["bp", "dfa", "block_fa", "fa", "grape", SignDFA, SignDFA()])
@pytest.mark.slow
def test_good_rules_pass(rule):
    assert_rule(rule)


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        (DividesByRows, AssertionError, "per sample at tap 0"),
        (DrawsGlobally, AssertionError, "same 'feedback.0'"),
        (Sneaky, AssertionError, "global random stream"),
        (ForgetsATap, CreditscopeError, "one credit per tap"),
        (ClaimsExactness, AssertionError, "tap 3"),
    ],
)
def test_bad_rules_are_caught(rule, error, text):
    with pytest.raises(error, match=text):
        assert_rule(rule)


def test_a_rule_for_vectors_alone_is_told_so():
    assert_rule(ForVectors, tokens=False)
    with pytest.raises(AssertionError, match=r"\(rows, tokens, features\), but got: .*'ForVectors'.*tokens=False"):
        assert_rule(ForVectors)


def test_register_and_look_up():
    cs.register_rule("sign_dfa_for_test")(SignDFA)
    assert rule_class("sign_dfa_for_test") is SignDFA
    assert SignDFA.name == "sign_dfa_for_test"
    assert len(RULES.source("sign_dfa_for_test")) == 16
    assert RULES.source("dfa") == ""
    for name, cls in (("nonsense", int), ("dfa", SignDFA)):  # no rule; a built-in name
        with pytest.raises(CreditscopeError, match=f"'{name}'"):
            cs.register_rule(name)(cls)
    assert SignDFA.name == "sign_dfa_for_test"


ZEROS = """
import creditscope as cs
class Zeros(cs.TapRule):
    \"\"\"Credit of zeros.\"\"\"
    def credit(self, ctx):
        return [h * 0 for h in ctx.states]
"""


def test_rule_from_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(ZEROS)
    assert rule_class(f"{file}:Zeros").name == "Zeros"
    first = RULES.source(f"{file}:Zeros")
    file.write_text(ZEROS + "# edited\n")
    assert RULES.source(f"{file}:Zeros") != first


def test_rule_of_another_package(tmp_path, monkeypatch):
    """Found by its entry point, without an import of ours; workers find it, too."""
    (tmp_path / "outside.py").write_text(ZEROS)
    about = tmp_path / "outside-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[creditscope.rules]\nzero_from_outside = outside:Zeros\n")
    monkeypatch.setattr(RULES, "_registered", dict(RULES._registered))
    with pytest.raises(CreditscopeError, match="but got 'zero_from_outside'"):
        rule_class("zero_from_outside")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "zero_from_outside" in RULES.names()
    assert not RULES.is_local("zero_from_outside")
    assert rule_class("zero_from_outside").__module__ == "outside"
    assert RULES.summary("zero_from_outside") == "Credit of zeros."
    assert len(RULES.source("zero_from_outside")) == 16


class TestAnyWayToNameARule:
    """By name, by class, as an instance: the same rule everywhere."""

    def test_made(self):
        made = make_rule("fa", {"head": "exact"})
        assert (type(made), vars(made)["head"]) == (rule_class("fa"), "exact")
        assert make_rule(made) is made
        assert type(make_rule(SignDFA)) is SignDFA

    @pytest.mark.parametrize(
        ("rule", "options", "text"),
        [
            ("fa", {"heead": 1}, "'heead'. Nearest: head. Choices: head, scale"),
            (SignDFA(), {"head": 1}, "got head"),
            (int, {}, "'int'"),
            (3, {}, "got 3"),
        ],
    )
    def test_refused(self, rule, options, text):
        with pytest.raises(CreditscopeError, match=text):
            make_rule(rule, options)

    def test_a_class_is_named_after_itself(self):
        class Mine(rule_class("dfa")):
            pass

        assert (Mine.name, rule_class("dfa").name) == ("Mine", "dfa")


def typed(name: str) -> type[cs.TapRule]:
    """A rule without readable source, as typed into a prompt."""
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec(ZEROS.replace("Zeros", name), space)
    return space[name]


FEW = {"task": "digits", "depth": 1, "width": 8, "epochs": 1}


class TestRunWithAClass:
    @pytest.fixture(autouse=True)
    def forget(self, monkeypatch):
        monkeypatch.setattr(RULES, "_registered", dict(RULES._registered))

    @pytest.mark.slow
    def test_it_is_trained_and_reused(self, tmp_path):
        rule = typed("TypedForTest")
        first = cs.run(rule=rule, seeds=2, tier="quick", out=tmp_path, **FEW)
        again = cs.run(rule=[rule], seeds=2, tier="quick", out=tmp_path, **FEW)
        assert [r.name for r in again.records] == [r.name for r in first.records]
        assert len({r.spec.rule_source for r in first.records if r.spec}) == 1
        assert len(list((tmp_path / "records").iterdir())) == 2

    def test_a_class_of_a_file_keeps_its_digest(self):
        (before,) = plan_runs(rules=[ForVectors], seeds=[1], **FEW)
        RULES._registered.pop("ForVectors")
        (after,) = plan_runs(rules=[ForVectors], seeds=[1], **FEW)
        assert (before.rule, before.digest()) == ("ForVectors", after.digest())

    def test_a_built_in_class_is_its_name(self):
        assert plan_runs(rules=[rule_class("dfa")], seeds=[1], **FEW) == plan_runs(rules=["dfa"], seeds=[1], **FEW)

    def test_typed_again_is_another_run(self):
        before, after = (plan_runs(rules=[typed("Twice")], seeds=[1], **FEW)[0] for _ in range(2))
        assert (before.rule, before.digest() == after.digest()) == ("Twice", False)

    @pytest.mark.parametrize(
        ("rule", "text"),
        [(SignDFA(), r"rule_options=\{…\}"), ([typed("Same"), typed("Same")], "'Same'"), (int, "'int'")],
    )
    def test_refused(self, rule, text, tmp_path):
        with pytest.raises(CreditscopeError, match=text):
            cs.run(rule=rule, out=tmp_path, **FEW)

    def test_options_of_task_and_rule_have_a_place_of_their_own(self, tmp_path):
        with pytest.raises(CreditscopeError, match=r"Pass task_options=\{'image': …\}"):
            cs.run(image=True, out=tmp_path, **FEW)
        with pytest.raises(CreditscopeError, match=r"Pass rule_options=\{'tokens': …\}"):
            cs.run(rule="dfa", tokens="all", out=tmp_path, **FEW)


NET = """
from torch import nn
class TwoLayers(nn.Sequential):
    stem_tap, block_taps = "0", "1"
    def __init__(self, input_shape, classes, *, width=16):
        super().__init__(nn.Linear(*input_shape, width), nn.Linear(width, width), nn.Linear(width, classes))
class NoTaps(nn.Sequential):
    pass
class Typo(TwoLayers):
    accepts = ("vector",)
"""


class TestNetOfAFile:
    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "mine.py"
        path.write_text(NET)
        return path

    @pytest.mark.slow
    @pytest.mark.parametrize("jobs", [1, 2])
    def test_trained_here_and_by_workers(self, file, tmp_path, jobs):
        asked = {"task": "digits", "epochs": 1, "tier": "quick", "engine": "loop", "width": 5}
        runs = cs.run(net=f"{file}:TwoLayers", seeds=2, slots=jobs, out=tmp_path, **asked)
        assert [r.facts.taps for r in runs.records] == [("0", "1")] * 2
        assert runs.records[0].name.startswith("digits-TwoLayers-bp-s42-")

    def test_an_edited_file_is_another_net(self, file):
        (before,) = plan_runs(rules=["bp"], seeds=[1], net=f"{file}:TwoLayers")
        file.write_text(NET + "# edited\n")
        (after,) = plan_runs(rules=["bp"], seeds=[1], net=f"{file}:TwoLayers")
        assert (len(before.net_source), before.net_source == after.net_source) == (16, False)

    def test_the_class_itself(self, file, monkeypatch):
        monkeypatch.setattr(NETS, "_registered", dict(NETS._registered))
        net = NETS.get(f"{file}:TwoLayers")
        (spec,) = plan_runs(rules=["bp"], seeds=[1], net=net)
        assert (spec.net, NETS.get("TwoLayers")) == ("TwoLayers", net)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("{}:Other", "'Other'.* there: TwoLayers"),
            ("{}:NoTaps", "'NoTaps' .*stem_tap"),
            ("{}:Typo", r"\['vector'\]"),
            ("{}", "mine.py:MyNet"),
            ("nowhere.py:Net", "'nowhere.py'"),
        ],
    )
    def test_refused(self, file, name, text):
        with pytest.raises(CreditscopeError, match=text):
            NETS.get(name.format(file))


def test_a_rule_file_may_use_dataclasses_and_its_own_folder(tmp_path):
    (tmp_path / "helper_for_rule.py").write_text("SCALE = 2.0\n")
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom helper_for_rule import SCALE\n"
    note = "@dataclass\nclass Note:\n    text: str = 'x'\n"
    (tmp_path / "mine.py").write_text(head + note + ZEROS)
    assert rule_class(f"{tmp_path / 'mine.py'}:Zeros").name == "Zeros"
    (tmp_path / "broken.py").write_text("def :\n")
    with pytest.raises(CreditscopeError, match="it failed: SyntaxError"):
        rule_class(f"{tmp_path / 'broken.py'}:Mine")


def test_a_rule_sees_the_target():
    class DRTP(cs.TapRule):
        """Random projections of the one-hot target (Frenkel et al., 2021)."""

        def draw_feedback(self, tap_shapes, classes, generator):
            return [torch.randn(shape[0], classes, generator=generator) for shape in tap_shapes]

        def credit(self, ctx):
            hot = nn.functional.one_hot(ctx.target, ctx.output.shape[1]).to(ctx.output.dtype)
            return [-hot @ B.T for B in ctx.feedback]

    assert_rule(DRTP, tokens=False)
