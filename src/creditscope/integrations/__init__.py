"""Doors into training loops and loggers that people have already: one file each, imported only by who has the library.

`lightning` and `transformers` hold a `ScopeCallback` each, `tensorboard` and `wandb` a writer.
"""
