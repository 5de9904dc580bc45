"""Training: from what is asked to records, seed by seed (`run.py`) or many seeds at once (`stacked.py`)."""
