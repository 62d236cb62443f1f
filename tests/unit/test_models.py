#!/usr/bin/env python3
"""test_models.py LOCKSTEP - generate, export and import from outside, with models of random values.

    generate   the same text with and without the cache, from any seed, beyond the context; what each option does
    export     both styles, whole and in shards, come back bit for bit; what Hugging Face cannot express is refused
    import     directories that are damaged, incomplete or of other models are refused by name, and write nothing
"""
import glob
import json
import os
import shutil
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "reference"))
import cli  # noqa: E402
import refs  # noqa: E402

LLAMA = {"model__norm": "rmsnorm", "model__position": "rope", "model__mlp": "swiglu", "model__bias": False,
         "model__n_head": 4, "model__n_kv_head": 2, "model__tie_embeddings": False}
STYLES = {
    "gpt2": {},
    "gpt2_tanh": {"model__mlp": "gelu_tanh", "model__tie_embeddings": False, "model__d_ff": 48},
    "llama": LLAMA,
    "llama_bias": {**LLAMA, "model__bias": True, "model__tie_embeddings": True},
    "mixed": {"model__position": "rope", "model__n_kv_head": 1, "model__recompute": True},
}


def make(folder, name, **changes):
    config = cli.write_config(folder, name + ".json", data__tokenizer="char", **changes)
    cli.check_ok(cli.run(folder, "init", config, "-o", name + ".safetensors"))


def generate(folder, name, *options):
    r = cli.run(folder, "generate", name + ".safetensors", *options)
    cli.check_ok(r)
    return r.stdout


def test_same_text(folder):
    """Values of 20 times the size: the initial ones give nearly equal odds, which any model would hit by chance."""
    for name in STYLES:
        tensors = refs.read_safetensors(os.path.join(folder, name + ".safetensors"))
        for tensor, (_, values) in tensors.items():
            if "ln_" not in tensor:
                for i, value in enumerate(values):
                    values[i] = 6 * value
        rewrite(os.path.join(folder, name + ".safetensors"), tensors)
        for options in (["--temperature", "0"], ["--seed", "5"], ["--top-k", "3", "--seed", "6"], ["--prompt", "the lock"],
                        ["--top-p", "0.5", "--temperature", "1.5"], ["--prompt", "the lock step of"]):
            cli.row(f"{name} {' '.join(options)}")
            text = generate(folder, name, "--tokens", "60", *options)
            cli.equal(generate(folder, name, "--tokens", "60", "--no-cache", *options), text, "text without the cache")
            cli.check(len(set(text)) > 4 or "0" in options, f"a text of few characters: {text!r}")


def rewrite(path, tensors):
    """The values of a file anew, under its metadata without the hash."""
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    del header["__metadata__"]["params_sha256"]
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    begin = {name: entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"}
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(packed)) + packed)
        for name in sorted(begin, key=begin.get):
            f.write(tensors[name][1].tobytes())


def test_options(folder):
    cli.row("seed")
    base = generate(folder, "gpt2", "--tokens", "40")
    cli.equal(generate(folder, "gpt2", "--tokens", "40", "--seed", "1337"), base, "the default seed")
    cli.check(generate(folder, "gpt2", "--tokens", "40", "--seed", "1338") != base, "another seed, the same text")
    cli.equal(len(base), 40, "characters")
    cli.row("greedy")
    greedy = generate(folder, "gpt2", "--tokens", "40", "--temperature", "0")
    cli.equal(generate(folder, "gpt2", "--tokens", "40", "--top-k", "1"), greedy, "top-k 1")
    cli.equal(generate(folder, "gpt2", "--tokens", "40", "--top-p", "0"), greedy, "top-p 0")
    cli.row("prompt")
    text = generate(folder, "gpt2", "--tokens", "40", "--prompt", "rank")
    cli.check(text.startswith("rank") and len(text) == 44, f"the prompt comes first: {text!r}")
    cli.equal(generate(folder, "gpt2", "--tokens", "0", "--prompt", "rank"), "rank", "no tokens")
    cli.row("stop")
    stop = base[20:22]
    cli.equal(generate(folder, "gpt2", "--tokens", "40", "--stop", stop), base[:base.index(stop)], "ends before it")
    cli.equal(generate(folder, "gpt2", "--tokens", "40", "--stop", "zzz"), base, "a stop that does not come")
    cli.row("bytes")
    cli.check_ok(cli.run(folder, "init", cli.write_config(folder, "byte.json"), "-o", "byte.safetensors"))
    text = cli.run(folder, "generate", "byte.safetensors", "--tokens", "200", "--temperature", "2").stdout
    cli.check("\ufffd" in text, "bytes that are no UTF-8 become U+FFFD")
    cli.row("run directory")
    cli.check_ok(cli.run(folder, "train", "gpt2.json"))
    cli.check_ok(cli.run(folder, "generate", "r", "--tokens", "5"))


