# pyright: reportMissingImports=false
"""The models of these tests, written as people write them; weights are drawn from a seed and fit fp16."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as fn


def settled(module: nn.Module, seed: int = 0) -> nn.Module:
    """Weights and statistics that fp16 holds exactly, and a module that is done with training."""
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            fan = max(1, parameter[0].numel() if parameter.ndim > 1 else 4)
            parameter.copy_(torch.randn(parameter.shape, generator=drawn) / math.sqrt(fan))
        for norm in module.modules():
            if isinstance(norm, nn.modules.batchnorm._BatchNorm):
                assert norm.running_mean is not None
                assert norm.running_var is not None
                norm.running_mean.copy_(torch.randn(norm.num_features, generator=drawn) * 0.1)
                norm.running_var.copy_(torch.rand(norm.num_features, generator=drawn) + 0.5)
    return module.half().float().eval()


class Residual(nn.Module):
    """Two convolutions with batch norms, and the way around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.downsample(x))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.layers = nn.Sequential(Residual(8, 16, 2), Residual(16, 16, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.layers(self.pool(self.stem(image)))
        return self.head(torch.flatten(fn.adaptive_avg_pool2d(x, 1), 1))


class Mobile(nn.Module):
    """An inverted residual: wide, by channel, squeezed, narrow."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.Hardswish())
        self.depthwise = nn.Sequential(
            nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False), nn.BatchNorm2d(24), nn.ReLU6()
        )
        self.squeeze = nn.Conv2d(24, 6, 1)
        self.excite = nn.Conv2d(6, 24, 1)
        self.project = nn.Sequential(nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.expand(x))
        gate = fn.hardsigmoid(self.excite(fn.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.project(y * gate)


class VisionBlock(nn.Module):
    """A patch embedding, a class token, and one block."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, 32))
        self.position = nn.Parameter(torch.zeros(1, 17, 32))
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.attn = nn.MultiheadAttention(32, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class EncoderLayer(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.attention_norm, self.output_norm = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.intermediate, self.dense = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = (
            layer(x).view(n, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads) + mask
        mixed = (self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).reshape(n, length, width)
        x = self.attention_norm(x + self.output(mixed))
        return self.output_norm(x + self.dense(fn.gelu(self.intermediate(x))))


class Encoder(nn.Module):
    """As BERT is built: look-ups of words, places and kinds, then layers, then a pooler."""

    def __init__(self, words: int = 50, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.place = nn.Embedding(16, width)
        self.kind = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layer = nn.ModuleList(EncoderLayer(width) for _ in range(depth))
        self.pooler = nn.Linear(width, width)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(input_ids.shape[1])[None]
        x = self.norm(self.word(input_ids) + self.place(places) + self.kind(torch.zeros_like(input_ids)))
        mask = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layer:
            x = layer(x, mask)
        return x, self.pooler(x[:, 0]).tanh()


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class CachedAttention(nn.Module):
    """Grouped queries, rotary places, and a cache that the module itself keeps."""

    k_cache: torch.Tensor
    v_cache: torch.Tensor

    def __init__(self, width: int, heads: int, groups: int, places: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * self.size, bias=False)
        self.v_proj = nn.Linear(width, groups * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.register_buffer("k_cache", torch.zeros(1, groups, places, self.size))
        self.register_buffer("v_cache", torch.zeros(1, groups, places, self.size))

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        n, length, width = x.shape
        q = self.q_proj(x).view(n, length, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(n, length, self.groups, self.size).transpose(1, 2)
        v = self.v_proj(x).view(n, length, self.groups, self.size).transpose(1, 2)
        q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
        self.k_cache[:, :, position] = k
        self.v_cache.index_copy_(2, position, v)
        found = fn.scaled_dot_product_attention(q, self.k_cache, self.v_cache, attn_mask=mask, enable_gqa=True)
        return self.o_proj(found.transpose(1, 2).reshape(n, length, width))


class DecoderBlock(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, places: int) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), nn.RMSNorm(width, eps=1e-5)
        self.self_attn = CachedAttention(width, heads, groups, places)
        self.gate_proj, self.up_proj = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), *rest)
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(fn.silu(self.gate_proj(y)) * self.up_proj(y))


class Decoder(nn.Module):
    """As Llama is built, with a cache of a fixed number of places as its state."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, words: int = 40, width: int = 32, heads: int = 4, groups: int = 2, places: int = 8) -> None:
        super().__init__()
        self.places, half = places, width // heads // 2
        self.embed_tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList(DecoderBlock(width, heads, groups, places) for _ in range(2))
        self.norm = RMSNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        turns = torch.arange(places)[:, None] * (10000.0 ** (-torch.arange(half) / half))[None]
        table = torch.cat([turns, turns], -1)
        self.register_buffer("cos", table.cos())
        self.register_buffer("sin", table.sin())

    def forward(self, input_ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(input_ids)
        cos, sin = self.cos[position], self.sin[position]
        allowed = torch.arange(self.places)[None] <= position[:, None]
        for layer in self.layers:
            x = layer(x, cos, sin, position, allowed[None, None])
        return self.lm_head(self.norm(x))


class MarkedCache(nn.Module):
    """A cache that is written to by a line of marks: everything on the engine."""

    cache: torch.Tensor

    def __init__(self, width: int = 16, places: int = 8) -> None:
        super().__init__()
        self.key, self.query = nn.Linear(width, width), nn.Linear(width, width)
        self.register_buffer("cache", torch.zeros(1, places, width))

    def forward(self, x: torch.Tensor, marks: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.cache.copy_(self.cache * (1 - marks) + self.key(x) * marks)
        scores = self.query(x) @ self.cache.transpose(1, 2) * 0.25 + mask
        return scores.softmax(-1) @ self.cache


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = self._block(4, 16)
        self.down = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.middle = self._block(32, 32)
        self.up = nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)
        self.leave = self._block(32, 16)
        self.out = nn.Conv2d(16, 4, 1)
        self.time = nn.Linear(8, 32)

    @staticmethod
    def _block(channels: int, out: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(4, out), nn.SiLU())

    def forward(self, sample: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        first = self.enter(sample)
        turns = step[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.125])
        time = self.time(torch.cat([turns.sin(), turns.cos()], -1))
        middle = self.middle(self.down(first) + time[:, :, None, None])
        return self.out(self.leave(torch.cat([self.up(middle), first], 1)))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return fn.log_softmax(self.tag(self.lstm(x)[0]), -1)


class Detector(nn.Module):
    """Heads on two scales; boxes decoded from anchors, the best scores picked."""

    anchors: torch.Tensor

    def __init__(self, kinds: int = 3) -> None:
        super().__init__()
        self.kinds = kinds
        self.heads = nn.ModuleList(nn.Conv2d(8, 3 * (5 + kinds), 1) for _ in range(2))
        self.register_buffer(
            "anchors", torch.tensor([[[1.0, 2.0], [2.0, 1.0], [2.0, 2.0]], [[4.0, 4.0], [6.0, 4.0], [4.0, 6.0]]])
        )

    def forward(self, small: torch.Tensor, large: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = []
        for place, (head, x) in enumerate(zip(self.heads, (small, large), strict=True)):
            n, _, height, width = x.shape
            y = head(x).view(n, 3, 5 + self.kinds, height, width).permute(0, 1, 3, 4, 2).sigmoid()
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack([columns, rows], -1)[None, None]
            centre = (y[..., :2] * 2 - 0.5 + grid) * (8 * 2**place)
            extent = (y[..., 2:4] * 2) ** 2 * self.anchors[place][None, :, None, None]
            found.append(torch.cat([centre, extent, y[..., 4:]], -1).view(n, -1, 5 + self.kinds))
        boxes = torch.cat(found, 1)
        scores = boxes[..., 4] * boxes[..., 5:].amax(-1)
        return boxes, scores.topk(5).values
