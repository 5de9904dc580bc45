"""What holds throughout a run, read off the net and its rule once."""

from typing import Any

from creditscope.options import declared_options
from creditscope.record.schema import Facts, RuleFacts, WeightFact
from creditscope.rules import Application, Rule


def rule_facts(rule: Rule) -> RuleFacts:
    """What a rule states of itself, and which of its options are not the default."""
    usual = declared_options(type(rule))
    unusual = {name: value for name, default in usual.items() if (value := getattr(rule, name, default)) != default}
    return RuleFacts(
        name=rule.name,
        label=rule.label or rule.name,
        variant=", ".join(f"{name} {value}" for name, value in unusual.items()),
        formula=rule.formula,
        approximates=rule.approximates,
        local=rule.local,
        needs_feedback=rule.needs_feedback or type(rule).__dict__.get("draw_feedback") is not None,
        draws_noise=rule.draws_noise,
    )


def gather_facts(rule: Rule, application: Application, **others: Any) -> Facts:
    """Facts of a rule at work on a net; `others` are those of the task or the caller."""
    anatomy, report = application.anatomy, application.report
    stage_of = {name: i for i, stage in reversed(list(enumerate(anatomy.stages))) for name in stage}
    weights = tuple(
        WeightFact(name=name, stage=stage_of.get(name, -1), role=role)
        for name, role in report.roles.items()
        if role != "frozen"
    )
    return Facts(
        rule=rule_facts(rule),
        taps=anatomy.taps,
        tap_shapes=anatomy.shapes,
        exact_taps=application.exact_taps,
        residual=anatomy.residual,
        rows_interact=anatomy.rows_interact,
        class_token=anatomy.class_token,
        weights=weights,
        frozen_weights=tuple(report.names("frozen")),
        classes=anatomy.classes,
        **others,
    )
