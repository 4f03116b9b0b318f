"""llama.cpp's server on a tiny random model that it makes itself. Prints the address.

Runs in ``.tools/engines/llamacpp``, not in the environment of the tests.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

WIDTH, INNER, LAYERS, HEADS, CONTEXT = 32, 64, 2, 4, 4096
SLOTS = 2


def write_model(path: Path) -> None:
    """Write a LLaMA of 43,000 random weights with a tokenizer of single characters."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.02).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    bytes_of = [f"<0x{number:02X}>" for number in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_of, "\u2581", *map(chr, range(33, 127))]
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_name("tiny")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores([0.0] * len(tokens))
    out.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    out.add_tensor("token_embd.weight", weights(len(tokens), WIDTH))
    out.add_tensor("output.weight", weights(len(tokens), WIDTH))
    out.add_tensor("output_norm.weight", ones)
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"blk.{layer}.{name}.weight", ones)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            out.add_tensor(f"blk.{layer}.{name}.weight", weights(WIDTH, WIDTH))
        for name in ("ffn_gate", "ffn_up"):
            out.add_tensor(f"blk.{layer}.{name}.weight", weights(INNER, WIDTH))
        out.add_tensor(f"blk.{layer}.ffn_down.weight", weights(WIDTH, INNER))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main(folder: Path) -> None:
    """Serve until the process is ended."""
    model = folder / "tiny.gguf"
    write_model(model)
    settings = xllamacpp.CommonParams()
    settings.model.path = str(model)
    settings.endpoint_metrics = settings.endpoint_slots = settings.endpoint_props = True
    settings.n_parallel = SLOTS
    settings.kv_unified = False
    settings.n_ctx = CONTEXT * SLOTS
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.cpuparams.n_threads = 1
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
