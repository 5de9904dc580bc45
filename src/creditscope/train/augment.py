"""Images on the device: normalised pixels, and a padded random crop and flip per sample, batched."""

import torch
from torch import Tensor

from creditscope.tasks import ImageSettings


def draw_crops(rows: int, settings: ImageSettings, generator: torch.Generator) -> Tensor:
    """Per row: vertical and horizontal offset from 0 to 2·pad, and whether to flip; (rows, 3) on the CPU."""
    offsets = torch.randint(2 * settings.pad + 1, (rows, 2), generator=generator)
    flips = torch.randint(2, (rows, 1), generator=generator) * settings.flip
    return torch.cat([offsets, flips], dim=1)


def add_border(images: Tensor, settings: ImageSettings) -> Tensor:
    """Images (…, y, x) with zeros around them, to be made once for a whole set."""
    return torch.nn.functional.pad(images, [settings.pad] * 4)


def crop_and_flip(bordered: Tensor, rows: Tensor, crops: Tensor, settings: ImageSettings) -> Tensor:
    """Images `rows` (…) of a bordered set (images, channels, y, x), each cut out at its own offset and mirrored if so
    drawn, by one gather; (…, channels, y, x).
    """
    channels, tall, broad = bordered.shape[1:]
    height, breadth = tall - 2 * settings.pad, broad - 2 * settings.pad
    place = torch.arange(max(channels, height, breadth), device=bordered.device)
    line = (
        (rows[..., None] * channels + place[:channels])[..., None] * tall + crops[..., 0, None, None] + place[:height]
    )
    x = place[:breadth]
    x = crops[..., 1, None] + torch.where(crops[..., 2, None] > 0, breadth - 1 - x, x)
    return bordered.view(-1)[line[..., None] * broad + x[..., None, None, :]]


def pixel_scale(settings: ImageSettings, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """−mean/std and 1/(255·std) per channel on the device, to be made once: a copy in every batch would wait for it."""
    mean, std = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (settings.mean, settings.std))
    return (-mean / std).to(device, dtype), (1 / (255 * std)).to(device, dtype)


def normalise_pixels(images: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """(x/255 − mean)/std per channel, in the number format of the scale."""
    return torch.addcmul(shift, images.to(scale.dtype), scale)
