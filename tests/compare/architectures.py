# SPDX-License-Identifier: Apache-2.0
"""Defines small versions of architectures of the transformers library.

Each has operators that neither the others nor the models of handwritten.py
have. Entries are like those of models.MODELS: (module, function that makes one
microbatch).
"""
import torch
import transformers as hf
from torch import nn

from handwritten import HANDWRITTEN
from heads import HEADS

VOCABULARY, ROWS, LENGTH = 96, 2, 16
ARCHITECTURES = dict(HANDWRITTEN, **HEADS)
TEXT = dict(vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=1,
            eos_token_id=2)
ENCODER = dict(TEXT, hidden_size=32, num_hidden_layers=2,
               num_attention_heads=4, intermediate_size=48,
               max_position_embeddings=32, hidden_dropout_prob=0.0,
               attention_probs_dropout_prob=0.0)
DECODER = dict(TEXT, hidden_size=32, num_hidden_layers=2,
               num_attention_heads=4, intermediate_size=48,
               max_position_embeddings=32)


class Labelled(nn.Module):
    """Returns (loss, logits) of a model that is called with labels."""

    def __init__(self, model, **fixed):
        super().__init__()
        self.model = model
        self.fixed = fixed

    def forward(self, **inputs):
        out = self.model(**inputs, **self.fixed)
        return out.loss, out.logits


class Squared(nn.Module):
    """Returns the mean square of the output as the loss of a model that has no
    loss."""

    def __init__(self, model, output, **fixed):
        super().__init__()
        self.model = model
        self.output = output
        self.fixed = fixed

    def forward(self, **inputs):
        out = getattr(self.model(**inputs, **self.fixed), self.output)
        return (out ** 2).mean(), out


def architecture(function):
    ARCHITECTURES[function.__name__.strip("_")] = function
    return function


def tokens(rows=ROWS, length=LENGTH):
    return torch.randint(3, VOCABULARY, (rows, length))


def causal(model, **fixed):
    def batch():
        x = tokens()
        return dict(input_ids=x, labels=x.clone())
    return Labelled(model, use_cache=False, **fixed), batch


def masked_less(model):
    """Returns a masked language model that is called without an attention
    mask."""
    def batch():
        x = tokens()
        return dict(input_ids=x, labels=torch.where(
            torch.rand(x.shape) < 0.5, x, -100))
    return Labelled(model), batch


def masked(model):
    def batch():
        x = tokens()
        mask = torch.ones_like(x)
        mask[0, 12:] = 0
        hidden = torch.rand(x.shape) < 0.5
        return dict(input_ids=x, attention_mask=mask,
                    labels=torch.where(hidden, x, -100))
    return Labelled(model), batch


def translated(model):
    return (Labelled(model, use_cache=False),
            lambda: dict(input_ids=tokens(), labels=tokens(length=10)))


def picture(model, size=32, classes=5):
    return (Labelled(model),
            lambda: dict(pixel_values=torch.randn(ROWS, 3, size, size),
                         labels=torch.randint(0, classes, (ROWS,))))


# --- decoders ---------------------------------------------------------------

@architecture
def opt():
    return causal(hf.OPTForCausalLM(hf.OPTConfig(
        **TEXT, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        ffn_dim=48, max_position_embeddings=32, word_embed_proj_dim=32,
        dropout=0.0)))


@architecture
def neox():
    return causal(hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**DECODER)))


@architecture
def bloom():
    return causal(hf.BloomForCausalLM(hf.BloomConfig(
        **TEXT, hidden_size=32, n_layer=2, n_head=4, hidden_dropout=0.0,
        attention_dropout=0.0)))


@architecture
def falcon():
    return causal(hf.FalconForCausalLM(hf.FalconConfig(
        **TEXT, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        multi_query=True)))


@architecture
def mistral():
    return causal(hf.MistralForCausalLM(hf.MistralConfig(
        **DECODER, num_key_value_heads=2, sliding_window=8)))


@architecture
def gemma2():
    return causal(hf.Gemma2ForCausalLM(hf.Gemma2Config(
        **DECODER, num_key_value_heads=2, head_dim=8, sliding_window=8)))


