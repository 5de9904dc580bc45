"""The audit is no BP detector: what it must say of real runs, and of nets that are broken on purpose."""

import pytest
import torch
from builders import make_facts, make_snapshot
from torch import nn
from turning import haar_frame

import creditscope as cs
from creditscope.auditing.methods import Moment
from creditscope.auditing.tap_credit import judge_taps
from creditscope.auditing.thresholds import Thresholds
from creditscope.measure.alignment import measure_alignment
from creditscope.nets.resmlp import ResMLP
from creditscope.rng import global_stream
from creditscope.tasks import load_task

pytestmark = pytest.mark.slow

SMALL = {"task": "mnist1d", "net": "resmlp", "depth": 3, "width": 64, "epochs": 25, "snapshot_every": 0}
SMALL |= {"eval_rows": 256, "slots": 1}


@cs.register_rule("stem_only_for_test")
class StemOnly(cs.TapRule):
    """DFA to the stem, nothing to the blocks: a frozen net in disguise."""

    needs_feedback = True

    def draw_feedback(self, tap_shapes, classes, generator):
        return [torch.randn(tap_shapes[0][0], classes, generator=generator)]

    def credit(self, ctx):
        return [ctx.error @ ctx.feedback[0].T, *(torch.zeros_like(h) for h in ctx.states[1:])]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    out = tmp_path_factory.mktemp("promises")
    runs = cs.run(rule=["bp", "fa"], seeds=3, out=out, **SMALL).records
    cheap = {"seeds": 3, "out": out, "tier": "quick", **SMALL}  # enough for baselines, and to fail
    runs += cs.run(rule=["dfa", "stem_only_for_test"], **cheap).records
    runs += cs.run(rule=["bp", "fa", "dfa", "stem_only_for_test"], frozen=True, **cheap).records
    return {m.method: m for m in cs.audit(runs).methods}


def outcomes(method) -> dict[str, str]:
    return {finding.code: str(finding.outcome) for finding in method.findings}


def test_bp_raises_no_issue(verdicts):
    assert verdicts["BP"].verdict.word == "trustworthy"
    assert "issue" not in outcomes(verdicts["BP"]).values()


def test_a_rule_that_is_not_bp_can_pass(verdicts):
    assert verdicts["FA"].verdict.word == "trustworthy"
    assert outcomes(verdicts["FA"])["CS005"] == "passed"


def test_dfa_is_walked_back_with_codes(verdicts):
    """Three seeds decide use of depth, and leave small alignments open: they are not called informed."""
    assert verdicts["DFA"].verdict.word == "walk back"
    assert "CS004" in verdicts["DFA"].verdict.codes
    assert outcomes(verdicts["DFA"])["CS005"] in ("issue", "undecided")


def test_a_frozen_net_fails_depth_use(verdicts):
    disguised = verdicts["stem_only_for_test"]
    assert outcomes(disguised)["CS004"] == "issue"
    assert disguised.accuracy.mean > 0.15  # although it is far above chance


def test_an_untrained_net_is_no_failed_measurement_and_random_credit_on_it_is_called_so():
    task = load_task("digits")
    with global_stream(0, "init"):
        net = ResMLP((64,), 10, depth=4, width=32)
    scope = cs.watch(net, taps="blocks.*", stem="stem", rule="dfa")
    scope.snapshot(torch.from_numpy(task.x_test[:256]), torch.from_numpy(task.y_test[:256]))
    (method,) = scope.audit().methods
    found = outcomes(method)
    assert (found["CS002"], found["CS007"]) == ("passed", "passed")
    assert method.verdict.lines[0].answer == "yes"
    assert found["CS005"] == "undecided"  # a single run is never an issue


def test_random_orientations_are_called_informed_at_most_at_the_stated_rate():
    taps, d, n = 4, 16, 40
    stream = torch.Generator().manual_seed(0)
    g = torch.randn(n, d, generator=stream, dtype=torch.float64) + 1.5 * torch.randn(d, generator=stream).double()
    a = torch.randn(n, d, generator=stream, dtype=torch.float64) + g
    facts = make_facts(depth=taps - 1, stem_tap=False, tap_shapes=((d,),) * taps)

    def answers(credit: torch.Tensor) -> list[str]:
        names = ("cos", "cos_F", "null_sd", "null_sd_F", "null_q99")
        found = measure_alignment(credit, g.expand(taps, n, d))
        measured = {name: found[name].tolist() for name in names}
        taken = judge_taps([Moment(facts, make_snapshot(facts, taps=measured))], range(taps), Thresholds())
        assert not isinstance(taken, str)
        return [one.answer for one in taken]

    turned = [answers(torch.stack([a @ haar_frame(d, d, stream) for _ in range(taps)])) for _ in range(400)]
    called = sum(answer == "carries" for found in turned for answer in found)
    assert called / (400 * taps) <= 0.02
    assert {answer for found in turned for answer in found} <= {"carries", "open"}  # one run is never below
    assert answers(a.expand(taps, n, d)) == ["carries"] * taps


@pytest.mark.parametrize(("depth", "scale", "code"), [(40, 1e-3, "CS106"), (8, 3e-4, "CS108")])
def test_a_collapsed_bp_net_fails(depth, scale, code):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU()) for _ in range(depth)), nn.Linear(8, 3))
    with torch.no_grad():
        for p in net[:-1].parameters():
            p *= scale
    scope = cs.watch(net, taps=[str(i) for i in range(depth)])
    scope.snapshot(torch.randn(3000, 8), torch.arange(3000) % 3)
    method = scope.audit().methods[0]
    assert (method.verdict.word, method.verdict.codes[0]) == ("ill", code)
