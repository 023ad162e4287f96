# pyright: reportMissingImports=false
"""The architectures that people bring: who builds each one, with random weights, and what it is called with.

A builder is a function without arguments that returns the module and the inputs of one call. Widths are those of the
published network; the depth is cut where more of the same blocks would only take time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Architecture:
    name: str
    build: Callable[[], Built]
    tested: bool = False  # part of make test-models; the others only of the survey
    states: tuple[str, ...] = ()  # buffers that a call changes; coremltools writes them as StateType


ALL: dict[str, Architecture] = {}


def _add(name: str, build: Callable[[], Built], tested: bool = False, states: tuple[str, ...] = ()) -> None:
    ALL[name] = Architecture(name, build, tested, states)


def image(side: int = 224, channels: int = 3) -> torch.Tensor:
    return torch.randn(1, channels, side, side)


def ids(length: int, vocabulary: int = 1000) -> torch.Tensor:
    return torch.randint(2, vocabulary, (1, length), dtype=torch.int32)


class First(nn.Module):
    """The tensors of a module that returns a dictionary or a record, the first ``count`` of them."""

    def __init__(self, inner: nn.Module, *fields: str, **fixed: Any) -> None:
        super().__init__()
        self.inner, self.fields, self.fixed = inner, fields, fixed

    def forward(self, *inputs: torch.Tensor) -> Any:
        result = self.inner(*inputs, **self.fixed)
        found = tuple(result[field] for field in self.fields)
        return found[0] if len(found) == 1 else found


# timm: images to classes.


def _timm(name: str, side: int = 224, **options: Any) -> Callable[[], Built]:
    def build() -> Built:
        import timm

        return timm.create_model(name, pretrained=False, **options), (image(side),)

    return build


TIMM = {  # name: side of the image; a plus marks those of make test-models
    "resnet18": 224,
    "+resnet50": 224,
    "resnext50_32x4d": 224,
    "seresnet50": 224,
    "resnetv2_50": 224,
    "+densenet121": 224,
    "+efficientnet_b0": 224,
    "tf_efficientnetv2_b0": 224,
    "mobilenetv2_100": 224,
    "+mobilenetv3_large_100": 224,
    "mobilenetv4_conv_small": 224,
    "+mobilenetv4_hybrid_medium": 224,
    "mobileone_s0": 224,
    "+mobilevit_xs": 256,
    "+mobilevitv2_050": 256,
    "+ghostnet_100": 224,
    "ghostnetv3_100": 224,
    "repvgg_a0": 224,
    "+repvit_m0_9": 224,
    "+fastvit_t8": 256,
    "+efficientformer_l1": 224,
    "+efficientformerv2_s0": 224,
    "+poolformer_s12": 224,
    "+swiftformer_xs": 224,
    "+edgenext_xx_small": 256,
    "+convnext_atto": 224,
    "convnextv2_atto": 224,
    "+vit_tiny_patch16_224": 224,
    "vit_small_patch32_224": 224,
    "+deit_tiny_distilled_patch16_224": 224,
    "vit_small_patch14_dinov2": 224,
    "+eva02_tiny_patch14_224": 224,
    "beit_base_patch16_224": 224,
    "+swin_tiny_patch4_window7_224": 224,
    "+swinv2_tiny_window8_256": 256,
    "+davit_tiny": 224,
    "+maxvit_tiny_rw_224": 224,
    "coatnet_0_rw_224": 224,
    "cait_xxs24_224": 224,
    "crossvit_tiny_240": 240,
    "pit_ti_224": 224,
    "+levit_128s": 224,
    "tiny_vit_5m_224": 224,
    "+xcit_nano_12_p16_224": 224,
    "mixer_s16_224": 224,
    "gmlp_s16_224": 224,
    "resmlp_12_224": 224,
    "+inception_v3": 299,
    "xception41": 299,
    "+hrnet_w18_small": 224,
    "vgg11_bn": 224,
    "+regnety_004": 224,
    "nf_resnet50": 224,
    "cspresnet50": 224,
    "ese_vovnet19b_dw": 224,
    "+focalnet_tiny_srf": 224,
    "+pvt_v2_b0": 224,
    "twins_pcpvt_small": 224,
    "volo_d1_224": 224,
    "+hiera_tiny_224": 224,
    "+mvitv2_tiny": 224,
    "sequencer2d_s": 224,
    "convmixer_768_32": 224,
    "rexnet_100": 224,
    "halonet26t": 256,
    "botnet26t_256": 256,
    "efficientvit_b0": 224,
    "efficientvit_m0": 224,
    "nest_tiny": 224,
    "nextvit_small": 224,
    "starnet_s1": 224,
    "caformer_s18": 224,
}
for _name, _side in TIMM.items():
    _fixed = {"img_size": 224} if "dinov2" in _name else {}
    _add(_name.strip("+"), _timm(_name.strip("+"), _side, **_fixed), _name.startswith("+"))


# torchvision: dense prediction, flow, video.


def _torchvision(path: str, *fields: str, side: int = 224, **options: Any) -> Callable[[], Built]:
    def build() -> Built:
        import torchvision

        found: Any = torchvision.models
        for part in path.split("."):
            found = getattr(found, part)
        module = found(weights=None, **options)
        return (First(module, *fields) if fields else module), (image(side),)

    return build


def _raft() -> Built:
    from torchvision.models.optical_flow import raft_small

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = raft_small(weights=None)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return self.inner(first, second, num_flow_updates=2)[-1]

    return Flow(), (image(128), image(128))


def _video() -> Built:
    from torchvision.models.video import r3d_18

    return r3d_18(weights=None), (torch.randn(1, 3, 8, 56, 56),)


_add("shufflenet_v2_x1_0", _torchvision("shufflenet_v2_x1_0"), True)
_add("squeezenet1_1", _torchvision("squeezenet1_1"))
_add("mnasnet1_0", _torchvision("mnasnet1_0"))
_add("googlenet", _torchvision("googlenet", init_weights=False, aux_logits=False))
_add(
    "deeplabv3_mobilenet_v3_large",
    _torchvision("segmentation.deeplabv3_mobilenet_v3_large", "out", side=256, weights_backbone=None),
    True,
)
_add("lraspp", _torchvision("segmentation.lraspp_mobilenet_v3_large", "out", side=256, weights_backbone=None))
_add("fcn_resnet50", _torchvision("segmentation.fcn_resnet50", "out", side=256, weights_backbone=None))
_add("raft_small", _raft, True)
_add("r3d_18", _video)


# transformers: text.


def _text(model: str, config: str, *fields: str, length: int = 128, **options: Any) -> Callable[[], Built]:
    def build() -> Built:
        import transformers

        chosen = getattr(transformers, config)(**options)
        chosen._attn_implementation = "sdpa"
        module = getattr(transformers, model)._from_config(chosen)
        fixed: dict[str, Any] = {"return_dict": True}
        if getattr(chosen, "use_cache", False):
            fixed["use_cache"] = False
        return First(module, *(fields or ("last_hidden_state",)), **fixed), (ids(length),)

    return build


_add("bert", _text("BertModel", "BertConfig", num_hidden_layers=4), True)
_add(
    "minilm",
    _text("BertModel", "BertConfig", hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    True,
)
_add("distilbert", _text("DistilBertModel", "DistilBertConfig", n_layers=4), True)
_add("roberta", _text("RobertaModel", "RobertaConfig", num_hidden_layers=4))
_add("albert", _text("AlbertModel", "AlbertConfig", hidden_size=768, num_attention_heads=12, num_hidden_layers=4))
_add("electra", _text("ElectraModel", "ElectraConfig", num_hidden_layers=4))
_add("mobilebert", _text("MobileBertModel", "MobileBertConfig", num_hidden_layers=4))
_add(
    "deberta",
    _text(
        "DebertaV2Model",
        "DebertaV2Config",
        hidden_size=384,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=1536,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        vocab_size=2000,
    ),
)
_add(
    "modernbert",
    _text(
        "ModernBertModel",
        "ModernBertConfig",
        num_hidden_layers=4,
        vocab_size=2000,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        cls_token_id=1,
        sep_token_id=1,
    ),
)
_add("t5_encoder", _text("T5EncoderModel", "T5Config", num_layers=4), True)
_add("gpt2", _text("GPT2LMHeadModel", "GPT2Config", "logits", n_layer=4), True)
_add(
    "pythia",
    _text(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        "logits",
        hidden_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=2048,
        vocab_size=8000,
    ),
)
_add(
    "opt",
    _text(
        "OPTForCausalLM",
        "OPTConfig",
        "logits",
        hidden_size=768,
        num_hidden_layers=4,
        ffn_dim=3072,
        vocab_size=8000,
        word_embed_proj_dim=768,
    ),
)
_add(
    "llama",
    _text(
        "LlamaForCausalLM",
        "LlamaConfig",
        "logits",
        hidden_size=1024,
        num_hidden_layers=3,
        num_attention_heads=16,
        num_key_value_heads=8,
        intermediate_size=2816,
        vocab_size=8000,
    ),
    True,
)
_add(
    "qwen3",
    _text(
        "Qwen3ForCausalLM",
        "Qwen3Config",
        "logits",
        hidden_size=1024,
        num_hidden_layers=3,
        head_dim=64,
        num_attention_heads=16,
        num_key_value_heads=8,
        intermediate_size=3072,
        vocab_size=8000,
    ),
    True,
)
_add(
    "gemma3",
    _text(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        "logits",
        hidden_size=640,
        num_hidden_layers=3,
        head_dim=256,
        num_attention_heads=4,
        num_key_value_heads=1,
        intermediate_size=2048,
        vocab_size=8000,
        sliding_window=64,
    ),
)
_add(
    "mixtral",
    _text(
        "MixtralForCausalLM",
        "MixtralConfig",
        "logits",
        hidden_size=512,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=1024,
        num_local_experts=4,
        vocab_size=8000,
        length=64,
    ),
)
_add(
    "lfm2",
    _text(
        "Lfm2ForCausalLM",
        "Lfm2Config",
        "logits",
        hidden_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=1536,
        vocab_size=8000,
        layer_types=["conv", "full_attention", "conv", "full_attention"],
    ),
)


# transformers: sound, images and both.


def _with(
    model: str,
    config: str,
    inputs: Callable[[], tuple[torch.Tensor, ...]],
    *fields: str,
    part: str | None = None,
    names: tuple[str, ...] = (),
    **options: Any,
) -> Callable[[], Built]:
    def build() -> Built:
        import transformers

        chosen = getattr(transformers, config)(**options)
        module = getattr(transformers, model)._from_config(chosen)
        inner = module if part is None else module.get_submodule(part)
        return First(inner, *(fields or ("last_hidden_state",)), return_dict=True), inputs()

    return build


_add(
    "whisper_encoder",
    _with(
        "WhisperModel",
        "WhisperConfig",
        lambda: (torch.randn(1, 80, 3000),),
        part="encoder",
        encoder_layers=4,
        decoder_layers=1,
    ),
    True,
)
_add("wav2vec2", _with("Wav2Vec2Model", "Wav2Vec2Config", lambda: (torch.randn(1, 16000),), num_hidden_layers=3), True)
_add("clip_vision", _with("CLIPVisionModel", "CLIPVisionConfig", lambda: (image(),), num_hidden_layers=4))
_add("clip_text", _text("CLIPTextModel", "CLIPTextConfig", num_hidden_layers=4, length=77))
_add("siglip_vision", _with("SiglipVisionModel", "SiglipVisionConfig", lambda: (image(),), num_hidden_layers=4))
_add("segformer", _with("SegformerForSemanticSegmentation", "SegformerConfig", lambda: (image(256),), "logits"), True)
_add(
    "detr",
    _with(
        "DetrForObjectDetection",
        "DetrConfig",
        lambda: (image(320),),
        "logits",
        "pred_boxes",
        use_pretrained_backbone=False,
        encoder_layers=2,
        decoder_layers=2,
    ),
    True,
)
_add(
    "rt_detr",
    _with("RTDetrForObjectDetection", "RTDetrConfig", lambda: (image(320),), "logits", "pred_boxes", decoder_layers=2),
)
_add(
    "yolos",
    _with(
        "YolosForObjectDetection",
        "YolosConfig",
        lambda: (image(224),),
        "logits",
        "pred_boxes",
        num_hidden_layers=3,
        image_size=[224, 224],
        hidden_size=192,
        num_attention_heads=3,
        intermediate_size=768,
    ),
)
_add(
    "depth_anything",
    _with(
        "DPTForDepthEstimation",
        "DPTConfig",
        lambda: (image(224),),
        "predicted_depth",
        num_hidden_layers=4,
        hidden_size=384,
        num_attention_heads=6,
        intermediate_size=1536,
        backbone_out_indices=[0, 1, 2, 3],
        image_size=224,
    ),
)


def _sam() -> Built:
    from transformers import SamConfig, SamModel, SamVisionConfig

    vision = SamVisionConfig(
        hidden_size=384,
        num_hidden_layers=2,
        num_attention_heads=6,
        image_size=512,
        global_attn_indexes=[1],
        mlp_dim=1536,
    )
    module = SamModel(SamConfig(vision_config=vision.to_dict())).vision_encoder
    return First(module, "last_hidden_state", return_dict=True), (image(512),)


_add("sam_vision", _sam)


# diffusers.


def _unet() -> Built:
    from diffusers import UNet2DConditionModel

    module = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(320, 640),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=768,
    )
    return First(module, "sample", return_dict=True), (
        torch.randn(1, 4, 32, 32),
        torch.tensor([10.0]),
        torch.randn(1, 77, 768),
    )


def _vae_decoder() -> Built:
    from diffusers import AutoencoderKL

    module = AutoencoderKL(
        block_out_channels=(64, 128),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        latent_channels=4,
    ).decoder
    return module, (torch.randn(1, 4, 32, 32),)


def _sd3() -> Built:
    from diffusers import SD3Transformer2DModel

    module = SD3Transformer2DModel(
        sample_size=32,
        num_layers=2,
        num_attention_heads=8,
        attention_head_dim=64,
        caption_projection_dim=512,
        joint_attention_dim=512,
        pooled_projection_dim=256,
        in_channels=16,
        out_channels=16,
        pos_embed_max_size=32,
    )

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor, text: torch.Tensor, pooled: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return self.inner(x, text, pooled, t, return_dict=False)[0]

    return Step(), (torch.randn(1, 16, 32, 32), torch.randn(1, 77, 512), torch.randn(1, 256), torch.tensor([10.0]))


_add("sd_unet", _unet, True)
_add("vae_decoder", _vae_decoder, True)
_add("sd3", _sd3)


# ultralytics.


def _yolo(configuration: str, side: int = 320) -> Callable[[], Built]:
    def build() -> Built:
        from ultralytics.nn.tasks import DetectionModel

        module = DetectionModel(configuration, verbose=False).fuse()
        module.model[-1].export = True
        module.model[-1].format = "onnx"
        return module, (image(side),)

    return build


_add("yolov5n", _yolo("yolov5n.yaml"))
_add("yolov8n", _yolo("yolov8n.yaml"), True)
_add("yolo11n", _yolo("yolo11n.yaml"), True)


# Recurrent.


class Speech(nn.Module):
    """Features, a recurrence in both directions, classes per frame."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.recurrence = kind(80, 256, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(512, 64)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrence(frames)[0])


