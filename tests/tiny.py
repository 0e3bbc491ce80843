"""A tiny real base model for tests: two Llama layers, a byte-level tokenizer, a chat template.

Random weights, but a real Hugging Face directory: transformers, PEFT and our engine all load it.
Built without downloading anything, in about a tenth of a second after torch is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.adapters.digest import adapter_digest
from engine.adapters.files import lora_names, write_adapter
from engine.models.architectures import LINEAR_MODULES
from engine.types import AdapterRef

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_ID = 2  # <|im_end|>


def build_tiny_model(
    directory: str | os.PathLike[str], seed: int = 0, model_type: str = "llama", **config: Any
) -> Path:
    """Write the model to `directory` and return it.

    model_type: "llama", "qwen2" or "qwen3"; config: overrides of transformers' configuration.
    Weights are large enough (0.1) that distributions are far from uniform and adapters matter.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    out = Path(directory)
    tokenizer = _tokenizer()
    settings: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 2048,
        "initializer_range": 0.1,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": EOS_ID,
        "pad_token_id": 0,
        **config,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **settings))
    model.save_pretrained(out)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(out)
    return out


def _tokenizer() -> Tokenizer:
    """One token a byte: any text can be encoded, and decodes to itself."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def random_adapter(
    shapes: Mapping[str, tuple[int, int]], rank: int, seed: int, size: float = 0.1
) -> dict[str, np.ndarray]:
    """An adapter that changes the model: both A and B are random. shapes: (out, in) by module."""
    random = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}
    for module, (num_out, num_in) in sorted(shapes.items()):
        name_a, name_b = lora_names(module)
        tensors[name_a] = random.normal(0, size, (rank, num_in)).astype(np.float32)
        tensors[name_b] = random.normal(0, size, (num_out, rank)).astype(np.float32)
    return tensors


def store_adapter(
    directory: Path,
    shapes: Mapping[str, tuple[int, int]],
    rank: int = 4,
    seed: int = 0,
    task: str = "task",
    version: int = 0,
    targets: tuple[str, ...] = LINEAR_MODULES,
) -> AdapterRef:
    """Write a random adapter for the modules in `targets`, alpha twice the rank."""
    chosen = {name: shape for name, shape in shapes.items() if name.endswith(targets)}
    tensors = random_adapter(chosen, rank, seed)
    write_adapter(directory, tensors, rank=rank, alpha=2.0 * rank, target_modules=targets)
    return AdapterRef(task, version, adapter_digest(tensors), str(directory))
