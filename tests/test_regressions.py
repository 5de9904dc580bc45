"""Things that once went wrong: shared weights, fitted rows, converted models, diverged baselines, rule files."""

import io

import numpy as np
import pytest
import torch
from builders import make_family, make_record
from rich.console import Console
from torch import nn
from trained import train_run

import creditscope as cs
from creditscope.auditing import audit
from creditscope.errors import CreditscopeError
from creditscope.measure.observation import exact_weight_gradients
from creditscope.measure.snapshot import measure_noise
from creditscope.record.table import to_xarray
from creditscope.train.plan import plan_run, plan_runs
from creditscope.train.run import build_run

pytestmark = pytest.mark.usefixtures("own_stream")


def test_an_overflowed_gradient_is_noise():
    g64 = torch.randn(1, 4, 3, dtype=torch.float64)
    g = g64.float()
    keep = torch.ones(4, dtype=torch.bool)
    assert float(measure_noise(g, g64, keep)) < 1e-6
    g[0, :3] = torch.inf
    assert float(measure_noise(g, g64, keep)) > 1e20


def test_the_update_is_compared_with_the_gradient_of_its_own_step():
    spec = plan_run(rule="bp", task="digits", net_options={"depth": 2, "width": 16}, epochs=2, optimiser="sgd",
                    weight_decay=0.0, snapshot_every=1, noise=False)  # fmt: skip
    run, taken = build_run(spec), []
    train_run(run, on_snapshots=taken.extend)
    np.testing.assert_allclose(taken[-1].weights.update_cos, 1, atol=1e-2)  # plain SGD steps along −∇ exactly
    assert sum(taken[-1].weights.decrease_share) == pytest.approx(1)


def test_exact_weight_gradients_touch_nothing():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    x, y = torch.randn(10, 4), torch.randint(3, (10,))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    found = exact_weight_gradients(net, x, y)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    nn.functional.cross_entropy(net(x), y).backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(found[name], p.grad, rtol=1e-4, atol=1e-6)


def test_a_diverged_baseline_skips_use_of_depth():
    broken = [r for r in make_family("dfa") if r.spec.rule != "bp" or r.spec.frozen]
    broken += [make_record(rule="bp", seed=s, diverged=1, accuracy=0.1) for s in (1, 2, 3)]
    bp, dfa = sorted(audit(broken).methods, key=lambda method: method.method == "DFA")
    (found,) = [f for f in dfa.findings if f.code == "CS004"]
    assert (str(found.outcome), "diverged" in found.message) == ("skipped", True)
    assert (bp.verdict.word, bp.accuracy) == ("not measured", None)


def test_published_thresholds_do_not_move_with_ours():
    record = make_record(taps={"h_rms": [1.0, 1.1, 1.2, 1.3, 1.4]})
    found = {f.code: f for f in audit([record], limits=cs.Thresholds(growth=1.01)).methods[0].findings}
    assert str(found["CS001"].outcome) == "issue"
    assert found["CS001"].published is False


def test_each_seed_has_a_verdict_of_its_own():
    records = [make_record(seed=1), make_record(seed=2, taps={"h_rms": [1, 1, 99, 99, 99]})]
    (method,) = audit(records).methods
    assert method.seed_verdicts[1].word == "trustworthy"
    assert method.seed_verdicts[2].codes == ("CS001",)


def test_a_mistyped_field_names_fields_and_options():
    with pytest.raises(CreditscopeError, match=r"got 'epoch'\. Nearest: epochs\. Choices: .*depth.*epochs"):
        plan_runs(rules=["bp"], seeds=[1], epoch=3)


def test_views_of_mixed_settings_are_refused():
    with pytest.raises(CreditscopeError, match="2 settings"):
        to_xarray([make_record(), make_record(lr=0.5)])


def test_one_mistake_is_said_once(tmp_path):
    (tmp_path / "bad.py").write_text(
        "import creditscope as cs\nclass Bad(cs.TapRule):\n    def credit(self, ctx):\n        return ctx.nothing\n"
    )
    tiny = {"task": "digits", "seeds": 2, "epochs": 1, "width": 8, "depth": 1, "out": tmp_path, "slots": 1}
    with pytest.raises(CreditscopeError, match="1 more") as caught:
        cs.run(rule=f"{tmp_path / 'bad.py'}:Bad", **tiny)
    assert str(caught.value).count("'nothing'") == 1


@pytest.mark.parametrize("width", [80, 150])
def test_tables_fit_their_width(width):
    text = io.StringIO()
    audit(make_family("dfa")).show(Console(file=text, width=width, highlight=False), verbose=True)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    flat = " ".join(text.getvalue().split())
    assert "…" not in flat
    for word in ("accuracy", "frozen, BP stem", "growth", "CS010"):
        assert word in flat
