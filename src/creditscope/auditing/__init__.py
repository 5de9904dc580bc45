"""The audit: thresholds, checks and verdicts over records; touches no model and needs no torch."""

from creditscope.auditing.audit import Audit, MethodAudit, audit
from creditscope.auditing.checks import Finding, Outcome
from creditscope.auditing.thresholds import Thresholds

__all__ = ["Audit", "Finding", "MethodAudit", "Outcome", "Thresholds", "audit"]
