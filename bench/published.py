# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
"""The networks whose latency somebody has published, built from the constructor that their row names.

A row of ``models_train.json`` says ``timm:repvit_m1_1 (features_only)`` or ``transformers:WhisperModel(...).encoder``
and the shapes of its inputs; :func:`build` gives the module and one call's inputs, or says why it cannot. Needs the
libraries of ``make test-models``. Sizes of published checkpoints that a constructor only names stand in tables here.

``python bench/published.py '["CONSTRUCTOR", SHAPES]' FILE`` writes one network as a sketch; bench/models.py calls it.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]
Shapes = Sequence[Sequence[int]]


class NotBuiltError(Exception):
    """No constructor: the code of the network is not in a library that we have, or its inputs are not published."""


class Fields(nn.Module):
    """Named results of a module that returns a record."""

    def __init__(self, inner: nn.Module, *fields: str, **fixed: Any) -> None:
        super().__init__()
        self.inner, self.fields, self.fixed = inner, fields, fixed

    def forward(self, *inputs: torch.Tensor) -> Any:
        result = self.inner(*inputs, **self.fixed)
        found = tuple(getattr(result, field) for field in self.fields)
        return found[0] if len(found) == 1 else found


def build(constructor: str, shapes: Shapes | None) -> Built:
    """The module of a row, in the form that is converted: branches of training merged, no dropout."""
    if not shapes:
        raise NotBuiltError("the shapes of its inputs are not published")
    for pattern, make in _MAKERS.items():
        if found := re.fullmatch(pattern, constructor):
            return make(shapes, *found.groups())
    raise NotBuiltError("its code is in no library that we have")


def _images(shapes: Shapes) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(*shape) for shape in shapes)


def _arguments(text: str | None) -> dict[str, Any]:
    """``width_mult=0.35`` or ``act_layer=GELU``, as the rows write them."""
    found: dict[str, Any] = {}
    for part in (text or "").split(","):
        if "=" in part:
            name, value = part.split("=")
            found[name.strip()] = float(value) if value[0].isdigit() else value.lower()
    return found


def _timm(shapes: Shapes, name: str, arguments: str | None, rest: str) -> Built:
    import timm
    from timm.utils.model import reparameterize_model

    if "neck" in rest:
        raise NotBuiltError("the neck is in no library that we have")
    options, side = _arguments(arguments), shapes[0][-1]
    if "features_only" in rest:
        options["features_only"] = True
    if name.startswith(("efficientformer", "swiftformer", "tiny_vit")) and side not in (224, 256):
        options["img_size"] = side
    try:
        module = timm.create_model(name, **options)
    except TypeError as error:
        if "img_size" not in str(error):
            raise
        options.pop("img_size")
        module = timm.create_model(name, **options)
        _attend_to(module, side // 32)
    return reparameterize_model(module.eval()), _images(shapes)


def _attend_to(module: nn.Module, side: int) -> None:
    """EfficientFormer's attention knows one side of the map only: replace it by one for another."""
    from timm.models.efficientformer import Attention

    for block in list(module.modules()):
        mixer = getattr(block, "token_mixer", None)
        if isinstance(mixer, Attention):
            block.token_mixer = Attention(mixer.qkv.in_features, resolution=side)


def _torchvision(shapes: Shapes, name: str, arguments: str | None) -> Built:
    import torchvision

    if name.startswith("ssd"):
        raise NotBuiltError("its post-processing has no form")
    return getattr(torchvision.models, name)(**_arguments(arguments)).eval(), _images(shapes)


def _keras(shapes: Shapes, name: str) -> Built:
    return _torchvision(shapes, name.lower(), None)  # the same networks but for the order of norms and biases


def _ids(shapes: Shapes) -> torch.Tensor:
    return torch.randint(2, 1000, tuple(shapes[0]), dtype=torch.int32)


def _distilbert(shapes: Shapes) -> Built:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    module = DistilBertForSequenceClassification(DistilBertConfig(attn_implementation="eager"))
    return Fields(module.eval(), "logits"), (_ids(shapes),)


MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


def _encoder(shapes: Shapes, name: str) -> Built:
    """A text encoder without a head."""
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

    small = "MiniLM-L6" in name
    module = (
        BertModel(BertConfig(**MINILM, attn_implementation="eager"), add_pooling_layer=False)
        if small
        else DistilBertModel(DistilBertConfig(attn_implementation="eager"))
    )
    return Fields(module.eval(), "last_hidden_state"), (_ids(shapes),)


GPT2 = {"gpt2": (768, 12, 12), "gpt2-medium": (1024, 24, 16), "gpt2-large": (1280, 36, 20), "gpt2-xl": (1600, 48, 25)}
"""Width, layers, heads."""


def _gpt2(shapes: Shapes, name: str) -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    width, layers, heads = GPT2[name]
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=heads, use_cache=False, attn_implementation="eager")
    return Fields(GPT2LMHeadModel(config).eval(), "logits"), (_ids(shapes),)


PYTHIA = {
    "70m": (512, 6, 8), "160m": (768, 12, 12), "410m": (1024, 24, 16), "1b": (2048, 16, 8), "1.4b": (2048, 24, 16),
    "2.8b": (2560, 32, 32),
}  # fmt: skip