def test_fast(folder):
    """The cache pays: by 5 times at 256 tokens; it is by about 10 here (tests/bench/generate_rate.py has more)."""
    if os.environ.get("LS_SANITIZE"):
        return
    cli.row("tokens/s")
    cli.check_ok(cli.run(folder, "init", cli.write_config(folder, "wide.json", model__d_model=128, model__n_layer=4,
                                                          model__context=256), "-o", "wide.safetensors"))
    rates = [[float(cli.run(folder, "generate", "wide.safetensors", "--tokens", "255", *options).stderr.split()[5])
              for options in ([], ["--no-cache"])] for _ in range(3)]
    cached, plain = max(r[0] for r in rates), max(r[1] for r in rates)
    cli.check(cached > 5 * plain, f"{cached} tokens/s with the cache, {plain} without")


def test_refused(folder):
    for options, texts in [
            (["--prompt", "the lock step of "], ["17 tokens", "gpt2.safetensors holds 16"]),
            (["--prompt", "Z"], ["unknown character 'Z'"]),
            (["--tokens", "-1"], ["--tokens -1"]),
            (["--tokens", "many"], ["--tokens many"]),
            (["--temperature", "-0.1"], ["--temperature -0.1"]),
            (["--temperature", "nan"], ["--temperature nan"]),
            (["--top-p", "1.1"], ["--top-p 1.1"]),
            (["--top-k", "1.5"], ["--top-k 1.5"]),
            (["--seed", "x"], ["--seed x"]),
            (["--sed", "1"], ["--sed"])]:
        cli.row("generate " + " ".join(options))
        cli.check_error(cli.run(folder, "generate", "gpt2.safetensors", *options), 2, *texts)
    for options, texts in [
            ([], ["--format"]), (["--format", "onnx", "-o", "x"], ["onnx", "hf or safetensors"]),
            (["--format", "hf"], ["-o PATH"]),
            (["--format", "hf", "-o", "x", "--max-shard-size", "5XB"], ["5XB"]),
            (["--format", "hf", "-o", "x", "--max-shard-size", "0"], ["--max-shard-size 0"]),
            (["--format", "safetensors", "-o", "x", "--max-shard-size", "5"], ["--max-shard-size"])]:
        cli.row("export " + " ".join(options))
        cli.check_error(cli.run(folder, "export", "gpt2.safetensors", *options), 2, *texts)
    cli.row("import without -o")
    cli.check_error(cli.run(folder, "import", "x"), 2, "-o")


