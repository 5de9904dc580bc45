"""CS110, learning rate too low or too high: told from how far weights moved and where the loss went, together."""

from itertools import pairwise

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import (
    NetworkCheck,
    NetworkMoment,
    best_constant,
    largest_step,
    last_step,
    shrinking,
    travelled,
)
from creditscope.text import amount


@register_check("cs110_learning_rate")
class LearningRate(NetworkCheck):
    """A large update is none, as long as the loss falls; a small one is none, as long as it does, too."""

    code, title, line = "CS110", "learning rate too low or too high", "training"
    value_is = "sum over snapshots of the median ‖ΔW‖/‖W‖ of matrices"
    when = (
        "the loss does not fall and weights moved under {update_low:g} of their size a step; or it rises, or units "
        "die, and they moved over {update_high:g}"
    )
    why = "A net that does not move cannot learn, and one that is thrown about forgets what it learnt."
    remedy = (
        "Too low: raise it by 10 until the loss falls. Too high: lower it by 10, warm it up, clip gradients. Usual "
        "updates are about 1e-3 of a weight per step. A loss that rises from the first step on may have the "
        "wrong sign; on rows that are not trained on, the net may learn the others by heart: take training rows."
    )
    order = 70

    def compared_with(self, facts, limits: Thresholds) -> str:
        return f"update_low {limits.update_low:g} a step, update_high {limits.update_high:g}"

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        start, last = net.start, net.snapshot
        if start is last or last.untrained or start.loss is None:
            return self.not_applicable("one snapshot: a second one, after some training, tells how weights moved")
        spoilt = [w for w in net.weights if w.size is None]
        if spoilt and all(w.size is not None for w in net.weights_at(start)):
            said = f"weights were finite at {start.when} and are not any more"
            return self.issue(f"too high: {said}", where=spoilt[0].module, rank=42)
        moved = travelled(net)
        if moved is None or last.loss is None:
            return self.not_applicable("updates or the loss were not measured")
        losses = f"the loss went from {amount(start.loss)} to {amount(last.loss)}"
        said = f"weights moved by {amount(moved)} of their size, {losses}"
        best = best_constant(last)
        lost = best is not None and last.loss > limits.risen * best and last.loss > limits.risen * start.loss
        steps = last.step - start.step
        far = moved > limits.update_high and (not _is_accurate(net, limits) or last_step(net) > limits.update_fast)
        if far and lost:
            return self.issue(f"too high: {said}", value=moved, rank=42)
        if net.has_learnt or net.is_fitted:
            return self.passed(said, value=moved)
        idle = best is not None and last.loss > (1 - limits.idle_gain) * best
        if idle and not _is_accurate(net, limits) and (largest := largest_step(net)) > limits.update_step:
            return self.issue(
                f"too high: weights moved by up to {amount(largest)} of their size a step", value=moved, rank=42
            )
        if lost and _keeps_rising(net) and not _is_accurate(net, limits):
            text = f"{losses}, higher at every snapshot: too high, or the sign of the loss is wrong (maximize)"
            return self.issue(text, value=moved, rank=42)
        if far and _was_destroyed(net, limits):
            return self.issue(f"too high: {said}, and units died or rows became the same", value=moved, rank=42)
        slow = moved < limits.update_low * steps if steps > 0 else moved < limits.update_least
        if slow and last.loss > (1 - limits.loss_gain) * start.loss:
            return self.issue(f"too low: {said}", value=moved)
        return self.passed(said, value=moved)


def _was_destroyed(net: NetworkMoment, limits: Thresholds) -> bool:
    """Whether most layers' units died, or rows became the same, since the first snapshot; not by decay (CS109)."""
    if (shrinking(net) or 1) < limits.shrunk:
        return False
    pairs = list(zip(net.modules_at(net.start), net.modules, strict=False))
    died = [(new.dead or 0) > limits.dead_units >= (old.dead or 0) for old, new in pairs if new.dead is not None]
    known = [(old.dispersion, new.dispersion) for old, new in pairs if old.dispersion and new.dispersion is not None]
    alike = bool(known) and known[-1][0] > limits.dispersion > known[-1][1]
    return alike or 2 * sum(died) > len(died)


def _keeps_rising(net: NetworkMoment) -> bool:
    """Whether the loss is higher at each of several snapshots than at the one before."""
    losses = [s.loss for s in net.history]
    return len(losses) > 2 and all(a is not None and b is not None and b > a for a, b in pairwise(losses))


def _is_accurate(net: NetworkMoment, limits: Thresholds) -> bool:
    """Whether answers are right more often than the best constant's, whatever the loss: sure and overfitted."""
    accuracy, best = net.snapshot.accuracy, net.facts.best_constant
    return accuracy is not None and best is not None and accuracy > best + limits.learnt_gain
