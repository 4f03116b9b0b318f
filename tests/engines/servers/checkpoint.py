"""A model folder of the Hugging Face kind without weights, with a tokenizer of characters."""

from __future__ import annotations

import json
from pathlib import Path

SPECIAL = ("<unk>", "<s>", "</s>")


def write(folder: Path) -> None:
    """Write the settings and the tokenizer of a tiny LLaMA."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = [*SPECIAL, *map(chr, range(32, 127)), "\n"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    added = [
        {"id": vocabulary[token], "content": token, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for token in SPECIAL
    ]
    pages: dict[str, object] = {
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": added,
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": "[\\s\\S]"},
                "behavior": "Isolated",
                "invert": False,
            },
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
            **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "model_max_length": 4096,
            "chat_template": "{% for message in messages %}{{ message['role'] }}: "
            "{{ message['content'] }}\n{% endfor %}assistant: ",
        },
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 32,
            "num_hidden_layers": 2,
            "vocab_size": len(tokens),
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": "float32",
        },
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2},
    }
    for name, page in pages.items():
        (folder / name).write_text(json.dumps(page), encoding="utf-8")