def test_export(folder):
    for name in STYLES:
        cli.row("export " + name)
        r = cli.run(folder, "export", name + ".safetensors", "--format", "hf", "-o", "hf_" + name)
        if name == "mixed":
            cli.check_error(r, 2, "rope", "layernorm")
            cli.check(not os.path.exists(os.path.join(folder, "hf_mixed")), "nothing is written")
            continue
        cli.check_ok(r)
        cli.check_ok(cli.run(folder, "export", name + ".safetensors", "--format", "hf", "-o", "cut_" + name,
                             "--max-shard-size", "20KB"))
        cut = [f for f in os.listdir(os.path.join(folder, "cut_" + name)) if f.startswith("model-")]
        cli.check(len(cut) > 2 and f"model-00002-of-{len(cut):05}.safetensors" in cut, f"shards: {cut}")
        for kind in ("hf_", "cut_"):
            cli.check_ok(cli.run(folder, "import", kind + name, "-o", "back.safetensors"))
            r = cli.run(folder, "diff", name + ".safetensors", "back.safetensors")
            cli.check(r.returncode == 0, f"import of {kind}{name}: {r.stdout}")
            cli.equal(generate(folder, "back", "--tokens", "20"), generate(folder, name, "--tokens", "20"), "text")
    for change, texts in [
            ({"model__norm": "rmsnorm"}, ["learned positions", "rmsnorm"]),
            ({"model__mlp": "swiglu"}, ["learned positions", "swiglu"]),
            ({"model__bias": False}, ["learned positions", "model.bias false"]),
            ({"model__n_kv_head": 1}, ["learned positions", "n_kv_head"]),
            ({**LLAMA, "model__mlp": "gelu_tanh"}, ["rope", "gelu_tanh"])]:
        cli.row(f"not for Hugging Face: {texts[1]}")
        make(folder, "other", **change)
        cli.check_error(cli.run(folder, "export", "other.safetensors", "--format", "hf", "-o", "x"), 2, *texts)
    cli.row("a directory that is not empty")
    cli.check_error(cli.run(folder, "export", "gpt2.safetensors", "--format", "hf", "-o", "hf_llama"), 1, "hf_llama",
                    "not empty")
    cli.equal(cli.temporaries(folder), [], "temporary files")
    cli.row("one file")
    cli.check_ok(cli.run(folder, "export", "r", "--format", "safetensors", "-o", "one.safetensors"))
    cli.equal(cli.run(folder, "diff", "r", "one.safetensors").returncode, 0, "diff")
    info = json.loads(cli.run(folder, "inspect", "one.safetensors", "--json").stdout)
    cli.equal(info["step"], 4, "its step")


def test_train_on(folder):
    cli.row("model.init of an import")
    cli.check_ok(cli.run(folder, "import", "hf_llama", "-o", "start.safetensors"))
    cli.check_ok(cli.run(folder, "train", "llama.json", "--resume", "never", "--set", "model.init=start.safetensors",
                         "--set", "run.dir=on"))
    cli.check_ok(cli.run(folder, "train", "llama.json", "--resume", "never", "--set", "model.init=llama.safetensors",
                         "--set", "run.dir=own"))
    cli.equal(cli.summary(folder, "on")["params_sha256"], cli.summary(folder, "own")["params_sha256"], "bits")


def edit(path, change):
    with open(path, encoding="utf-8") as f:
        content = json.load(f)
    change(content)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f)


def set_key(key, value):
    return lambda folder: edit(os.path.join(folder, "config.json"), lambda c: c.update({key: value}))


def on_index(change):
    return lambda folder: edit(os.path.join(folder, "model.safetensors.index.json"), lambda c: change(c["weight_map"]))


def on_tensors(change):
    def apply(folder):
        path = os.path.join(folder, "model.safetensors")
        tensors = refs.read_safetensors(path)
        change(tensors)
        refs.write_safetensors(path, tensors)
    return apply


def write(name, content):
    def apply(folder):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content)
    return apply


def remove(pattern):
    def apply(folder):
        for path in glob.glob(os.path.join(folder, pattern)):
            os.remove(path)
    return apply


def first_shard(weight_map, value):
    weight_map[sorted(weight_map)[0]] = value


def tokenizer(change):
    return lambda folder: edit(os.path.join(folder, "tokenizer.json"), change)