@architecture
def phi():
    return causal(hf.PhiForCausalLM(hf.PhiConfig(
        **DECODER, resid_pdrop=0.0, embd_pdrop=0.0)))


@architecture
def qwen3():
    return causal(hf.Qwen3ForCausalLM(hf.Qwen3Config(
        **DECODER, num_key_value_heads=2, head_dim=8)))


@architecture
def codegen():
    return causal(hf.CodeGenForCausalLM(hf.CodeGenConfig(
        **TEXT, n_embd=32, n_layer=2, n_head=4, n_positions=32, n_ctx=32,
        rotary_dim=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)))


@architecture
def llama4():
    """Returns a model with rotary embeddings in complex numbers and one expert
    per token."""
    return causal(hf.Llama4ForCausalLM(hf.Llama4TextConfig(
        **DECODER, num_key_value_heads=2, head_dim=8, intermediate_size_mlp=48,
        num_local_experts=2, attention_chunk_size=8, moe_layers=[1],
        layer_types=["chunked_attention", "full_attention"])))


# --- mixtures, state spaces -------------------------------------------------

@architecture
def mixtral():
    return causal(hf.MixtralForCausalLM(hf.MixtralConfig(
        **DECODER, num_key_value_heads=2, num_local_experts=4,
        num_experts_per_tok=2, experts_implementation="batched_mm")))


@architecture
def afmoe():
    """Returns a mixture whose router is initialised to zero: all experts score
    equally."""
    return causal(hf.AfmoeForCausalLM(hf.AfmoeConfig(
        **DECODER, num_key_value_heads=2, head_dim=8, num_experts=4,
        num_experts_per_tok=2, num_dense_layers=1, moe_intermediate_size=24,
        sliding_window=8, experts_implementation="batched_mm")))


@architecture
def marked():
    """Returns a model that sets rows selected by one mask to a vector, and
    rows selected by another mask to a number."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, 8)
            self.mark = nn.Parameter(torch.randn(8))

        def forward(self, x):
            y = self.embed(x)
            y[x > 60] = self.mark
            y[x < 20] = 0.5
            return (y ** 3).mean(), y

    return Net(), lambda: dict(x=tokens())


@architecture
def mamba():
    return causal(hf.MambaForCausalLM(hf.MambaConfig(
        **TEXT, hidden_size=16, num_hidden_layers=2, state_size=4)))


@architecture
def rwkv():
    return causal(hf.RwkvForCausalLM(hf.RwkvConfig(
        **TEXT, hidden_size=16, num_hidden_layers=2, context_length=16)))


# --- encoders ---------------------------------------------------------------

@architecture
def roberta():
    return masked(hf.RobertaForMaskedLM(hf.RobertaConfig(**ENCODER)))


@architecture
def albert():
    return masked(hf.AlbertForMaskedLM(hf.AlbertConfig(
        **ENCODER, embedding_size=16)))


@architecture
def fnet():
    return masked_less(hf.FNetForMaskedLM(hf.FNetConfig(
        **TEXT, hidden_size=32, num_hidden_layers=2, intermediate_size=48,
        max_position_embeddings=32, hidden_dropout_prob=0.0)))


@architecture
def xlm():
    """Returns a model that concatenates an empty cache with keys and has
    assertions on data."""
    return masked_less(hf.XLMWithLMHeadModel(hf.XLMConfig(
        **TEXT, emb_dim=32, n_layers=2, n_heads=4, dropout=0.0,
        attention_dropout=0.0, max_position_embeddings=32)))


@architecture
def distilbert():
    return masked(hf.DistilBertForMaskedLM(hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=48,
        max_position_embeddings=32, dropout=0.0, attention_dropout=0.0)))


@architecture
def electra():
    return masked(hf.ElectraForMaskedLM(hf.ElectraConfig(
        **ENCODER, embedding_size=16)))


@architecture
def deberta():
    return masked(hf.DebertaV2ForMaskedLM(hf.DebertaV2Config(
        **ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"],
        position_buckets=8)))


# --- encoder and decoder ----------------------------------------------------

@architecture
def bart():
    return translated(hf.BartForConditionalGeneration(hf.BartConfig(
        **TEXT, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32,
        dropout=0.0, decoder_start_token_id=2, forced_eos_token_id=None)))


@architecture
def pegasus():
    return translated(hf.PegasusForConditionalGeneration(hf.PegasusConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32,
        dropout=0.0)))


# --- sound ------------------------------------------------------------------

@architecture
def whisper():
    model = hf.WhisperForConditionalGeneration(hf.WhisperConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8,
        max_source_positions=20, max_target_positions=16, dropout=0.0,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, begin_suppress_tokens=None))
    return (Labelled(model, use_cache=False),
            lambda: dict(input_features=torch.randn(ROWS, 8, 40),
                         labels=tokens(length=10)))


@architecture
def wav2vec2():
    model = hf.Wav2Vec2Model(hf.Wav2Vec2Config(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16),
        conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4,
        hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
        feat_proj_dropout=0.0, layerdrop=0.0, apply_spec_augment=False))
    return (Squared(model, "last_hidden_state"),
            lambda: dict(input_values=torch.randn(ROWS, 400)))


@architecture
def spectrum():
    """Returns a model with more complex operators than any other model has."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 5, 2))
            self.filter = nn.Parameter(torch.randn(8, 2))
            self.turn = torch.polar(torch.ones(6), torch.arange(6) * 0.3)

        def forward(self, x):
            y = torch.fft.rfft2(x, norm="ortho")
            y = y * torch.view_as_complex(self.weight)[:, :5] + 0.5
            y = torch.fft.irfft2(y, s=(6, 7), norm="ortho")
            z = torch.fft.fft(y, n=8, dim=-1)
            z = z * torch.view_as_complex(self.filter)
            z = torch.cat([z, z.conj() / (z.abs() + 1).unsqueeze(0)[0]], -1)
            z = torch.fft.ifftn(z.transpose(-1, -2), dim=(-2, -1))
            z = z * self.turn.view(1, -1) @ z.transpose(-2, -1)
            z = torch.complex(z.real.tanh(), z.imag) - torch.exp(z * 0.1)
            out = torch.view_as_real(z).flatten(-2)
            return (out ** 2).mean() + z[:, 0].angle().cos().mean(), out

    return Net(), lambda: dict(x=torch.randn(ROWS, 6, 8))


