"""Healthy nets of other people's libraries, small and with random weights."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.clinic._case import healthy
from creditscope.clinic._nets import WIDTH
from creditscope.clinic._patient import TRAINED_ROWS, Patient, graph, on_digits, seeded

VOCABULARY, LENGTH = 48, 12
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def _make(name: str, config: str, **options: Any) -> nn.Module:
    """A model of transformers."""
    import transformers

    with seeded(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own
        return getattr(transformers, name)(getattr(transformers, config)(**options))


def _sentences(rows: int, seed: int) -> Tensor:
    """Tokens that go up by a step of their own, so that the next can be told from the two before."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(VOCABULARY, (rows, 1), generator=generator)
    step = torch.randint(1, 5, (rows, 1), generator=generator)
    return (start + step * torch.arange(LENGTH)) % VOCABULARY


def _next_token(output: Tensor, target: Tensor) -> Tensor:
    """Mean loss of the tokens of a row but the first."""
    losses = functional.cross_entropy(output[:, :-1].transpose(1, 2), target[:, 1:], reduction="none")
    return losses.mean(-1)


@healthy("GPT-2, tied embeddings, next token", needs=("transformers",))
def gpt2() -> Patient:
    """The head's weights are those of the embedding."""
    sizes = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = _make("GPT2LMHeadModel", "GPT2Config", **sizes, bos_token_id=0, eos_token_id=0, use_cache=False)
    tokens, seen = _sentences(TRAINED_ROWS, 0), _sentences(128, 1)
    return Patient(model, tokens, tokens, seen, seen, loss=_next_token)


@healthy("BERT that classifies", needs=("transformers",))
def bert() -> Patient:
    """Which quarter of the vocabulary a sentence starts in, read from the pooler; inputs by keyword, with a mask."""
    model = _make(
        "BertForSequenceClassification",
        "BertConfig",
        **SMALL,
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
        num_labels=4,
    )
    rows, target = [], []
    for tokens in (_sentences(TRAINED_ROWS, 0), _sentences(128, 1)):
        rows.append({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)})
        target.append(tokens[:, 0] * 4 // VOCABULARY)
    return Patient(model, rows[0], target[0], rows[1], target[1])


@healthy("BERT that classifies tokens", needs=("transformers",))
def bert_tokens() -> Patient:
    """Is the token in the upper half of the vocabulary?"""
    model = _make(
        "BertForTokenClassification",
        "BertConfig",
        **SMALL,
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
        num_labels=2,
    )
    tokens, seen = _sentences(TRAINED_ROWS, 0), _sentences(128, 1)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output.transpose(1, 2), target, reduction="none").mean(-1)

    targets = [(t >= VOCABULARY // 2).long() for t in (tokens, seen)]
    return Patient(model, tokens, targets[0], seen, targets[1], loss=loss)


@healthy("ViT of transformers", needs=("transformers",))
def vit() -> Patient:
    """Four patches and a class token."""
    model = _make(
        "ViTForImageClassification", "ViTConfig", **SMALL, image_size=8, patch_size=4, num_channels=1, num_labels=10
    )
    return on_digits(model, (1, 8, 8))


@healthy("ResNet of transformers", needs=("transformers",))
def resnet() -> Patient:
    """Two stages of one basic block."""
    model = _make(
        "ResNetForImageClassification",
        "ResNetConfig",
        num_channels=1,
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        num_labels=10,
    )
    return on_digits(model, (1, 8, 8))


@healthy("Llama, next token", needs=("transformers",))
def llama() -> Patient:
    """RMS norm, rotary positions, gated MLPs."""
    model = _make(
        "LlamaForCausalLM",
        "LlamaConfig",
        **SMALL,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
        use_cache=False,
    )
    tokens, seen = _sentences(TRAINED_ROWS, 0), _sentences(128, 1)
    return Patient(model, tokens, tokens, seen, seen, loss=_next_token)


class GeometricNet(nn.Module):
    """Three graph convolutions of torch_geometric."""

    def __init__(self, conv: str):
        from torch_geometric import nn as geometric

        super().__init__()
        make = getattr(geometric, conv)
        self.convs = nn.ModuleList([make(32, WIDTH), make(WIDTH, WIDTH)])
        self.head = make(WIDTH, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edges).relu()
        return self.head(x, edges)


def _geometric(conv: str) -> Patient:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's, about what it imports
        import torch_geometric  # noqa: F401
    x, adjacency, y, learnt, _ = graph()
    edges = adjacency.matrix.to_sparse_coo().indices()
    edges = edges[:, edges[0] != edges[1]]
    with seeded():
        model = GeometricNet(conv)
    patient = Patient(model, (x, edges), y, mask=learnt)
    patient.optimise(rate=1e-2)
    return patient


@healthy("GCN of torch_geometric", needs=("torch_geometric",))
def geometric_gcn() -> Patient:
    """As its users write it."""
    return _geometric("GCNConv")


@healthy("GAT of torch_geometric", needs=("torch_geometric",))
def geometric_gat() -> Patient:
    """Attention over neighbours."""
    return _geometric("GATConv")
