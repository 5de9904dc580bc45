"""Training: a run spec, the loop, and one worker per core for independent runs."""
