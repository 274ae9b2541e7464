# SPDX-License-Identifier: Apache-2.0
"""Defines the models that sweep.py cuts in every way: those of models.MODELS
and small versions of well-known architectures.

Entries of ZOO are functions that return (module, function that makes one
microbatch).
"""
import torch
import transformers as hf
from torch import nn
from torch.nn import functional as F

import models
from architectures import DECODER, ENCODER, VOCABULARY, causal, masked, \
    picture, tokens, Labelled
from handwritten import fno

ZOO = {name: lambda entry=entry: (entry[0](), entry[1])
       for name, entry in models.MODELS.items()}


def entry(function):
    ZOO[function.__name__] = function
    return function


class Convolutions(nn.Module):
    """A model with batch and group norms, an in-place activation and two kinds
    of pooling."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8),
            nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.body = nn.Sequential(
            nn.Conv2d(8, 16, 3, padding=1, groups=2), nn.GroupNorm(4, 16),
            nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(16, 5)

    def forward(self, x, target):
        y = self.head(self.body(self.stem(x)))
        return F.cross_entropy(y, target), y


@entry
def convnet():
    return Convolutions(), lambda: {"x": torch.randn(4, 3, 16, 16),
                                    "target": torch.randint(0, 5, (4,))}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.layers = nn.LSTM(16, 24, num_layers=2, batch_first=True)
        self.head = nn.Linear(24, VOCABULARY)

    def forward(self, x, y):
        z = self.head(self.layers(self.embed(x))[0])
        return F.cross_entropy(z.flatten(0, 1), y.flatten()), z


@entry
def lstm():
    return Recurrent(), lambda: {"x": tokens(), "y": tokens()}


@entry
def llama():
    return causal(hf.LlamaForCausalLM(hf.LlamaConfig(
        **dict(DECODER, num_hidden_layers=4), num_key_value_heads=2)))


@entry
def bert():
    return masked(hf.BertForMaskedLM(hf.BertConfig(
        **dict(ENCODER, num_hidden_layers=4))))


@entry
def t5():
    model = hf.T5ForConditionalGeneration(hf.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_ff=48, d_kv=8, num_layers=2,
        num_heads=4, dropout_rate=0.0, decoder_start_token_id=0))
    return Labelled(model, use_cache=False), lambda: {
        "input_ids": tokens(), "labels": tokens(length=12)}


@entry
def vit():
    return picture(hf.ViTForImageClassification(hf.ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=4,
        num_attention_heads=4, intermediate_size=48, num_labels=5,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)))


@entry
def resnet():
    # The picture is so large that the last norms have more than one pixel per
    # row: with two values per channel all gradients would be rounding errors.
    return picture(hf.ResNetForImageClassification(hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 24], depths=[1, 1, 1, 1],
        num_labels=5)), size=64)


entry(fno)
