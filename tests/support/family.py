#!/usr/bin/env python3
# family.py - is a checkpoint what the converters make of one of Megatron-Core?
# SPDX-License-Identifier: Apache-2.0
#
# family.py CHECKPOINT EXPORT FAMILY HEADS GROUPS VOCAB [STATE...]
#
# Takes the tensors of CHECKPOINT as they are in the tree, makes those of FAMILY
# of them by the rules that docs/formats/names.md cites, and compares with EXPORT:
# all tensors of its safetensors files, or with STATE (exp_avg) these states of
# every parameter in the tree of EXPORT.
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

ck, export, family, heads, groups, vocab = sys.argv[1:7]
states = sys.argv[7:]
heads, groups, vocab = int(heads), int(groups), int(vocab)
optimfs = os.environ["OPTIMFS"]


def tree(path, top):
    """{path: (shape, bytes)} of the tensors below top."""
    run = lambda *a: subprocess.run([optimfs, *a], check=True,
                                    stdout=subprocess.PIPE).stdout.decode()
    found = {}
    with tempfile.TemporaryDirectory() as at:
        run("cp", "-q", "-r", path, top, at + "/t")
        for line in run("cat", path, ".optimfs/tensors.tsv").split("\n")[1:]:
            name, _, shape = (line.split("\t") + [""] * 3)[:3]
            if name.startswith(top + "/"):
                with open(at + "/t" + name[len(top):], "rb") as f:
                    found[name[len(top) + 1:]] = (
                        [int(n) for n in shape.split(",") if n], f.read())
    return found


