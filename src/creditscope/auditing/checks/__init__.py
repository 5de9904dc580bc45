"""Checks: coded judgements over records, one file each; they touch no model and need no torch."""

from creditscope.auditing.checks._check import Check, MethodCheck, RunCheck, SeedsCheck
from creditscope.registry import CHECKS

register_check = CHECKS.register


def all_checks() -> list[Check]:
    """One instance of every check, by code."""
    return sorted((CHECKS.get(name)() for name in CHECKS.names()), key=lambda check: check.code)


__all__ = ["Check", "MethodCheck", "RunCheck", "SeedsCheck", "all_checks", "register_check"]
