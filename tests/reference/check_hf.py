#!/usr/bin/env python3
"""check_hf.py - Lockstep and Hugging Face's transformers on the same models.

    check_hf.py LOCKSTEP LOGITS_TOOL

Export: models that Lockstep trained load in transformers, whole and in shards; their logits agree, the tokenizers
give the same tokens, and both write the same text.  Import: models that transformers made, in float and bfloat16,
have the same loss here, and train on.  Exit 77 without transformers.
"""
import json
import os
import subprocess
import sys
import tempfile

import refs

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
try:
    import tokenizers
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(refs.SKIPPED)

LOGIT_BOUND, LOSS_BOUND = 1e-5, 1e-5  # of the largest logit, but at least of 1; absolute
CONTEXT = 32
EXPORTS = {  # model, tokenizer, largest shard
    "gpt2": ({**refs.GPT2, "mlp": "gelu_tanh"}, "char", "1GB"),
    "gpt2-untied-gelu": ({**refs.GPT2, "mlp": "gelu", "tie_embeddings": False, "d_ff": 160}, "byte", "100KB"),
    "gpt2-bpe": ({**refs.GPT2, "mlp": "gelu_tanh"}, "bpe", "1GB"),
    "llama-gqa": ({**refs.LLAMA, "tie_embeddings": False, "n_kv_head": 2, "rope_base": 500}, "byte", "1GB"),
    "llama-bias-tied": ({**refs.LLAMA, "bias": True, "norm_eps": 1e-4}, "char", "100KB"),
}


def gpt2_made(**keys):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_layer=2, n_head=4, n_embd=64, n_positions=CONTEXT, initializer_range=0.2, **keys))


def llama_made(**keys):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, num_hidden_layers=2, num_attention_heads=4, hidden_size=64, intermediate_size=96,
        max_position_embeddings=CONTEXT, initializer_range=0.2, **keys))


IMPORTS = {  # the model, its dtype, largest shard
    "gpt2": (gpt2_made, torch.float32, "1GB"),
    "gpt2-gelu": (lambda: gpt2_made(activation_function="gelu", n_inner=80, tie_word_embeddings=False),
                  torch.float32, "100KB"),
    "gpt2-bf16": (gpt2_made, torch.bfloat16, "1GB"),
    "llama": (lambda: llama_made(num_key_value_heads=2, rms_norm_eps=1e-5), torch.float32, "100KB"),
    "llama-bias-f16": (lambda: llama_made(attention_bias=True, mlp_bias=True, tie_word_embeddings=True), torch.float16,
                       "1GB"),
}