# --- pictures ---------------------------------------------------------------

@architecture
def swin():
    return picture(hf.SwinForImageClassification(hf.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[1, 1],
        num_heads=[2, 4], window_size=4, drop_path_rate=0.0, num_labels=5,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)))


@architecture
def convnext():
    return picture(hf.ConvNextForImageClassification(hf.ConvNextConfig(
        hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], num_labels=5,
        drop_path_rate=0.0)))


@architecture
def mobilenet():
    return picture(hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(
        image_size=32, depth_multiplier=0.25, num_labels=5,
        classifier_dropout_prob=0.0)))


@architecture
def regnet():
    return picture(hf.RegNetForImageClassification(hf.RegNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1],
        groups_width=8, num_labels=5)))


@architecture
def efficientnet():
    """Returns a model whose pooling window is larger than the input of the
    pooling."""
    return picture(hf.EfficientNetForImageClassification(hf.EfficientNetConfig(
        image_size=32, width_coefficient=0.25, depth_coefficient=0.1,
        hidden_dim=320, depth_divisor=4, num_labels=5, dropout_rate=0.0,
        drop_connect_rate=0.0)))


@architecture
def segformer():
    return picture(hf.SegformerForImageClassification(hf.SegformerConfig(
        hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 2], num_labels=5, drop_path_rate=0.0,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0)))


@architecture
def clip():
    model = hf.CLIPModel(hf.CLIPConfig(
        text_config=dict(**DECODER, projection_dim=16),
        vision_config=dict(hidden_size=32, num_hidden_layers=2,
                           num_attention_heads=4, intermediate_size=48,
                           image_size=32, patch_size=8, projection_dim=16),
        projection_dim=16))

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, pixel_values):
            out = self.model(input_ids=input_ids, pixel_values=pixel_values,
                             return_loss=True)
            return out.loss, out.logits_per_image

    def batch():
        x = tokens(length=12)
        x[:, -1] = 2
        return dict(input_ids=x, pixel_values=torch.randn(ROWS, 3, 32, 32))
    return Pairs(), batch
