#!/usr/bin/env python3
"""Tiny random checkpoints of an architecture with what transformers computes from them.

Usage: make_models.py tests/data/tiny [name ...]      (no name: all of MODELS)
Needs: torch 2.13, transformers 5.24, on a CPU.

Writes NAME/config.json as transformers 5 spells it, config.v4.json (the same in the keys of published
checkpoints), model.safetensors (bfloat16), golden.json and golden.safetensors; docs/adding-a-model.md
says what is in them. All is computed in float32 with eager attention. Prompts are those of many random
ones whose greedy continuation has the clearest lead of the best token over the second, so that a
float32 engine must give every id.

Weights are random and none has a neutral value. `mutations` of a model are changes of its configuration
(a part left out, a number ignored); the script fails if one of them hardly moves the logits, because
then the goldens would not notice the same mistake in an engine.
"""

import copy
import json
import math
import os
import pathlib
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from packing import pack
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, GenerationConfig

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.set_grad_enabled(False)

LENGTHS = (1, 7, 17, 33, 100)
NUM_GREEDY = 32
NUM_KEPT = 8  # of the best candidates, among which bfloat16 decides
VOCAB = 256
EOS = 2


def models():
    from transformers import (
        Gemma2Config,
        Gemma3TextConfig,
        GraniteConfig,
        Olmo2Config,
        Phi3Config,
        SmolLM3Config,
    )

    default = {"rope_type": "default"}
    common = {
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "pad_token_id": 0,
    }
    return {
        "smollm3": {
            "config": SmolLM3Config(
                hidden_size=48,
                intermediate_size=64,
                num_hidden_layers=5,
                num_attention_heads=3,
                num_key_value_heads=1,
                tie_word_embeddings=True,
                rms_norm_eps=1e-6,
                no_rope_layer_interval=4,
                no_rope_layers=[1, 1, 1, 0, 1],
                rope_parameters=dict(rope_theta=50000.0, **default),
                **common,
            ),
            "mutations": [{"no_rope_layers": [1] * 5}],
        },
        "gemma3": {
            "config": Gemma3TextConfig(
                hidden_size=48,
                intermediate_size=48,
                num_hidden_layers=6,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=32,
                tie_word_embeddings=True,
                rms_norm_eps=1e-6,
                query_pre_attn_scalar=12,
                sliding_window=16,
                layer_types=["sliding_attention"] * 5 + ["full_attention"],
                rope_parameters={
                    "full_attention": {
                        "rope_type": "linear",
                        "factor": 8.0,
                        "rope_theta": 100000.0,
                    },
                    "sliding_attention": dict(rope_theta=1000.0, **default),
                },
                **common,
            ),
            "mutations": [
                {"query_pre_attn_scalar": 32},
                {"sliding_window": 512},
                {"sliding_window": 17},
                {"hidden_activation": "silu"},
                {"layer_types": ["full_attention"] * 6},
            ],
        },
        "gemma2": {
            "config": Gemma2Config(
                hidden_size=48,
                intermediate_size=48,
                num_hidden_layers=4,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=32,
                tie_word_embeddings=True,
                rms_norm_eps=1e-6,
                query_pre_attn_scalar=12,
                sliding_window=16,
                attn_logit_softcapping=1.5,
                final_logit_softcapping=2.0,
                rope_parameters=dict(rope_theta=10000.0, **default),
                **common,
            ),
            "mutations": [
                {"query_pre_attn_scalar": 32},
                {"sliding_window": 512},
                {"attn_logit_softcapping": None},
                {"final_logit_softcapping": None},
            ],
        },
        "phi3": {
            "config": Phi3Config(
                hidden_size=48,
                intermediate_size=64,
                num_hidden_layers=3,
                num_attention_heads=2,
                num_key_value_heads=1,
                tie_word_embeddings=False,
                rms_norm_eps=1e-5,
                original_max_position_embeddings=160,
                sliding_window=None,
                rope_parameters={
                    "rope_type": "longrope",
                    "rope_theta": 10000.0,
                    "partial_rotary_factor": 0.75,
                    "original_max_position_embeddings": 160,
                    "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.75],
                    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0],
                },
                **{**common, "max_position_embeddings": 640},
            ),
            "long_length": 200,  # beyond original_max_position_embeddings: the long factors
            "mutations": [{"max_position_embeddings": 160}],
        },
        "granite": {
            "config": GraniteConfig(
                hidden_size=64,
                intermediate_size=64,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                tie_word_embeddings=True,
                rms_norm_eps=1e-5,
                embedding_multiplier=2.5,
                residual_multiplier=0.7,
                attention_multiplier=0.4,
                logits_scaling=0.5,
                rope_parameters=dict(rope_theta=10000.0, **default),
                **common,
            ),
            "mutations": [
                {"embedding_multiplier": 1.0},
                {"residual_multiplier": 1.0},
                {"attention_multiplier": 0.25},
                {"logits_scaling": 1.0},
            ],
        },
        "olmo2": {
            "config": Olmo2Config(
                hidden_size=48,
                intermediate_size=64,
                num_hidden_layers=3,
                num_attention_heads=3,
                num_key_value_heads=1,
                tie_word_embeddings=False,
                rms_norm_eps=1e-6,
                rope_parameters=dict(rope_theta=500000.0, **default),
                **common,
            ),
            "mutations": [],
        },
    }