def _pythia(shapes: Shapes, name: str) -> Built:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    width, layers, heads = PYTHIA[name]
    config = GPTNeoXConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=50304,
        rotary_pct=0.25,
        use_cache=False,
        attn_implementation="eager",
    )
    return Fields(_half(GPTNeoXForCausalLM, config), "logits"), (_ids(shapes),)


WHISPER = {"tiny": (384, 4, 6), "base": (512, 6, 8), "small": (768, 12, 12), "medium": (1024, 24, 16),
           "large-v2": (1280, 32, 20), "large-v3-turbo": (1280, 32, 20)}  # fmt: skip


def _whisper(shapes: Shapes, name: str) -> Built:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    width, layers, heads = WHISPER[name]
    config = WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        num_mel_bins=shapes[0][1],
        attn_implementation="eager",
    )
    return Fields(WhisperEncoder(config).eval(), "last_hidden_state"), _images(shapes)


def _parakeet(shapes: Shapes, layers: str, width: str) -> Built:
    from transformers import ParakeetEncoder, ParakeetEncoderConfig

    bins, frames = shapes[0][1:]
    config = ParakeetEncoderConfig(
        hidden_size=int(width),
        num_hidden_layers=int(layers),
        num_attention_heads=8,
        intermediate_size=4 * int(width),
        num_mel_bins=bins,
        attn_implementation="eager",
    )
    module = Fields(_half(ParakeetEncoder, config), "last_hidden_state")
    return module, (torch.randn(1, frames, bins),)


def _unet(shapes: Shapes, name: str) -> Built:
    from diffusers import UNet2DConditionModel

    sizes: dict[str, Any] = {
        "sample_size": shapes[0][-1],
        "cross_attention_dim": shapes[2][1],
        "block_out_channels": (320, 640, 1280, 1280),
        "layers_per_block": 2,
        "attention_head_dim": 8,
    }
    if "stable-diffusion-2" in name:
        sizes |= {"attention_head_dim": (5, 10, 20, 20), "use_linear_projection": True}
    text = torch.randn(shapes[0][0], 77, shapes[2][1])
    inputs: tuple[torch.Tensor, ...] = (torch.randn(*shapes[0]), torch.full((shapes[0][0],), 10.0), text)
    if "xl" in name:
        sizes |= {
            "attention_head_dim": (5, 10, 20),
            "block_out_channels": (320, 640, 1280),
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            "transformer_layers_per_block": (1, 2, 10),
            "use_linear_projection": True,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 2816,
        }
        return _Xl(_half(UNet2DConditionModel, None, **sizes)), (*inputs, torch.randn(12), torch.randn(*shapes[4]))
    return Fields(_half(UNet2DConditionModel, None, **sizes), "sample"), inputs


class _Xl(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self, x: torch.Tensor, t: torch.Tensor, text: torch.Tensor, times: torch.Tensor, pooled: torch.Tensor
    ) -> Any:
        added = {"text_embeds": pooled, "time_ids": times.reshape(2, 6)}
        return self.inner(x, t, text, added_cond_kwargs=added).sample


def _half(kind: Callable[..., nn.Module], config: Any, **sizes: Any) -> Any:
    """Large modules with weights in half precision, which is what the engine gets, and half of the memory."""
    torch.set_default_dtype(torch.float16)
    try:
        module = kind(config) if config is not None else kind(**sizes)
    finally:
        torch.set_default_dtype(torch.float32)
    return module.float().eval() if sum(p.numel() for p in module.parameters()) < 5e8 else module.eval()


_MAKERS: dict[str, Callable[..., Built]] = {
    r"timm:(\w+)(?:\(([^)]*)\))?((?: .*)?)": _timm,
    r"torchvision:(\w+)(?:\(([^)]*)\))?": _torchvision,
    r"keras:(\w+)(?: \(.*\))?": _keras,
    r"transformers:DistilBertForSequenceClassification": _distilbert,
    r"transformers:(?:DistilBertModel|BertModel)\(([\w/.-]+)\)": _encoder,
    r"transformers:GPT2LMHeadModel\(([\w-]+)\)": _gpt2,
    r"transformers:GPTNeoXForCausalLM\(EleutherAI/pythia-([\w.]+)\)": _pythia,
    r"transformers:WhisperModel\(openai/whisper-([\w-]+)\)\.encoder": _whisper,
    r"transformers:WhisperEncoder\(openai/whisper-([\w-]+)\)": _whisper,
    r"transformers:ParakeetEncoder\((\d+) x (\d+)\)": _parakeet,
    r"diffusers:UNet2DConditionModel\(([^)]*)\)": _unet,
}


def main() -> int:
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "models"))
    import exporters
    import sketches

    import aneforge as af

    exporters.declare_vision_ops()
    constructor, shapes = json.loads(sys.argv[1])
    torch.manual_seed(0)
    try:
        module, inputs = build(constructor, shapes)
        if any(parameter.dtype == torch.float16 for parameter in module.parameters()):
            inputs = tuple(x.half() if x.is_floating_point() else x for x in inputs)
        with torch.no_grad():
            sketches.write(af.from_torch(module.requires_grad_(False), inputs), Path(sys.argv[2]))
    except (NotBuiltError, af.AneforgeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
