"""Measurements: tensors in, tensors out; no thresholds here. `snapshot` takes them all at one moment."""
