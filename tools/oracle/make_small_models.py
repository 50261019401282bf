"""Small random checkpoints with sliding windows, or with eyes, and what transformers computes.

Writes tests/data/tiny/NAME/{config.json,model.safetensors.xz,golden.json}. Needs torch, transformers 5.
Usage: make_small_models.py [folder]
"""

import json
import math
import sys
from pathlib import Path

import torch
from packing import pack
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    DynamicCache,
    Mistral3Config,
    MistralConfig,
    PixtralVisionConfig,
    Qwen3Config,
)

LENGTHS = [1, 15, 16, 17, 33, 100]
NUM_GREEDY = 32
NUM_CANDIDATES = 48
WINDOW = 16

BASE = {
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "attention_dropout": 0.0,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
MODELS = {
    "mistral-window": MistralConfig(num_hidden_layers=3, sliding_window=WINDOW, **BASE),
    "qwen3-windows": Qwen3Config(
        num_hidden_layers=4,
        use_sliding_window=True,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"] * 2,
        tie_word_embeddings=True,
        **BASE,
    ),
    "mistral3": Mistral3Config(
        text_config=MistralConfig(num_hidden_layers=2, sliding_window=None, **BASE),
        vision_config=PixtralVisionConfig(
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            head_dim=8,
            image_size=28,
            patch_size=14,
        ),
        tie_word_embeddings=False,
    ),
}


def randomize(model, seed):
    """About unit gain for every matrix, norm weights around 1: nothing can be left out unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if "norm" in name:
            weight.copy_(1.0 + 0.2 * noise)
        elif "embed_tokens" in name:
            weight.copy_(0.1 * noise)
        else:
            weight.copy_(noise / math.sqrt(weight.shape[-1]))
    model.tie_weights()


def greedy(model, ids):
    """Continuations of equally long prompts [n, length] -> tokens [n, 32], margins [n, 32]."""
    cache = DynamicCache(config=model.config.get_text_config())
    tokens, margins, step = [], [], ids
    for _ in range(NUM_GREEDY):
        logits = model(step, cache=cache, use_cache=True).logits[:, -1]
        best = logits.topk(2, -1)
        tokens.append(best.indices[:, 0])
        margins.append(best.values[:, 0] - best.values[:, 1])
        step = best.indices[:, :1]
    return torch.stack(tokens, 1), torch.stack(margins, 1)


def uncached_tokens(model, ids):
    """The same without a cache: the window is a mask over the whole sequence."""
    ids = list(ids)
    begin = len(ids)
    for _ in range(NUM_GREEDY):
        ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[begin:]


def golden_prompt(model, length, generator):
    """Of many random prompts the one whose best logits lead most clearly."""
    candidates = torch.randint(0, BASE["vocab_size"], (NUM_CANDIDATES, length), generator=generator)
    tokens, margins = greedy(model, candidates)
    best = int(margins.min(-1).values.argmax())
    ids = candidates[best].tolist()
    assert uncached_tokens(model, ids) == tokens[best].tolist()
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    top = logits[-1].topk(10)
    logprobs = torch.log_softmax(logits.double(), -1)
    return {
        "len": length,
        "ids": ids,
        "top10": [
            [int(i), round(float(v), 6)] for i, v in zip(top.indices, top.values, strict=True)
        ],
        "token_logprobs": [round(float(logprobs[i, ids[i + 1]]), 6) for i in range(length - 1)],
        "greedy": tokens[best].tolist(),
        "greedy_margins": [round(float(m), 6) for m in margins[best]],
    }


def make(name, config, folder, seed):
    """Saves a checkpoint in bfloat16, and goldens of its weights widened to float32."""
    kind = AutoModelForImageTextToText if name == "mistral3" else AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation="eager").float()
    randomize(model, seed)
    model = model.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    weights = folder / "model.safetensors"
    Path(f"{weights}.xz").write_bytes(pack(weights.read_bytes()))
    weights.unlink()
    generator = torch.Generator().manual_seed(seed + 1)
    prompts = [golden_prompt(model, length, generator) for length in LENGTHS]
    (folder / "golden.json").write_text(
        json.dumps({"model": name, "prompts": prompts}, separators=(",", ":")) + "\n"
    )
    print(name, [min(p["greedy_margins"]) for p in prompts])


def make_dynamic(folder):
    """Log-probabilities of a window twice as long as the context, with dynamic rotary scaling."""
    config = AutoConfig.from_pretrained(folder)
    config.max_position_embeddings = 64
    config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    golden = json.loads((folder / "golden.json").read_text())
    ids = golden["prompts"][-1]["ids"][:128]
    logprobs = torch.log_softmax(model(torch.tensor([ids]), use_cache=False).logits[0].double(), -1)
    values = [round(float(logprobs[i, ids[i + 1]]), 6) for i in range(len(ids) - 1)]
    result = {
        "changes": {
            "max_position_embeddings": config.max_position_embeddings,
            "rope_parameters": config.rope_parameters,
        },
        "ids": ids,
        "token_logprobs": values,
    }
    (folder / "dynamic.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")


def main():
    """Makes every model below the given folder, and dynamic.json of llama-f32, which must be there."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/tiny")
    for seed, (name, config) in enumerate(MODELS.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        make(name, config, root / name, 2000 + 10 * seed)
    make_dynamic(root / "llama-f32")


if __name__ == "__main__":
    main()
