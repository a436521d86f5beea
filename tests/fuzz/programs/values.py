"""Values and memory layouts of the tensors that a random program reads."""

import zlib

import torch

# Kinds of values, by dtype class. ``index:n`` are whole numbers from 0 to n - 1; ``index:n:dim``
# are ones without two equal elements along ``dim``.
FLOAT_FILLS = ("normal", "normal", "normal", "whole", "uniform", "positive", "wavy")
INT_FILLS = ("small", "small", "few")
LAYOUTS = ("plain", "transposed", "stepped", "offset", "expanded", "channels_last")


def number_of(name: str) -> int:
    """A number for a name, the same in each process."""
    return zlib.crc32(name.encode()) % 1_000_003


def draw(fill: str, sizes: tuple, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """A tensor of a kind of values; floating-point values are exact in ``dtype``."""
    generator = torch.Generator().manual_seed(seed)
    if fill.startswith("index:"):
        high, *dims = (int(part) for part in fill.split(":")[1:])
        if dims:
            return _distinct(high, list(sizes), dims[0], generator).to(dtype)
        return torch.randint(0, max(high, 1), sizes, generator=generator).to(dtype)
    if dtype is torch.bool:
        return torch.rand(sizes, generator=generator, dtype=torch.float32) < 0.5
    if not dtype.is_floating_point:
        low, high = (0, 3) if fill == "few" else (-5, 6)
        if dtype is torch.uint8:
            low, high = 0, 9
        return torch.randint(low, high, sizes, generator=generator).to(dtype)
    return _floats(fill, sizes, generator).to(dtype)


def _distinct(high: int, sizes: list, dim: int, generator) -> torch.Tensor:
    """Whole numbers below ``high``, no two of them equal along ``dim``.

    Raises:
        ValueError: There are not that many.
    """
    count = sizes[dim]
    if count > high:
        raise ValueError(f"{count} different whole numbers below {high}")
    all_sizes = [*sizes[:dim], high, *sizes[dim + 1:]]
    ordered = torch.rand(all_sizes, generator=generator, dtype=torch.float32).argsort(dim)
    return ordered.narrow(dim, 0, count).contiguous()


def _floats(fill: str, sizes: tuple, generator) -> torch.Tensor:
    def normal():
        return torch.randn(sizes, generator=generator, dtype=torch.float32)

    def uniform():
        return torch.rand(sizes, generator=generator, dtype=torch.float32)

    if fill == "whole":  # equal ones among them
        return torch.randint(-3, 4, sizes, generator=generator).float()
    if fill == "uniform":
        return uniform()
    if fill == "positive":
        return uniform() * 1.5 + 0.5
    if fill == "wavy":  # of two signs, none near 0
        return torch.where(uniform() < 0.5, -1.0, 1.0) * (uniform() + 0.5)
    if fill == "large":
        return normal() * 300
    if fill == "special":
        x = normal()
        for value in (0.0, -0.0, float("inf"), float("-inf"), float("nan")):
            x = torch.where(uniform() < 0.08, value, x)
        return x
    return normal()


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values (but for ``expanded``) in another memory layout."""
    if layout == "transposed" and x.dim() >= 2:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "stepped" and x.dim() >= 1:
        return torch.stack([x, torch.zeros_like(x)], dim=-1)[..., 0]
    if layout == "offset" and x.numel() > 0:
        padded = x.new_zeros(x.numel() + 3)
        padded[3:] = x.reshape(-1)
        return padded[3:].view(x.shape)
    if layout == "expanded" and x.dim() >= 1 and x.shape[-1] > 0:
        return x[..., :1].expand(x.shape)
    if layout == "channels_last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x
