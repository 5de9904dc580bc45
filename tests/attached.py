"""Models of others, and the gradients that a rule must give them, by autograd and hooks alone."""

import os
from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is ever fetched
VOCABULARY, LENGTH = 11, 6


class Block(nn.Module):
    """h + tanh(W h); as a tuple with something else, if asked."""

    def __init__(self, width: int = 5, *, pair: bool = False):
        super().__init__()
        self.w, self.pair = nn.Linear(width, width), pair

    def forward(self, h):
        h = h + torch.tanh(self.w(h))
        return (h, {"rest": h.detach().sum()}) if self.pair else h


class Chain(nn.Module):
    """Stem, blocks, head on (rows, 4); what it returns is wrapped in `gives`."""

    def __init__(self, *, depth: int = 2, classes: int = 3, pair: bool = False, gives=None):
        super().__init__()
        self.stem = nn.Linear(4, 5)
        self.blocks = nn.ModuleList(Block(pair=pair) for _ in range(depth))
        self.head = nn.Linear(5, classes)
        self.pair, self.gives = pair, gives or (lambda logits: logits)

    def forward(self, x, *, scale=1.0):
        h = self.stem(x * scale)
        for block in self.blocks:
            h = block(h)[0] if self.pair else block(h)
        return self.gives(self.head(h))


def chain(**options) -> Chain:
    torch.manual_seed(1)
    return Chain(**options).double()


def rows(count: int = 12) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(2)
    x = torch.randn(count, 4, generator=stream, dtype=torch.float64)
    return x, torch.randint(3, (count,), generator=stream)


def gpt2(**others) -> nn.Module:
    """A GPT-2 of transformers with random weights: two blocks, 16 features, tied embedding and head."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": VOCABULARY, "n_positions": LENGTH}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**{**sizes, **none, "use_cache": False, **others}))


def sentences(count: int = 16) -> Tensor:
    """Each token is the one before plus a step that the sentence keeps to."""
    stream = torch.Generator().manual_seed(3)
    first, step = torch.randint(VOCABULARY, (2, count, 1), generator=stream)
    return (first + (1 + step % 2) * torch.arange(LENGTH)) % VOCABULARY


def next_token(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy of every next token, averaged over a sentence."""
    return functional.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """What is in `.grad`, copied."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def by_stages(model: nn.Module, taps: Sequence[str], call, credit) -> dict[str, Tensor]:
    """Gradients where each stage learns from its own credit and its input is held fixed.

    `call()` gives the logits and the losses of the rows, `credit(states, e)` one tensor per tap, per row.
    """
    model.zero_grad()
    seen: list[Tensor] = []

    def cut(module, arguments, output):
        seen.append(output)
        return output.detach()

    handles = [model.get_submodule(tap).register_forward_hook(cut) for tap in taps]
    logits, losses = call()
    for handle in handles:
        handle.remove()
    (e,) = torch.autograd.grad(losses.sum(), logits, retain_graph=True)
    given = [a / len(losses) for a in credit([h.detach() for h in seen], e)]
    torch.autograd.backward([losses.mean(), *seen], [None, *given])
    found = gradients(model)
    model.zero_grad()
    return found


def as_object(logits: Tensor) -> SimpleNamespace:
    return SimpleNamespace(logits=logits, loss=None)
