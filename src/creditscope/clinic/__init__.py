"""The clinic: nets with a known fault, and healthy ones, to see whether an audit names what is there and nothing else.

Every case is a small net that is trained a little; `examine` watches it and compares what the audit says first, and of
which module, with what was done to it. Half of the nets may be looked at to set thresholds, the other half reports.
"""