def output(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def our_logits(tool, checkpoint, ids):
    lines = output([tool, checkpoint, *map(str, ids)]).splitlines()
    return torch.tensor([[float(x) for x in line.split()] for line in lines])


def check_logits(judge, name, model, ours, ids):
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    size = max(1.0, theirs.abs().max().item())
    judge.check(name, "logits", f"largest {size:.2g}", (theirs - ours).abs().max().item() / size, LOGIT_BOUND)


def check_export(judge, lockstep, tool, name, work):
    model, tokenizer, shard = EXPORTS[name]
    config = refs.variant_config("llama-tied", work)
    config["model"] = {"type": "gpt", "n_layer": 2, "n_head": 4, "d_model": 64, "context": CONTEXT, **model}
    config["data"]["tokenizer"] = tokenizer
    if tokenizer == "bpe":
        config["data"]["tokenizer"] = os.path.join(work, "tokenizer.json")
        output([lockstep, "tokenize", config["data"]["train"], "--vocab-size", "400", "-o", config["data"]["tokenizer"]])
    config["optim"]["lr"] = 1e-2
    run, folder = os.path.join(work, name), os.path.join(work, "hf-" + name)
    refs.train(lockstep, refs.write_config(config, run + ".json"), run)
    output([lockstep, "export", run, "--format", "hf", "-o", folder, "--max-shard-size", shard])
    many = os.path.exists(os.path.join(folder, "model.safetensors.index.json"))
    judge.check(name, "shards", "as asked", 0.0 if many == (shard == "100KB") else 1.0, 0.0)
    theirs = load(folder)
    text = refs.text(3000).decode()
    ids = transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    if tokenizer == "byte":
        judge.check(name, "tokens", "bytes", float(ids != list(text.encode())), 0.0)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    judge.check(name, "tokens", "back to text", float(words.decode(ids) != text), 0.0)
    for start in (0, len(ids) // 2):
        part = ids[start:start + CONTEXT]
        check_logits(judge, name, theirs, our_logits(tool, run, part), part)
    made = theirs.generate(torch.tensor([ids[:5]]), max_new_tokens=CONTEXT - 5, do_sample=False, pad_token_id=0)
    ours = output([lockstep, "generate", run, "--prompt", words.decode(ids[:5]), "--tokens", str(CONTEXT - 5),
                   "--temperature", "0"])
    judge.check(name, "greedy text", repr(ours[-12:]), float(words.decode(made[0].tolist()) != ours), 0.0)


def save_tokenizer(folder, work):
    """A byte-level BPE of 256 tokens and merges, by Python's tokenizers; its tokens of the text."""
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    bpe.train([os.path.join(work, "text.txt")], tokenizers.trainers.BpeTrainer(
        vocab_size=256, initial_alphabet=[], special_tokens=[], show_progress=False))
    transformers.PreTrainedTokenizerFast(tokenizer_object=bpe).save_pretrained(folder)
    return bpe.encode(refs.text(2000).decode()).ids


def torch_loss(model, tokens):
    """The mean loss over all whole sequences, as `lockstep eval` cuts them."""
    total, count = 0.0, (len(tokens) - 1) // CONTEXT
    with torch.no_grad():
        for q in range(count):
            part = torch.tensor(tokens[q * CONTEXT:(q + 1) * CONTEXT + 1])
            logits = model(part[None, :-1]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, part[1:], reduction="sum").item()
    return total / (count * CONTEXT)


def check_import(judge, lockstep, tool, name, work):
    make, dtype, shard = IMPORTS[name]
    torch.manual_seed(11)
    folder, file = os.path.join(work, "made-" + name), os.path.join(work, name + ".safetensors")
    made = make()
    for parameter in made.parameters():  # biases start at 0 and norms at 1, which would hide a wrong order
        if parameter.ndim == 1:
            parameter.data += 0.2 * torch.randn(parameter.shape)
    made.to(dtype).save_pretrained(folder, max_shard_size=shard)
    ids = save_tokenizer(folder, work) if name == "gpt2-gelu" else list(refs.text(2000))
    output([lockstep, "import", folder, "-o", file])
    theirs, data = load(folder), os.path.join(work, "eval.txt")
    with open(data, "wb") as f:
        f.write(refs.text(2000))
    check_logits(judge, name, theirs, our_logits(tool, file, ids[:CONTEXT]), ids[:CONTEXT])
    ours = json.loads(output([lockstep, "eval", file, "--data", data]))["loss"]
    judge.check(name, "loss", f"{ours:.3f}", abs(ours - torch_loss(theirs, ids)), LOSS_BOUND)
    done = subprocess.run([lockstep, "import", folder, "-o", file], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          check=True)
    section = next(line for line in done.stderr.decode().splitlines() if line.startswith('"model": '))
    config = refs.variant_config("llama-tied", work)
    config["model"] = {**json.loads(section[len('"model": '):]), "init": file, "dropout": 0}
    if name == "gpt2-gelu":
        config["data"]["tokenizer"] = os.path.join(folder, "tokenizer.json")
    config["optim"]["lr"] = 5e-3
    metrics, _ = refs.train(lockstep, refs.write_config(config, file + ".json"), os.path.join(work, "on-" + name))
    losses = [line["loss"] for line in metrics if "loss" in line]
    judge.check(name, "loss of step 1", f"{losses[0]:.3f}", abs(losses[0] - ours), 0.5)
    judge.check(name, "loss of step 50", f"{losses[0]:.3f} to {losses[-1]:.3f}", losses[-1] / losses[0], 0.8)


def main():
    judge = refs.Judge()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as work:
        refs.variant_config("llama-tied", work)  # writes the text
        for name in EXPORTS:
            check_export(judge, sys.argv[1], sys.argv[2], name, work)
        for name in IMPORTS:
            check_import(judge, sys.argv[1], sys.argv[2], name, work)
    return judge.finish()


if __name__ == "__main__":
    sys.exit(main())
