"""Models as people have them, small, with rows for them; each says which modules its stream runs through."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import attached
import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS, TOKENS, WORDS, CLASSES = 6, 8, 13, 3


@dataclass
class Patient:
    model: nn.Module
    inputs: Any
    target: Tensor
    taps: list[str]


def labels(*shape: int, classes: int = CLASSES) -> Tensor:
    return torch.randint(classes, shape)


def blocks(name: str, count: int) -> list[str]:
    return [name.format(i) for i in range(count)]


def gpt2() -> Patient:
    ids = labels(ROWS, TOKENS, classes=WORDS)
    sizes = {"n_layer": 3, "n_embd": 16, "vocab_size": WORDS, "n_positions": TOKENS}
    model = attached.gpt2(**sizes)
    mask = torch.ones_like(ids)
    return Patient(model, {"input_ids": ids, "attention_mask": mask}, ids, blocks("transformer.h.{}", 3))


def bert() -> Patient:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=TOKENS, num_labels=CLASSES,
    )  # fmt: skip
    inputs = {"input_ids": labels(ROWS, TOKENS, classes=WORDS)}
    return Patient(BertForSequenceClassification(config), inputs, labels(ROWS), blocks("bert.encoder.layer.{}", 3))


def vit() -> Patient:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4,
        num_labels=CLASSES,
    )  # fmt: skip
    model = ViTForImageClassification(config)
    names = [name for name, m in model.named_modules() if type(m).__name__ == "ViTLayer"]
    return Patient(model, torch.randn(ROWS, 3, 8, 8), labels(ROWS), names)


def resnet18() -> Patient:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 4, 8, 8], depths=[2, 2, 2, 2], layer_type="basic", num_labels=CLASSES
    )
    names = [f"resnet.encoder.stages.{stage}.layers.{i}" for stage in range(4) for i in range(2)]
    return Patient(ResNetForImageClassification(config), torch.randn(ROWS, 3, 32, 32), labels(ROWS), names)


class Down(nn.Sequential):
    def __init__(self, inputs: int, outputs: int):
        super().__init__(nn.MaxPool2d(2), nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True))


class Up(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
        self.conv = nn.Conv2d(2 * outputs, outputs, 3, padding=1)

    def forward(self, h: Tensor, skip: Tensor) -> Tensor:
        return torch.relu(self.conv(torch.cat([self.up(h), skip], 1)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.downs = nn.ModuleList([Down(4, 8), Down(8, 16)])
        self.ups = nn.ModuleList([Up(16, 8), Up(8, 4)])
        self.head = nn.Conv2d(4, CLASSES, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        kept = [self.stem(x)]
        for down in self.downs:
            kept.append(down(kept[-1]))
        h = kept.pop()
        for up in self.ups:
            h = up(h, kept.pop())
        return {"out": self.head(h), "features": h}


def unet() -> Patient:
    names = ["downs.0", "downs.1", "ups.0", "ups.1"]
    return Patient(UNet(), torch.randn(ROWS, 1, 8, 8), labels(ROWS, 8, 8), names)


class Words(nn.Module):
    """Embedding, LSTM layers, a head on the last word."""

    def __init__(self, *, batch_first: bool = True):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        sizes = (8, 10, 10)
        pairs = pairwise(sizes)
        self.layers = nn.ModuleList(nn.LSTM(a, b, batch_first=batch_first) for a, b in pairs)
        self.head = nn.Linear(10, CLASSES)
        self.batch_first = batch_first

    def forward(self, ids: Tensor) -> tuple[Tensor, Any]:
        h = self.embed(ids)
        h, kept = h if self.batch_first else h.transpose(0, 1), None
        for layer in self.layers:
            h, kept = layer(h)
        return self.head(h[:, -1] if self.batch_first else h[-1]), kept


def lstm() -> Patient:
    names = ["embed", "layers.0", "layers.1"]
    return Patient(Words(), labels(ROWS, TOKENS, classes=WORDS), labels(ROWS), names)


class Convolved(nn.Module):
    def __init__(self, width: int = 8):
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.first, self.second = GCNConv(4, width), GCNConv(width, width)
        self.last = GCNConv(width, CLASSES)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = self.second(self.first(x, edges).relu(), edges).relu()
        return functional.log_softmax(self.last(h, edges), dim=-1)


def gcn() -> Patient:
    return Patient(Convolved(), (torch.randn(20, 4), labels(2, 60, classes=20)), labels(20), ["first", "second"])


PATIENTS: dict[str, Callable[[], Patient]] = {
    "GPT-2": gpt2, "BERT": bert, "ViT": vit, "ResNet-18": resnet18, "U-Net": unet, "LSTM": lstm, "GCN": gcn,
}  # fmt: skip
