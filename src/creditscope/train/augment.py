"""Images on the device: normalised pixels, and a padded random crop and flip per sample, batched."""

import torch
from torch import Tensor

from creditscope.tasks import ImageSettings


def draw_crops(rows: int, settings: ImageSettings, generator: torch.Generator) -> Tensor:
    """Per row: vertical and horizontal offset from 0 to 2·pad, and whether to flip; (rows, 3) on the CPU."""
    offsets = torch.randint(2 * settings.pad + 1, (rows, 2), generator=generator)
    flips = torch.randint(2, (rows, 1), generator=generator) * settings.flip
    return torch.cat([offsets, flips], dim=1)


def crop_and_flip(images: Tensor, crops: Tensor, settings: ImageSettings) -> Tensor:
    """Each image (rows, channels, y, x) cut out of its zero-padded self at its own offset, and mirrored if so drawn."""
    height, breadth = images.shape[-2:]
    padded = torch.nn.functional.pad(images, [settings.pad] * 4)
    y = crops[:, 0, None] + torch.arange(height, device=images.device)
    x = torch.arange(breadth, device=images.device).expand(len(images), -1)
    x = crops[:, 1, None] + torch.where(crops[:, 2, None] > 0, breadth - 1 - x, x)
    rows = torch.arange(len(images), device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[rows, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


def pixel_scale(settings: ImageSettings, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and std per channel on the device, to be made once: a copy in every batch would wait for the device."""
    mean, std = (torch.tensor(v, dtype=dtype, device=device).view(-1, 1, 1) for v in (settings.mean, settings.std))
    return mean, std


def normalise_pixels(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x/255 − mean)/std per channel, in the number format of the mean."""
    return (images.to(mean.dtype) / 255 - mean) / std