def randomize(model, seed):
    """All parameters random, also those that start at 0 or 1, so that each one matters."""
    generator = torch.Generator().manual_seed(seed)
    gemma = model.config.model_type.startswith("gemma")  # its norms multiply by 1 + weight
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.copy_((0.0 if gemma else 1.0) + 0.2 * noise)
        elif "embed" in name:
            # Small when tied, else the stream of residuals only repeats the token that went in.
            parameter.copy_(noise * (0.05 if model.config.tie_word_embeddings else 0.15))
        else:
            parameter.copy_(noise * 1.2 / math.sqrt(parameter.shape[-1]))
    model.tie_weights()


def published_spelling(config):
    """config.json in the keys that checkpoints of transformers 4 have."""
    c = copy.deepcopy(config)
    rope = c.pop("rope_parameters")
    if "full_attention" in rope:
        c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
        c["sliding_window_pattern"] = 6
        c.pop("_sliding_window_pattern", None)
        c.pop("layer_types")
    if c["model_type"] == "gemma2":
        c.pop("layer_types")
    c["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    if "partial_rotary_factor" in rope:
        c["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    rope.pop("original_max_position_embeddings", None)  # of phi3: is in the outer object too
    c["rope_scaling"] = (
        None if kind == "default" else {"type" if kind == "longrope" else "rope_type": kind, **rope}
    )
    c["torch_dtype"] = c.pop("dtype")
    c.pop("transformers_version", None)
    return c


def greedy_batch(model, ids, count):
    """Continues prompts of one length with a cache: tokens and margins [B, count], std of the first logits."""
    cache = DynamicCache(config=model.config)
    out = model(ids, cache=cache, use_cache=True)
    tokens, margins, std = [], [], None
    for i in range(count):
        logits = out.logits[:, -1].float()
        std = logits.std(-1) if std is None else std
        values, best = logits.topk(2, -1)
        tokens.append(best[:, 0])
        margins.append(values[:, 0] - values[:, 1])
        if i + 1 < count:
            out = model(best[:, :1], cache=cache, use_cache=True)
    return torch.stack(tokens, 1), torch.stack(margins, 1), std


def greedy_full(model, ids, count):
    """The same for one prompt without a cache: the whole sequence is computed again at each step."""
    sequence, margins = list(ids), []
    for _ in range(count):
        values, best = (
            model(torch.tensor([sequence]), use_cache=False).logits[0, -1].float().topk(2)
        )
        margins.append(float(values[0] - values[1]))
        sequence.append(int(best[0]))
    return sequence[len(ids) :], margins


def pick_prompt(model, narrow, length, generator):
    """Of the candidates with the largest smallest margin the first that bfloat16 continues equally."""
    if length == 1:
        ids = torch.arange(3, VOCAB)[:, None]
    else:
        ids = torch.randint(3, VOCAB, (192 if length <= 33 else 96, length), generator=generator)
    tokens, margins, std = greedy_batch(model, ids, NUM_GREEDY)
    varied, loops = [], []
    for b, continuation in enumerate(tokens.tolist()):
        if EOS not in continuation:
            entry = (float(margins[b].min() / std[b]), ids[b].tolist(), continuation)
            (varied if len(set(continuation)) >= 8 else loops).append(entry)
    best = sorted(varied or loops, key=lambda entry: -entry[0])[:NUM_KEPT]
    assert best, f"no prompt of {length} tokens goes on without the end token"
    narrowed = greedy_batch(narrow, torch.tensor([entry[1] for entry in best]), NUM_GREEDY)[
        0
    ].tolist()
    agreed = [entry for entry, tokens in zip(best, narrowed, strict=True) if tokens == entry[2]]
    return (agreed or best)[0][1]


def rounded(x):
    return float(f"{x:.6f}")


def golden_of(model, ids):
    logits = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    last = logits[-1]
    values, best = last.topk(10)
    logprobs = torch.log_softmax(logits.double(), -1)
    tokens, margins = greedy_full(model, ids, NUM_GREEDY)
    assert greedy_batch(model, torch.tensor([ids]), NUM_GREEDY)[0][0].tolist() == tokens, (
        "the cache matters"
    )
    return {
        "len": len(ids),
        "ids": ids,
        "top10": [[int(i), rounded(float(v))] for i, v in zip(best, values, strict=True)],
        "logits_std": rounded(float(last.std())),
        "token_logprobs": [rounded(float(logprobs[i, ids[i + 1]])) for i in range(len(ids) - 1)],
        "greedy": tokens,
        "greedy_margins": [rounded(m) for m in margins],
        "min_margin": rounded(min(margins)),
    }


def intermediates(model, ids):
    """Every step of one forward pass, [tokens, width] each: where an engine first differs is its fault."""
    captured = {}

    def keep(name):
        def hook(_module, _inputs, output):
            value = output[0] if isinstance(output, tuple) else output
            captured[name] = value.float().reshape(len(ids), -1).contiguous().numpy()

        return hook

    handles = [
        model.model.embed_tokens.register_forward_hook(keep("embed")),
        model.model.norm.register_forward_hook(keep("final_norm")),
    ]
    for i, layer in enumerate(model.model.layers):
        handles += [
            layer.register_forward_hook(keep(f"layer{i}")),
            layer.self_attn.register_forward_hook(keep(f"layer{i}.attn")),
            layer.mlp.register_forward_hook(keep(f"layer{i}.mlp")),
        ]
    captured["logits"] = model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()
    for handle in handles:
        handle.remove()
    return {f"len{len(ids)}.{name}": value.astype(np.float32) for name, value in captured.items()}


def load(folder, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager"
    ).eval()


def check_mutations(name, folder, entry, ids):
    want = load(folder)(torch.tensor([ids]), use_cache=False).logits[0, -1]
    for mutation in entry["mutations"]:
        config = AutoConfig.from_pretrained(folder)
        for key, value in mutation.items():
            setattr(config, key, value)
        other = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        moved = float(
            (other(torch.tensor([ids]), use_cache=False).logits[0, -1] - want).abs().max()
            / want.std()
        )
        print(
            f"  {name}: with {mutation} the logits move by {moved:.3f} standard deviations",
            flush=True,
        )
        assert moved > 0.02, mutation


def check_published(folder, ids):
    """The other spelling of the configuration must be the very same model."""
    with tempfile.TemporaryDirectory() as copy_of:
        shutil.copy(folder / "model.safetensors", copy_of)
        shutil.copy(folder / "config.v4.json", copy_of + "/config.json")
        batch = torch.tensor([ids])
        assert torch.equal(load(copy_of)(batch).logits, load(folder)(batch).logits)


def make(name, entry, folder):
    seed = 2000 + list(models()).index(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(entry["config"], attn_implementation="eager").float()
    randomize(model, seed)
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=EOS, pad_token_id=0)
    model = model.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.v4.json").write_text(json.dumps(published_spelling(config), indent=2) + "\n")

    model, narrow = load(folder), load(folder, torch.bfloat16)
    generator = torch.Generator().manual_seed(seed + 7)
    prompts = [pick_prompt(model, narrow, length, generator) for length in LENGTHS]
    rows = [golden_of(model, ids) for ids in prompts]
    golden = {
        "model": name,
        "seed": seed,
        "compute": "float32, eager attention, weights upcast from bfloat16",
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "prompts": rows,
    }
    if "long_length" in entry:
        ids = pick_prompt(model, narrow, entry["long_length"], generator)
        golden["long_prompts"] = [golden_of(model, ids)]
    text = json.dumps(golden, indent=1)
    for array in ("ids", "token_logprobs", "greedy", "greedy_margins", "top10"):
        text = compact(text, array)
    (folder / "golden.json").write_text(text + "\n")
    save_file(intermediates(model, prompts[1]), str(folder / "golden.safetensors"))
    check_published(folder, prompts[-1])
    check_mutations(name, folder, entry, prompts[-1])
    for file in (folder / "model.safetensors", folder / "golden.safetensors"):
        pathlib.Path(f"{file}.xz").write_bytes(pack(file.read_bytes()))
        file.unlink()
    print(
        name,
        sum(p.numel() for p in model.parameters()),
        "parameters, smallest margins / std",
        [f"{row['min_margin'] / row['logits_std']:.3f}" for row in rows],
        "distinct",
        [len(set(row["greedy"])) for row in rows],
        flush=True,
    )


def compact(text, key):
    """The arrays of `key` on one line each."""
    out, at = [], 0
    opening = f'"{key}": ['
    while (begin := text.find(opening, at)) >= 0:
        end, depth = begin + len(opening), 1
        while depth:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        out += [
            text[at:begin],
            f'"{key}": ',
            json.dumps(json.loads(text[begin + len(opening) - 1 : end])),
        ]
        at = end
    return "".join(out) + text[at:]


if __name__ == "__main__":
    target, table = pathlib.Path(sys.argv[1]), models()
    for chosen in sys.argv[2:] or list(table):
        make(chosen, table[chosen], target / chosen)