_add("lstm", lambda: (Speech(nn.LSTM), (torch.randn(1, 50, 80),)))
_add("gru", lambda: (Speech(nn.GRU), (torch.randn(1, 50, 80),)), True)


# transformers as people export them: no wrapper, so that the result is a record of the library.


def _raw(
    model: str, config: str, inputs: Callable[[], tuple[torch.Tensor, ...]], cache: bool = False, **options: Any
) -> Callable[[], Built]:
    """A module as it is. With ``cache`` its result holds the library's cache of keys and values too."""

    def build() -> Built:
        import transformers

        if cache:
            from transformers.integrations import executorch

            executorch.register_dynamic_cache_export_support()
        module = getattr(transformers, model)._from_config(getattr(transformers, config)(**options))
        if not cache and hasattr(module.config, "use_cache"):
            module.config.use_cache = False
        return module, inputs()

    return build


_SMALL = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
_add("bert_raw", _raw("BertModel", "BertConfig", lambda: (ids(64),), **_SMALL))
_add("vit_raw", _raw("ViTForImageClassification", "ViTConfig", lambda: (image(),), **_SMALL))
_add("llama_raw", _raw("LlamaForCausalLM", "LlamaConfig", lambda: (ids(64),), True, vocab_size=1000, **_SMALL))
_add("gpt2_raw", _raw("GPT2LMHeadModel", "GPT2Config", lambda: (ids(64),), True, n_embd=256, n_layer=2, n_head=4))
_add(
    "mamba2_raw",
    _raw(
        "Mamba2ForCausalLM",
        "Mamba2Config",
        lambda: (ids(64),),
        vocab_size=1000,
        hidden_size=128,
        num_hidden_layers=2,
        num_heads=8,
        head_dim=32,
        n_groups=1,
        state_size=32,
        chunk_size=32,
    ),
)