# what is wrong, of which export, exit status, texts
BAD = [
    (set_key("model_type", "mistral"), "hf_llama", 2, ["config.json", 'model_type "mistral"']),
    (set_key("hidden_act", "relu"), "hf_llama", 2, ["config.json", 'hidden_act "relu"']),
    (set_key("activation_function", "mish"), "hf_gpt2", 2, ["activation_function", "mish"]),
    (set_key("head_dim", 16), "hf_llama", 2, ["head_dim 16"]),
    (set_key("rope_scaling", {"type": "linear", "factor": 2.0}), "hf_llama", 2, ["rope_scaling", "linear"]),
    (set_key("rope_scaling", {"rope_type": "llama3", "factor": 8.0}), "hf_llama", 2, ["rope_scaling", "llama3"]),
    (set_key("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e4}), "hf_llama", 2, ["rope_parameters", "yarn"]),
    (set_key("partial_rotary_factor", 0.5), "hf_llama", 2, ["partial_rotary_factor 0.5"]),
    (set_key("mlp_bias", True), "hf_llama", 2, ["mlp_bias true"]),
    (set_key("scale_attn_by_inverse_layer_idx", True), "hf_gpt2", 2, ["scale_attn_by_inverse_layer_idx true"]),
    (set_key("attn_pdrop", 0.1), "hf_gpt2", 2, ["attn_pdrop 0.1"]),
    (set_key("n_layer", 0), "hf_gpt2", 1, ["config.json", "n_layer"]),
    (set_key("n_layer", 1000000), "hf_gpt2", 2, ["model.n_layer"]),
    (set_key("n_head", 3), "hf_gpt2", 1, ["config.json", "3 heads"]),
    (set_key("n_layer", "two"), "hf_gpt2", 1, ["config.json", "n_layer"]),
    (set_key("n_layer", 3), "hf_gpt2", 1, ["transformer.h.2", "missing"]),
    (set_key("n_layer", 1), "hf_gpt2", 1, ["transformer.h.1", "no place"]),
    (set_key("n_positions", 32), "hf_gpt2", 1, ["wpe.weight", "(16,32)", "(32,32)"]),
    (set_key("n_inner", 64), "hf_gpt2", 1, ["c_fc", "shape"]),
    (set_key("tie_word_embeddings", False), "hf_gpt2", 1, ["lm_head.weight", "missing"]),
    (write("config.json", b"{"), "hf_gpt2", 1, ["config.json"]),
    (write("config.json", b"[]"), "hf_gpt2", 1, ["config.json", "an object"]),
    (remove("config.json"), "hf_gpt2", 1, ["config.json", "No such file"]),
    (remove("model.safetensors"), "hf_gpt2", 1, ["model.safetensors"]),
    (write("model.safetensors", b"\x08\0\0\0\0\0\0\0{}"), "hf_gpt2", 1, ["model.safetensors"]),
    (remove("model-00002-of-*"), "cut_gpt2", 1, ["model-00002-of-", "No such file"]),
    (on_index(lambda m: first_shard(m, "../hf_gpt2/model.safetensors")), "cut_gpt2", 1, ["index.json", "../hf_gpt2"]),
    (on_index(lambda m: first_shard(m, "..")), "cut_gpt2", 1, ["index.json", '".."']),
    (on_index(lambda m: first_shard(m, "/etc/passwd")), "cut_gpt2", 1, ["index.json", "/etc/passwd"]),
    (on_index(lambda m: first_shard(m, 3)), "cut_gpt2", 1, ["index.json", "a number"]),
    (on_index(lambda m: first_shard(m, m[sorted(m)[-1]])), "cut_gpt2", 1, ["index.json", "is not in"]),
    (on_index(lambda m: m.pop(sorted(m)[0])), "cut_gpt2", 1, ["index.json", "its files hold"]),
    (on_index(lambda m: m.clear()), "cut_gpt2", 1, ["weight_map", "empty"]),
    (on_tensors(lambda t: t.update(extra=t["transformer.ln_f.bias"])), "hf_gpt2", 1, ["'extra'", "no place"]),
    (on_tensors(lambda t: t.update({"lm_head.weight": t["transformer.wpe.weight"]})), "hf_gpt2", 1, ["lm_head.weight"]),
    (on_tensors(lambda t: t.update({"lm_head.weight": (t["transformer.wte.weight"][0],
                                                       t["transformer.wte.weight"][1][::-1])})),
     "hf_gpt2", 1, ["lm_head.weight", "tie_word_embeddings"]),
    (tokenizer(lambda t: t["model"].update(type="WordPiece")), "hf_gpt2", 2, ["tokenizer.json", "WordPiece"]),
    (tokenizer(lambda t: t["model"].update(type="Unigram")), "hf_gpt2", 2, ["tokenizer.json", "Unigram"]),
    (tokenizer(lambda t: t["model"].pop("vocab")), "hf_gpt2", 1, ["tokenizer.json", "vocab"]),
]


def test_bad_directories(folder):
    for change, base, status, texts in BAD:
        cli.row(f"{base}: {' '.join(texts)}")
        shutil.copytree(os.path.join(folder, base), os.path.join(folder, "bad"))
        change(os.path.join(folder, "bad"))
        cli.check_error(cli.run(folder, "import", "bad", "-o", "bad.safetensors"), status, *texts)
        cli.check(not os.path.exists(os.path.join(folder, "bad.safetensors")), "nothing is written")
        shutil.rmtree(os.path.join(folder, "bad"))
    cli.row("temporary files")
    cli.equal(cli.temporaries(folder), [], "left")


def without_prefix(tensors):
    for name in list(tensors):
        if name.startswith("transformer."):
            tensors[name[len("transformer."):]] = tensors.pop(name)


def test_good_directories(folder):
    """What other versions write: no prefix, masks among the parameters, the tied head twice, rope_parameters."""
    for what, base, change in [
            ("no prefix", "gpt2", on_tensors(without_prefix)),
            ("mask", "gpt2", on_tensors(lambda t: t.update({"transformer.h.0.attn.bias": t["transformer.ln_f.bias"]}))),
            ("head twice", "gpt2", on_tensors(lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"]}))),
            ("rope_parameters", "llama", set_key("rope_parameters", {"rope_type": "default", "rope_theta": 10000.0})),
            ("no tokenizer", "llama", remove("tokenizer.json"))]:
        cli.row(what)
        shutil.copytree(os.path.join(folder, "hf_" + base), os.path.join(folder, "good"))
        change(os.path.join(folder, "good"))
        cli.check_ok(cli.run(folder, "import", "good", "-o", "good.safetensors"))
        cli.equal(cli.run(folder, "diff", base + ".safetensors", "good.safetensors").returncode, 0, "diff")
        shutil.rmtree(os.path.join(folder, "good"))


def import_good(folder, base, change, name):
    """A changed copy of the directory hf_BASE as NAME.safetensors."""
    copy = os.path.join(folder, "copy")
    shutil.copytree(os.path.join(folder, "hf_" + base), copy)
    change(copy)
    r = cli.run(folder, "import", "copy", "-o", name + ".safetensors")
    shutil.rmtree(copy)
    return r


def test_end_of_text(folder):
    """The text ends before a token that the model's files name, and --ignore-eos goes on."""
    base = generate(folder, "gpt2", "--tokens", "40")
    with open(os.path.join(folder, "hf_gpt2", "tokenizer.json"), encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]
    char = base[10]
    end, want = vocab[char], base[:base.index(char)]
    generation = "generation_config.json"
    for row, change in [
            ("generation_config.json", write(generation, b'{"eos_token_id": %d}' % end)),
            ("a list", write(generation, b'{"eos_token_id": [50256, %d]}' % end)),
            ("config.json", lambda d: (os.remove(os.path.join(d, generation)), set_key("eos_token_id", end)(d)))]:
        cli.row("end of text in " + row)
        cli.check_ok(import_good(folder, "gpt2", change, "ends"))
        cli.equal(generate(folder, "ends", "--tokens", "40"), want, "text")
        cli.equal(generate(folder, "ends", "--tokens", "40", "--no-cache"), want, "text without the cache")
        cli.equal(generate(folder, "ends", "--tokens", "40", "--ignore-eos"), base, "text with --ignore-eos")
    cli.row("end of text exported")
    cli.check_ok(cli.run(folder, "export", "ends.safetensors", "--format", "hf", "-o", "hf_ends"))
    for name in ("config.json", generation):
        with open(os.path.join(folder, "hf_ends", name), encoding="utf-8") as f:
            cli.equal(json.load(f)["eos_token_id"], end, name)
    cli.check_ok(cli.run(folder, "export", "ends.safetensors", "--format", "safetensors", "-o", "ends2.safetensors"))
    cli.equal(generate(folder, "ends2", "--tokens", "40"), want, "text of the exported file")
    for row, content in [("beyond the vocabulary", b'{"eos_token_id": 50256}'), ("null", b'{"eos_token_id": null}')]:
        cli.row("end of text " + row)
        cli.check_ok(import_good(folder, "gpt2", write(generation, content), "ends"))
        cli.equal(generate(folder, "ends", "--tokens", "40"), base, "text")
    for content, texts in [(b'{"eos_token_id": "x"}', ["a string"]), (b'{"eos_token_id": [-1]}', ["a number"]),
                           (b'{"eos_token_id": %s}' % str(list(range(17))).encode(), ["more than 16"])]:
        cli.row(f"end of text {content.decode()}")
        r = import_good(folder, "gpt2", write(generation, content), "refused")
        cli.check_error(r, 2 if "more than 16" in texts else 1, generation, *texts)


def as_vocab(folder):
    """tokenizer.json as vocab.json and merges.txt."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    vocab = tokenizer["model"]["vocab"]
    vocab.update({token["content"]: token["id"] for token in tokenizer["added_tokens"]})
    write("vocab.json", json.dumps(vocab).encode())(folder)
    write("merges.txt", "\n".join(["#version: 0.2", *merges, ""]).encode())(folder)
    remove("tokenizer.json")(folder)
    remove("tokenizer_config.json")(folder)


def test_bpe(folder):
    """A tokenizer's own end of text; and the same model from vocab.json and merges.txt."""
    cli.row("the tokenizer's end of text")
    cli.check_ok(cli.run(folder, "tokenize", "text.txt", "--vocab-size", "260", "--special", "<|endoftext|>", "-o", "bpe.json"))
    cli.write_config(folder, "words.json", data__tokenizer="bpe.json")
    cli.check_ok(cli.run(folder, "init", "words.json", "-o", "words.safetensors"))
    options = ["--tokens", "2000", "--temperature", "3"]
    whole = generate(folder, "words", *options, "--ignore-eos")
    if cli.check("<|endoftext|>" in whole, "the token is drawn"):
        cli.equal(generate(folder, "words", *options), whole[:whole.index("<|endoftext|>")], "text")
    cli.row("vocab.json and merges.txt")
    cli.check_ok(cli.run(folder, "export", "words.safetensors", "--format", "hf", "-o", "hf_words"))
    r = import_good(folder, "words", as_vocab, "again")
    cli.check_ok(r)
    cli.check("byte by byte" not in r.stderr, f"no warning: {r.stderr}")
    cli.equal(generate(folder, "again", *options, "--prompt", "the lock"),
              generate(folder, "words", *options, "--prompt", "the lock"), "text")
    cli.row("vocab.json without merges.txt")
    r = import_good(folder, "words", lambda d: (as_vocab(d), remove("merges.txt")(d)), "refused")
    cli.check_error(r, 1, "merges.txt", "No such file")


with cli.workspace() as work:
    for style, keys in STYLES.items():
        make(work, style, **keys)
    test_same_text(work)
    test_options(work)
    test_fast(work)
    test_refused(work)
    test_export(work)
    test_train_on(work)
    test_bad_directories(work)
    test_good_directories(work)
    test_end_of_text(work)
    test_bpe(work)
cli.finish()
