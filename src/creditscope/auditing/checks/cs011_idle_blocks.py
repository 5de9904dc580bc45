"""CS011, blocks that learned nothing: accuracy lost when one block alone is put back to where it began."""

from creditscope.auditing.checks import MOST, Finding, Method, MethodCheck, Thresholds, register_check
from creditscope.auditing.depth import TrainedDepth, rewound_blocks, trained_depth
from creditscope.record import Facts
from creditscope.text import count, first_few, points


@register_check("cs011_idle_blocks")
class IdleBlocks(MethodCheck):
    """Trained depth, an interval, against BP's: it measures dependence, so passing it is no evidence of benefit."""

    code, title, line = "CS011", "blocks that learned nothing", "depth"
    value_is = "fewest blocks whose training the net depends on"
    when = "the net depends on fewer than half as many trained blocks as BP's"
    why = (
        "A rule that trains one block of four can beat a frozen net and still be no rule for deep nets. What a block "
        "learned is what is lost when it alone is put back; no training is needed to know."
    )
    remedy = (
        "Say which blocks are idle. Passing says only that the net depends on its blocks, not that it is better for "
        "them: CS004 decides that. Undecided: more seeds."
    )
    sufficient = False

    def compared_with(self, facts: Facts, limits: Thresholds) -> str:
        return f"{limits.trained_share:g} of BP's"

    def judge(self, method: Method, limits: Thresholds) -> Finding:
        facts = method.facts
        if method.random_targets:
            return self.not_applicable("random targets: there is no accuracy to lose")
        if facts.blocks < 1:
            return self.not_applicable("no block lies between the first tap and the last")
        if method.not_judged:
            return self.not_applicable(method.not_judged)
        if not facts.trainer and rewound_blocks(method.first.last):
            return self._one_run(method, limits)
        if not any(rewound_blocks(record.last) for record in method.whole):
            watch = "watch(…, initial=) takes the state dict before training"
            watch += ", and snapshots of tier standard put blocks back"
            return self.skipped(f"no block was put back ({'run it again' if facts.trainer else watch})")
        like_it = method.penalised_bp or method.bp
        own, bp = trained_depth(method.whole, limits), trained_depth(list(like_it.values()), limits)
        if own is None:
            known = sum(bool(rewound_blocks(record.last)) for record in method.whole)
            return self.skipped(f"{count(known, 'seed')} with every block put back, needs {limits.seeds:g}")
        said = f"trained depth {own}, {_blocks(own)}"
        others = {"value": float(own.low)}
        if not any(facts.residual):
            text = f"{said}; without skips, putting back any block breaks the net"
            return self.tip(text, **others) if own.idle else self.not_applicable(text)
        if like_it == method.runs:
            return self.not_applicable(f"{said}: others are compared with it")
        if bp is None:
            return self.skipped(f"{said}, but no BP runs with every block put back: add --baselines")
        said = f"trained depth {own.beside(bp)}, {_blocks(own)}"
        if bp.high < 2:
            return self.not_applicable(f"{said}: BP itself depends on fewer than two blocks")
        if own.high < limits.trained_share * bp.low:
            if method.spec and method.spec.penalty and not method.penalised_bp:
                return self.undecided(f"{said}: BP under the same penalty is not on record", **others)
            return self.issue(said, **others)
        if own.low >= limits.trained_share * bp.high:
            return self.passed(said, **others)
        return self.undecided(f"{said}: more seeds needed", **others)

    def _one_run(self, method: Method, limits: Thresholds) -> Finding:
        """Of a watched model: what each block is worth to it, without an interval."""
        losses = rewound_blocks(method.whole[0].last)
        said = first_few([f"{tap} ({points(loss)} pp)" for tap, loss in losses.items()], MOST)
        limit, idle = f"{100 * limits.rewind_loss:g} pp", [t for t, loss in losses.items() if loss < limits.rewind_loss]
        which = f"idle, under {limit}: {first_few([str(tap) for tap in idle], MOST)}" if idle else f"all cost {limit}"
        return self.tip(f"one run, no interval: accuracy lost by tap when put back: {said}; {which}")


def _blocks(found: TrainedDepth) -> str:
    """What each block costs to put back, and which are idle."""
    idle = f"; idle: {first_few([str(tap) for tap in found.idle], MOST)}" if found.idle else ""
    costs = [f"{block.tap} ({points(block.mean)} pp)" for block in found.blocks]
    return f"accuracy lost by tap: {first_few(costs, MOST)}{idle}"