def stored(path):
    """{name: (shape, bytes)} of all safetensors files."""
    found = {}
    for name in glob.glob(path + "/*.safetensors"):
        data = open(name, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for key, t in json.loads(data[8:8 + n]).items():
            if key != "__metadata__":
                a, b = t["data_offsets"]
                found[key] = (t["shape"], data[8 + n + a:8 + n + b])
    return found


def cut(t, n):
    """n equal parts along the first axis."""
    shape, data = t
    k = len(data) // n
    return [([shape[0] // n] + shape[1:], data[i * k:(i + 1) * k])
            for i in range(n)]


def cat(parts):
    return ([sum(p[0][0] for p in parts)] + parts[0][0][1:],
            b"".join(p[1] for p in parts))


def qkv(t):
    """Groups of heads/groups heads of the query, one key, one value."""
    per = heads // groups
    h = cut(t, heads + 2 * groups)
    of = lambda which: cat([h[g * (per + 2) + i] for g in range(groups)
                            for i in which])
    return of(range(per)), of([per]), of([per + 1])


def turn(t):
    (r, c), data = t
    n = len(data) // (r * c)
    return [c, r], b"".join(data[(i * c + j) * n:(i * c + j + 1) * n]
                            for j in range(c) for i in range(r))


def words(t):
    k = len(t[1]) // t[0][0]
    return ([vocab] + t[0][1:], t[1][:vocab * k]) if vocab else t


def alternate(t):
    """Row i of both halves, then row i + 1."""
    rows = cut(t, t[0][0])
    half = len(rows) // 2
    return cat([rows[i // 2 + (i % 2) * half] for i in range(len(rows))])


def gpt_oss(layer, key, t):
    """Experts: gate and up alternate, and matrices are transposed."""
    m = re.fullmatch(r"mlp\.experts\.experts\.linear_fc(.)\.(weight|bias)", key)
    if m is None:
        return None
    each = [(x[0][1:], x[1]) for x in cut(t, t[0][0])]
    if m[1] == "1":
        each = [alternate(x) for x in each]
    if m[2] == "weight":
        each = [turn(x) for x in each]
    name = ("gate_up_proj", "down_proj")[m[1] == "2"] + ("_bias" if m[2] == "bias" else "")
    return {f"model.layers.{layer}.mlp.experts.{name}":
            ([len(each)] + each[0][0], b"".join(x[1] for x in each))}


def expert_names(layer):
    base = f"model.layers.{layer}.mlp.experts."
    names = ("gate_proj", "up_proj", "down_proj")
    if family == "mixtral":
        base = f"model.layers.{layer}.block_sparse_moe.experts."
        names = ("w1", "w3", "w2")
    return lambda e: [f"{base}{e}.{n}.weight" for n in names]


def moe(layer, key, t):
    name = expert_names(layer)
    m = re.fullmatch(r"mlp\.experts\.(?:experts\.linear_fc(.)\.weight|"
                     r"linear_fc(.)\.weight(\d+)|"
                     r"local_experts\.(\d+)\.linear_fc(.)\.weight)", key)
    if m is None:
        return None
    if m[1]:  # all experts are in one tensor
        each = [(e, (x[0][1:], x[1])) for e, x in enumerate(cut(t, t[0][0]))]
    else:
        each = [(int(m[3] or m[4]), t)]
    out = {}
    for e, x in each:
        gate, up, down = name(e)
        if "1" in (m[1], m[2], m[5]):
            out[gate], out[up] = cut(x, 2)
        else:
            out[down] = x
    return out


def llama(key, t):
    top = {"embedding.word_embeddings.weight": "model.embed_tokens.weight",
           "output_layer.weight": "lm_head.weight"}
    if key in top:
        return {top[key]: words(t)}
    if key == "decoder.final_layernorm.weight":
        return {"model.norm.weight": t}
    _, _, layer, rest = key.split(".", 3)
    base = f"model.layers.{layer}."
    experts = (gpt_oss if family == "gpt_oss" else moe)(layer, rest, t)
    if experts is not None:
        return experts
    m = re.fullmatch(r"self_attention\.linear_qkv\.(weight|bias)", rest)
    if m:
        return {f"{base}self_attn.{x}_proj.{m[1]}": p
                for x, p in zip("qkv", qkv(t))}
    shared = "shared_experts" if family.startswith("deepseek") else "shared_expert"
    m = re.fullmatch(r"mlp\.(shared_experts\.)?linear_fc1\.weight", rest)
    if m and family != "glm4":
        at = f"{base}mlp.{shared}." if m[1] else f"{base}mlp."
        return {f"{at}{x}_proj.weight": p
                for x, p in zip(("gate", "up"), cut(t, 2))}
    gate = "block_sparse_moe" if family == "mixtral" else "mlp"
    if family.startswith("deepseek"):
        names = {"linear_q_down_proj.": "q_a_proj.",
                 "linear_q_up_proj.layer_norm_": "q_a_layernorm.",
                 "linear_q_up_proj.": "q_b_proj.",
                 "linear_kv_down_proj.": "kv_a_proj_with_mqa.",
                 "linear_kv_up_proj.layer_norm_": "kv_a_layernorm.",
                 "linear_kv_up_proj.": "kv_b_proj."}
        for a, b in names.items():
            if rest == f"self_attention.{a}weight":
                return {f"{base}self_attn.{b}weight": t}
        if rest == "mlp.router.expert_bias":
            return {base + "mlp.gate.e_score_correction_bias": t}
    if family == "glm4" and rest == "mlp.linear_fc1.weight":
        return {base + "mlp.gate_up_proj.weight": t}
    own = {"glm4": {
        "self_attention.post_self_attn_layernorm.weight": "post_self_attn_layernorm.weight",
        "mlp.post_mlp_layernorm.weight": "post_mlp_layernorm.weight",
    }, "olmo2": {
        "self_attention.linear_proj.post_layernorm.weight": "post_attention_layernorm.weight",
        "mlp.linear_fc2.post_layernorm.weight": "post_feedforward_layernorm.weight",
    }, "gpt_oss": {
        "self_attention.core_attention.softmax_offset": "self_attn.sinks",
        "self_attention.linear_proj.bias": "self_attn.o_proj.bias",
        "mlp.router.weight": "mlp.router.weight",
        "mlp.router.bias": "mlp.router.bias",
    }}.get(family, {})
    if rest in own:
        return {base + own[rest]: t}
    return {base + {
        "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
        "input_layernorm.weight": "input_layernorm.weight",
        "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
        "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
        "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
        "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
        "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
        "mlp.linear_fc2.weight": "mlp.down_proj.weight",
        "mlp.shared_experts.linear_fc2.weight": f"mlp.{shared}.down_proj.weight",
        "mlp.router.weight": f"{gate}.gate.weight",
    }[rest]: t}


def gpt2(key, t):
    for a, b in (("embedding.word_embeddings", "wte"),
                 ("embedding.position_embeddings", "wpe"),
                 ("decoder.final_layernorm", "ln_f")):
        if key.startswith(a):
            name = "transformer." + b + key[len(a):]
            return {name: words(t) if b == "wte" else t}
    _, _, layer, rest = key.split(".", 3)
    base = f"transformer.h.{layer}."
    kind = "weight" if rest.endswith("weight") else "bias"
    flip = turn if len(t[0]) == 2 else lambda x: x
    if "layer_norm" in rest:
        ln = "ln_1." if "linear_qkv" in rest else "ln_2."
        return {base + ln + kind: t}
    if "linear_qkv" in rest:
        return {f"{base}attn.c_attn.{kind}": flip(cat(qkv(t)))}
    name = {"self_attention.linear_proj": "attn.c_proj",
            "mlp.linear_fc1": "mlp.c_fc", "mlp.linear_fc2": "mlp.c_proj"}
    return {f"{base}{name[rest.rsplit('.', 1)[0]]}.{kind}": flip(t)}


rule = gpt2 if family == "gpt2" else llama


def compare(source, got, what):
    want = {}
    for key, t in source.items():
        want.update(rule(key, t))
    bad = [f"{what} {k}: " + ("missing" if k not in got else
                              "too much" if k not in want else "differs")
           for k in sorted(set(want) | set(got)) if want.get(k) != got.get(k)]
    if bad or not want:
        sys.exit("\n".join(bad or ["nothing to compare"]))


if not states:
    compare(tree(ck, "model"), stored(export), "model")
else:
    source, got = tree(ck, "optim/state"), tree(export, "optim/state")
for state in states:
    pick = lambda t: {k[:-len(state) - 1]: v for k, v in t.items()
                      if k.endswith("/" + state)}
    compare(pick(source), pick(got), state)