# A decoder that keeps its keys and values in states, as Apple's recipe for Core ML has it.


class StatefulDecoder(nn.Module):
    """One layer of attention that writes a chunk of tokens to the start of its cache and reads the cache under a
    mask."""

    def __init__(self, width: int = 256, heads: int = 4, length: int = 128, count: int = 16) -> None:
        super().__init__()
        self.heads, self.size, self.count = heads, width // heads, count
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("keys", torch.zeros(1, heads, length, self.size))
        self.register_buffer("values", torch.zeros(1, heads, length, self.size))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count = self.count
        parts = self.project(self.norm(tokens)).view(1, count, 3, self.heads, self.size)
        query, key, value = (parts[:, :, place].transpose(1, 2) for place in range(3))
        self.keys[:, :, :count] = key
        self.values[:, :, :count] = value
        scores = query @ self.keys.transpose(-1, -2) / self.size**0.5 + mask
        joined = (scores.softmax(-1) @ self.values).transpose(1, 2).reshape(1, count, -1)
        return tokens + self.out(joined)


def _stateful_decoder() -> Built:
    mask = torch.full((1, 1, 16, 128), -10000.0).triu(1)
    return StatefulDecoder(), (torch.randn(1, 16, 256), mask)


_add("stateful_decoder", _stateful_decoder, states=("keys", "values"))
