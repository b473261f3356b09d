#!/bin/sh
# names.t - names= of views: what Megatron-Core wrote as Hugging Face names it
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires mount
requires python3

tool=$TOP_SRCDIR/tests/support/family.py
data=$TOP_SRCDIR/tests/data
llama=$data/megatron/llama_dp2/fully_reshardable
gpt=$data/megatron/gpt_tp2_dp2/fully_reshardable
tar -xzf "$data/megatron_buckets/tp1pp1dp4ep2_moe.tar.gz" -C "$scratch"
tar -xzf "$data/megatron_buckets/tp2pp1dp2.tar.gz" -C "$scratch"
tar -xzf "$data/megatron_buckets/verl_tp2pp2dp2.tar.gz" -C "$scratch"
moe=$scratch/tp1pp1dp4ep2_moe/ckpt
norms=$scratch/tp2pp1dp2/ckpt

# to LAYOUT CHECKPOINT NAME: writes $scratch/NAME
to() {
	"$OPTIMFS" reshard -q --to "$1" "$2" "$scratch/$3" 2>"$scratch/said"
}
# as FAMILY CHECKPOINT HEADS GROUPS VOCAB [OPTIONS]: is the export what the
# converters write, and are the moments cut alike?
as() {
	rm -rf "$scratch/hf" "$scratch/state"
	ok "$1: an export of ${2##*/}" \
	    to "safetensors,hf,names=$1${6:-}" "$2" hf
	ok "$1: it is what the converters write" \
	    python3 "$tool" "$2" "$scratch/hf" "$1" "$3" "$4" "$5"
	ok "$1: all of ${2##*/} on 3 ranks" to "dcp@3,names=$1${6:-}" "$2" state
	ok "$1: moments are cut as their parameter" python3 "$tool" "$2" \
	    "$scratch/state" "$1" "$3" "$4" "$5" exp_avg exp_avg_sq fp32
}
# back FAMILY CHECKPOINT OPTIONS: the way there and back
back() {
	rm -rf "$scratch/there" "$scratch/back"
	ok "$1: there" to "dcp@3,names=$1$3" "$2" there
	ok "$1: and back" to "dcp@2,names=megatron:$1$3" "$scratch/there" back
	is "$1: nothing differs then" \
	    "$("$OPTIMFS" diff "$2" "$scratch/back" 2>&1)" ''
}

as llama "$llama" 4 2 0
like "the padding of the vocabulary is named" "$(cat "$scratch/said")" \
    '*OFS897 the vocabulary is written with all 128 rows*vocab=N*'
as llama "$llama" 4 2 100 ,vocab=100
is "a known vocabulary is no warning" "$(cat "$scratch/said")" ''
as gpt2 "$gpt" 4 4 0
as qwen2_moe "$moe" 4 2 0
as qwen3 "$norms" 4 2 0
back llama "$llama" ,heads=4,groups=2
back gpt2 "$gpt" ,heads=4
back qwen2_moe "$moe" ,heads=4,groups=2
back qwen3 "$norms" ,heads=4,groups=2

# Experts in one tensor on both sides.
cat >"$scratch/stacks.names" <<'END'
family stacks
decoder.layers.*.mlp.experts.experts.linear_fc1.weight[*] = model.layers.*.mlp.experts.gate_up_proj[*] : alternate transpose
decoder.layers.*.mlp.experts.experts.linear_fc2.weight[*] = model.layers.*.mlp.experts.down_proj[*] : transpose
END
back "$scratch/stacks.names" "$moe" ''

# Is it what another program made of it?
reference=$scratch/reference
ok "a reference" to safetensors,hf,names=llama "$llama" reference
ok "an export equals it" "$OPTIMFS" reshard -q --verify "$reference" \
    --to safetensors,hf,names=llama "$llama" "$scratch/same1"
status "another vocabulary differs" 1 "$OPTIMFS" reshard -q --verify "$reference" \
    --to safetensors,hf,names=llama,vocab=100 "$llama" "$scratch/same2"
is "the first difference is printed, and only that" "$(grep -c . "$scratch/out")" 1
like "... with its name" "$(cat "$scratch/out")" \
    'model/lm_head.weight: shape is 100,48, and 128,48 in *'
python3 - "$reference/model-00001-of-00001.safetensors" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-1, 2)
    last = f.read(1)
    f.seek(-1, 2)
    f.write(bytes([last[0] ^ 1]))
END
status "one bit differs" 1 "$OPTIMFS" reshard -q --verify "$reference" \
    --to safetensors,hf,names=llama "$llama" "$scratch/same3"
like "... in the last tensor" "$(cat "$scratch/out")" 'model/model.norm.weight: *'
not_ok "a reference that is not there" "$OPTIMFS" reshard -q --verify \
    "$scratch/nothing" --to torch "$llama" "$scratch/same4"
not_ok "... is noticed before anything is written" test -e "$scratch/same4"

# Names of experts that are not in a stack, and latent attention.
cat >"$scratch/make" <<'END'
import json, random, struct, sys
out, kind = sys.argv[1:]
r = random.Random(5)
t = {}

def put(name, *shape):
    n = 1
    for s in shape:
        n *= s
    t[name] = (shape, bytes(r.randrange(256) for _ in range(2 * n)))

put("embedding.word_embeddings.weight", 10, 8)
put("output_layer.weight", 10, 8)
put("decoder.final_layernorm.weight", 8)
for i in range(2):
    b = f"decoder.layers.{i}."
    a = b + "self_attention."
    if kind == "deepseek":
        put(b + "input_layernorm.weight", 8)
        put(a + "linear_q_down_proj.weight", 4, 8)
        put(a + "linear_q_up_proj.layer_norm_weight", 4)
        put(a + "linear_q_up_proj.weight", 12, 4)
        put(a + "linear_kv_down_proj.weight", 6, 8)
        put(a + "linear_kv_up_proj.layer_norm_weight", 4)
        put(a + "linear_kv_up_proj.weight", 16, 4)
        put(b + "mlp.router.expert_bias", 3)
        put(b + "mlp.shared_experts.linear_fc1.weight", 4, 8)
        put(b + "mlp.shared_experts.linear_fc2.weight", 8, 2)
    else:
        put(a + "linear_qkv.layer_norm_weight", 8)
        put(a + "linear_qkv.weight", 16, 8)
        put(a + "linear_qkv.bias", 16)
    put(a + "linear_proj.weight", 8, 8)
    put(b + "pre_mlp_layernorm.weight", 8)
    put(b + "mlp.router.weight", 3, 8)
    for e in range(3):
        one, two = f"mlp.experts.linear_fc1.weight{e}", f"mlp.experts.linear_fc2.weight{e}"
        if kind == "deepseek":
            one = f"mlp.experts.local_experts.{e}.linear_fc1.weight"
            two = f"mlp.experts.local_experts.{e}.linear_fc2.weight"
        put(b + one, 12, 8)
        put(b + two, 8, 6)
head, data = {}, b""
for name, (shape, x) in t.items():
    head[name] = {"dtype": "BF16", "shape": list(shape),
                  "data_offsets": [len(data), len(data) + len(x)]}
    data += x
h = json.dumps(head).encode()
open(out, "wb").write(struct.pack("<Q", len(h)) + h + data)
END
for name in mixtral deepseek; do
	model=$scratch/$name.safetensors
	python3 "$scratch/make" "$model" $name
	ok "$name: an export" to "safetensors,hf,names=$name,heads=2,groups=1,vocab=9" \
	    "$model" $name
	ok "$name: it is what the converters write" \
	    python3 "$tool" "$model" "$scratch/$name" $name 2 1 9
	ok "$name: the way back" to "dcp@2,names=megatron:${name}_te,heads=2,groups=1,vocab=10" \
	    "$scratch/$name" $name.back
	ok "$name: there again" to "safetensors,hf,names=$name,heads=2,groups=1,vocab=9" \
	    "$scratch/$name.back" $name.again
	ok "$name: the same bytes" cmp "$scratch/$name/model-00001-of-00001.safetensors" \
	    "$scratch/$name.again/model-00001-of-00001.safetensors"
	is "$name: experts are one stack" "$("$OPTIMFS" cat "$scratch/$name.back" \
	    .optimfs/tensors.tsv | awk '/layers.1.mlp.experts.experts.linear_fc1/ { print $3 }')" 3,12,8
	is "$name: the norm has its name in Transformer Engine" "$("$OPTIMFS" ls \
	    "$scratch/$name.back" model | grep -c pre_mlp_layernorm.weight)" 2
done

# Families with other norms, biases and fusions, from Hugging Face and back.
cat >"$scratch/model" <<'END'
import json, random, struct, sys
out, kind = sys.argv[1:]
r = random.Random(9)
head, data = {}, b""

def put(name, *shape):
    global data
    n = 2
    for s in shape:
        n *= s
    head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + n]}
    data += bytes(r.randrange(256) for _ in range(n))

put("model.embed_tokens.weight", 10, 8)
put("model.norm.weight", 8)
if kind == "nemotron":
    put("model.norm.bias", 8)
for i in range(2):
    b = f"model.layers.{i}."
    norms = ["input_layernorm", "post_attention_layernorm"]
    if kind == "gemma2":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    if kind == "olmo2":
        norms[0] = "post_feedforward_layernorm"
    if kind == "glm4":
        norms += ["post_self_attn_layernorm", "post_mlp_layernorm"]
    for norm in norms:
        put(b + norm + ".weight", 8)
        if kind == "nemotron":
            put(b + norm + ".bias", 8)
    parts = {"qkv": 16} if kind == "phi3" else {"q": 8, "k": 4, "v": 4}
    for part, rows in parts.items():
        put(f"{b}self_attn.{part}_proj.weight", rows, 8)
    put(b + "self_attn.o_proj.weight", 8, 8)
    gated = {"phi3": {"gate_up": 12}, "glm4": {"gate_up": 12}, "nemotron": {"up": 6}}.get(
        kind, {"gate": 6, "up": 6})
    mlps = ["mlp."]
    if kind in ("glm4", "gpt_oss"):
        for part, rows in parts.items():
            put(f"{b}self_attn.{part}_proj.bias", rows)
    if kind == "gpt_oss":
        put(b + "self_attn.o_proj.bias", 8)
        put(b + "self_attn.sinks", 2)
        put(b + "mlp.router.weight", 3, 8)
        put(b + "mlp.router.bias", 3)
        put(b + "mlp.experts.gate_up_proj", 3, 8, 12)
        put(b + "mlp.experts.gate_up_proj_bias", 3, 12)
        put(b + "mlp.experts.down_proj", 3, 6, 8)
        put(b + "mlp.experts.down_proj_bias", 3, 8)
        mlps = []
    if kind == "glm4_moe" and i == 1:
        mlps = ["mlp.shared_experts."] + [f"mlp.experts.{e}." for e in range(3)]
        put(b + "mlp.gate.weight", 3, 8)
        put(b + "mlp.gate.e_score_correction_bias", 3)
    for mlp in mlps:
        for part, rows in gated.items():
            put(f"{b}{mlp}{part}_proj.weight", rows, 8)
        put(b + mlp + "down_proj.weight", 8, 6)
h = json.dumps(head).encode()
open(out, "wb").write(struct.pack("<Q", len(h)) + h + data)
END
while read -r name want; do
	model=$scratch/$name.safetensors
	python3 "$scratch/model" "$model" "$name"
	ok "$name: names of Megatron-Core" \
	    to "dcp@2,names=megatron:$name,heads=2,groups=1" "$model" "$name"
	is "$name: each has a rule" "$(cat "$scratch/said")" ''
	is "$name: query, key and value are one, so are the parts of the MLP" \
	    "$("$OPTIMFS" cat "$scratch/$name" .optimfs/tensors.tsv | sed -n \
	    's,^model/decoder.layers.1.\(self_attention.linear_qkv\|mlp.*linear_fc1\).weight\t[^\t]*\t\([^\t]*\).*,\2,p' |
	    sort | tr '\n' ' ')" "$want "
	ok "$name: and back" "$OPTIMFS" reshard -q \
	    --to "safetensors,hf,names=$name,heads=2,groups=1,vocab=10" \
	    --verify "$model" "$scratch/$name" "$scratch/$name.hf"
	case $name in
	olmo2 | glm4 | gpt_oss)
		ok "$name: it is what the converters write" \
		    python3 "$tool" "$scratch/$name" "$scratch/$name.hf" "$name" 2 1 10 ;;
	esac
done <<'END'
gemma2 12,8 16,8
olmo2 12,8 16,8
glm4 12,8 16,8
gpt_oss 16,8 3,12,8
phi3 12,8 16,8
nemotron 16,8 6,8
glm4_moe 12,8 16,8 3,12,8
END

# Experts in MXFP4: their matrices are not transposed.
python3 - "$scratch/mxfp4.safetensors" <<'END'
import json, random, struct, sys
r = random.Random(4)
head, data = {}, b""
def put(name, dtype, shape, raw):
    global data
    head[name] = {"dtype": dtype, "shape": shape,
                  "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
for name, rows, blocks in ("gate_up_proj", 64, 3), ("down_proj", 96, 1):
    at = "model.layers.0.mlp.experts." + name
    n = 3 * rows * blocks
    put(at + "_blocks", "U8", [3, rows, blocks, 16],
        bytes(r.randrange(256) for _ in range(16 * n)))
    put(at + "_scales", "U8", [3, rows, blocks], bytes(r.randrange(120, 130) for _ in range(n)))
    put(at + "_bias", "BF16", [3, rows], bytes(r.randrange(256) for _ in range(6 * rows)))
text = json.dumps(head).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
END
ok "MXFP4: names of Megatron-Core" to dcp@2,dequantize,names=megatron:gpt_oss \
    "$scratch/mxfp4.safetensors" mxfp4
at=decoder.layers.0.mlp.experts.experts
for part in linear_fc1.weight=gate_up_proj linear_fc1.bias=gate_up_proj_bias \
    linear_fc2.weight=down_proj; do
	"$OPTIMFS" cat "$scratch/mxfp4" "model/$at.${part%=*}" >"$scratch/got"
	from=model/model.layers.0.mlp.experts.${part#*=}
	case $part in
	*.bias=*) ;;
	*) from=.optimfs/f32/$from ;;
	esac
	"$OPTIMFS" cat "$scratch/mxfp4.safetensors" "$from" >"$scratch/want"
	ok "MXFP4: ${part%=*} is that of the codes" python3 -c '
import sys
got, want = (open(p, "rb").read() for p in sys.argv[1:3])
rows = 64 if "fc1" in sys.argv[3] else 96
n = len(want) // (3 * rows)  # bytes of a row
order = list(range(rows))
if "fc1" in sys.argv[3]:
    order = order[::2] + order[1::2]
sys.exit(got != b"".join(want[(e * rows + i) * n:(e * rows + i + 1) * n]
                         for e in range(3) for i in order))' \
	    "$scratch/got" "$scratch/want" "$part"
done
ok "MXFP4: codes as numbers" to safetensors,dequantize "$scratch/mxfp4.safetensors" numbers4
not_ok "MXFP4: numbers whose rows do not alternate" \
    to dcp@1,names=megatron:gpt_oss "$scratch/numbers4" mxfp4.wrong
like "... are noticed" "$(cat "$scratch/said")" \
    '*OFS894 *experts.gate_up_proj: it has 96 rows, and model.layers.0.mlp.experts.gate_up_proj_bias has 64*'
is "MXFP4: ... with these shapes" "$("$OPTIMFS" cat "$scratch/mxfp4" \
    .optimfs/tensors.tsv | awk '/weight/ { print $2, $3 }')" "float32 3,64,96
float32 3,96,32"

# Whatever the source: flat groups, copies, parts along two axes, compressed
# items, parameters by number.
cat >"$scratch/pt.names" <<'END'
family pytorch
layers.*.wq.weight = h.*.{q,k,v}.weight
layers.*.wq.bias = h.*.bias : alternate
layers.0.w2.weight = h.0.two.weight : transpose
layers.*.w2.weight = h.*.two.weight : transpose alternate
blocks.*.fc_in.weight = b.*.{one,two,three}.weight
blocks.*.fc_out.weight = b.*.out.weight : transpose
blocks.0.ln.weight = b.0.ln.weight : alternate
emb.weight[*] = e.weight[*] : alternate
conv.weight[*] = c.{one,two,three}.weight[*]
END
for ck in deepspeed/z3_ws2_bf16 deepspeed/z2_ws4_round_robin \
    pytorch/dcp_fsdp2_zstd_w2 pytorch/dcp_hsdp_w4 pytorch/dcp_tp_fsdp_w4 \
    pytorch/dcp_by_id_w2; do
	rm -rf "$scratch/there2" "$scratch/back2"
	ok "$ck: there" to "dcp@3,names=$scratch/pt.names" "$data/$ck/ckpt" there2
	ok "$ck: and back" to "dcp@2,names=megatron:$scratch/pt.names" \
	    "$scratch/there2" back2
	is "$ck: nothing differs" \
	    "$("$OPTIMFS" diff "$data/$ck/ckpt" "$scratch/back2" 2>&1)" ''
done
is "they were cut" "$("$OPTIMFS" cat "$scratch/there2" .optimfs/tensors.tsv |
    awk '$1 == "model/h.1.v.weight" { print $3 }')" 4,12
is "stacks of three rows are three stacks" "$("$OPTIMFS" cat "$scratch/there2" \
    .optimfs/tensors.tsv | awk '/^model\/c\..*weight/ { print $3 }' | sort -u)" 5,1,2,3
rm -rf "$scratch/there2"
ok "parts along two axes: there" to "dcp@3,names=$scratch/pt.names" \
    "$data/pytorch/dcp_tp_fsdp_w4/ckpt" there2
for what in model/NAME optim/state/NAME/exp_avg; do
	from=$(echo "$what" | sed 's/NAME/layers.1.w2.weight/')
	into=$(echo "$what" | sed 's/NAME/h.1.two.weight/')
	"$OPTIMFS" cat "$data/pytorch/dcp_tp_fsdp_w4/ckpt" "$from" >"$scratch/want"
	"$OPTIMFS" cat "$scratch/there2" "$into" >"$scratch/got"
	ok "rows alternate: ${into##*/}" python3 -c '
import sys
got, want = (open(p, "rb").read() for p in sys.argv[1:3])
n = len(want) // 240  # bytes of an element of 12 x 20
sys.exit(got != b"".join(want[(i * 20 + k) * n:(i * 20 + k + 1) * n]
                         for k in range(20) for j in range(6) for i in (j, j + 6)))' \
	    "$scratch/got" "$scratch/want"
done

# A vocabulary grows again by zeros.
ok "fewer words" to safetensors,hf,names=llama,vocab=100 "$llama" few
ok "the way back" to torch,names=megatron:llama,heads=4,groups=2,vocab=128 \
    "$scratch/few" padded
"$OPTIMFS" cat "$scratch/padded" model/output_layer.weight >"$scratch/w"
"$OPTIMFS" cat "$llama" model/output_layer.weight |
    head -c $((100 * 48 * 2)) >"$scratch/words"
head -c $((28 * 48 * 2)) /dev/zero >>"$scratch/words"
ok "what was padding is zeros" cmp "$scratch/w" "$scratch/words"

# What verl wrote has its numbers in transformer_config.json.
ok "numbers of heads beside the checkpoint" to safetensors,hf,names=llama \
    "$scratch/verl_tp2pp2dp2/ckpt/actor" verl
ok "they are used" python3 "$tool" "$scratch/verl_tp2pp2dp2/ckpt/actor" \
    "$scratch/verl" llama 4 2 0

# Files that describe the model, beside the checkpoint.
cp -r "$llama" "$scratch/beside"
echo '{"model_type": "llama", "vocab_size": 120, "rope": {"heads": 5}}' \
    >"$scratch/beside/config.json"
echo '{"version": "1.0"}' >"$scratch/beside/tokenizer.json"
mkdir "$scratch/beside/huggingface"
echo '{"eos_token_id": 1}' >"$scratch/beside/huggingface/generation_config.json"
ok "config.json says how many words there are" \
    to safetensors,hf,names=llama "$scratch/beside" whole
is "no padding is left" "$("$OPTIMFS" cat "$scratch/whole" .optimfs/tensors.tsv |
    awk '/^model\/(lm_head|model.embed)/ { print $3 }')" "120,48
120,48"
for name in config.json tokenizer.json; do
	ok "$name is copied" cmp "$scratch/beside/$name" "$scratch/whole/$name"
done
ok "generation_config.json is, too" cmp "$scratch/whole/generation_config.json" \
    "$scratch/beside/huggingface/generation_config.json"
ok "the way back needs no more" to dcp@1,names=megatron,heads=4,groups=2 \
    "$scratch/whole" knows
is "there is linear_qkv again" "$("$OPTIMFS" cat "$scratch/knows" \
    .optimfs/tensors.tsv | grep -c linear_qkv.weight)" 2
echo '{"num_attention_heads": 8}' >"$scratch/beside/config.json"
not_ok "config.json of another model" to safetensors,hf,names=llama \
    "$scratch/beside" other
like "... is noticed" "$(cat "$scratch/said")" \
    '*OFS893 config.json says 8 attention heads, args says 4*'
echo '{"num_attention_heads": ' >"$scratch/beside/config.json"
not_ok "a config.json that ends early" to safetensors,hf,names=llama \
    "$scratch/beside" other
like "... is an error" "$(cat "$scratch/said")" '*OFS653 *config.json*'

# What is computed is cut like what is stored: masters that are a weight and its
# remainder, averages of a run, codes with scales.
tar -xzf "$data/megatron_buckets/tp2pp1dp2_remainder.tar.gz" -C "$scratch"
halves=$scratch/tp2pp1dp2_remainder/ckpt
as qwen3 "$halves" 4 2 0
back qwen3 "$halves" ,heads=4,groups=2

# The mean of equal checkpoints is one of them.
mean() { # FAMILY CHECKPOINT OPTIONS
	rm -rf "$scratch/run" "$scratch/one" "$scratch/mean"
	mkdir "$scratch/run"
	for step in 1 2; do
		cp -r "$2"/iter_* "$scratch/run/step-$step"
	done
	ok "$1: names for a checkpoint" to "dcp@3,names=$1$3" "$2" one
	ok "$1: names for the mean of two" to "dcp@3,names=$1$3" \
	    "$scratch/run:avg/last2" mean
	is "$1: it has the same elements" "$("$OPTIMFS" diff "$scratch/one" \
	    "$scratch/mean" 2>&1 | grep '^model/\|exp_avg')" ''
	is "$1: ... under the same names" "$("$OPTIMFS" ls -R "$scratch/mean" model)" \
	    "$("$OPTIMFS" ls -R "$scratch/one" model)"
	ok "$1: the mean of what has these names" to \
	    "dcp@2,names=megatron:$1$3" "$scratch/one" again1
	rm -rf "$scratch/run"/*
	for step in 1 2; do
		cp -r "$scratch/one" "$scratch/run/step-$step"
	done
	ok "$1: ... and back" to "dcp@2,names=megatron:$1$3" \
	    "$scratch/run:avg/last2" again2
	is "$1: ... has the same elements" "$("$OPTIMFS" diff "$scratch/again1" \
	    "$scratch/again2" 2>&1 | grep '^model/\|exp_avg')" ''
	rm -rf "$scratch/again1" "$scratch/again2"
}
mean gpt2 "$gpt" ,heads=4
mean qwen2_moe "$moe" ,heads=4,groups=2
mean "$scratch/stacks.names" "$moe" ''

# Codes of 8 bits with a scale for each block of 128 x 128: what is written out as
# float32 first is the same.
python3 - "$scratch/codes.safetensors" <<'END'
import json, random, struct, sys
r = random.Random(3)
head, data = {}, b""
def put(name, dtype, shape, raw):
    global data
    head[name] = {"dtype": dtype, "shape": shape,
                  "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
for name, rows in ("q", 256), ("k", 128), ("v", 128):
    at = f"model.layers.0.self_attn.{name}_proj.weight"
    put(at, "F8_E4M3", [rows, 192], bytes(r.choice((r.randrange(0, 126),
        r.randrange(128, 254))) for _ in range(rows * 192)))
    put(at + "_scale_inv", "F32", [rows // 128, 2], struct.pack(
        f"<{rows // 64}f", *(r.random() for _ in range(rows // 64))))
put("model.norm.weight", "F32", [192], bytes(4 * 192))
text = json.dumps(head).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
END
ok "codes become numbers" to safetensors,dequantize "$scratch/codes.safetensors" numbers
ok "numbers are joined" to torch,names=megatron:llama,heads=4,groups=2 \
    "$scratch/numbers" joined1
ok "codes are joined as numbers" \
    to torch,dequantize,names=megatron:llama,heads=4,groups=2 \
    "$scratch/codes.safetensors" joined2
is "they are the same" "$("$OPTIMFS" diff "$scratch/joined1" "$scratch/joined2" 2>&1)" ''
is "... and have 512 rows" "$("$OPTIMFS" cat "$scratch/joined2" .optimfs/tensors.tsv |
    awk '$1 ~ /linear_qkv/ { print $2, $3 }')" "float32 512,192"

# What cannot be done is said.

# refuse WHAT CODE LAYOUT [CHECKPOINT]
refuse() {
	not_ok "$1" "$OPTIMFS" reshard -q --to "$3" "${4:-$llama}" \
	    "$scratch/refused"
	like "$1: why" "$(tap_said)" "*$2*"
}
ok "experts that have no rule" to dcp@1,names=llama "$moe" dense
like "they keep their names" "$(cat "$scratch/said")" \
    '*OFS896 no rule of names= covers 10 names, which are kept: decoder.layers.1.mlp.router.weight and others*'
ok "... in the export, too" "$OPTIMFS" cat "$scratch/dense" \
    model/decoder.layers.2.mlp.router.weight
refuse "no such family" "OFS892 no family of names is called 'lama'. There are llama, mistral" \
    safetensors,hf,names=lama
refuse "no family of the model" 'OFS892 *names=megatron:FAMILY' \
    dcp@1,names=megatron
refuse "another family" 'OFS892 no name of this checkpoint is one of gpt2' \
    dcp@1,names=gpt2 "$data/pytorch/dcp_fsdp2_w2/ckpt"
refuse "unknown heads" 'OFS893 *to take query, key and value apart*heads=N,groups=N' \
    dcp@1,names=megatron:llama "$scratch/few"
refuse "heads that do not fit" 'OFS894 *linear_qkv.weight: 96 rows are not 5 heads*' \
    safetensors,hf,names=llama,heads=5,groups=5
refuse "heads that are no multiple" 'OFS893 *5 attention heads in 2 groups' \
    safetensors,hf,names=llama,heads=5
refuse "more heads than any model has" 'OFS893 *2000000000 attention heads' \
    safetensors,hf,names=llama,heads=2000000000,groups=1
refuse "a vocabulary that is larger" 'OFS894 *128 rows for a vocabulary of 129' \
    safetensors,hf,names=llama,vocab=129
refuse "a number too large" 'OFS771 *heads= takes a number' \
    safetensors,hf,names=llama,heads=99999999999
refuse "numbers without names" 'OFS771 *heads=, groups= and vocab= are for names=' \
    safetensors,hf,heads=4
refuse "the keys of the source" 'OFS771 *keys=source keeps the names' \
    dcp@1,names=llama,keys=source

# Rules of a user.
rules=$scratch/my.names
cat >"$rules" <<'END'
# a family of my own
family mine other

decoder.layers.*.self_attention.linear_qkv.weight = net.*.{q,k,v} : qkv
decoder.layers.*.mlp.linear_fc2.weight = net.*.down : transpose if net.*.q
use llama
END
ok "a file of families" "$OPTIMFS" reshard -q -o "names=$rules" \
    --to safetensors,names=other,only=model,vocab=128 "$llama" "$scratch/mine"
ok "the family of the program" to safetensors,hf,names=llama "$llama" used
"$OPTIMFS" cat "$scratch/mine" model/net.1.k >"$scratch/k"
ok "is used by it" sh -c "'$OPTIMFS' cat '$scratch/used' \
    model/model.layers.1.self_attn.k_proj.weight | cmp - '$scratch/k'"
is "transposed" "$("$OPTIMFS" cat "$scratch/mine" .optimfs/tensors.tsv |
    awk '$1 == "model/net.0.down" { print $3 }')" 80,48
ok "a file in the layout means its first family" "$OPTIMFS" reshard -q \
    --to "safetensors,names=$rules,only=model,vocab=128" "$llama" "$scratch/mine2"
is "... which is the same" "$("$OPTIMFS" diff "$scratch/mine" "$scratch/mine2")" ''
ok "the way back" "$OPTIMFS" reshard -q --to \
    "torch,names=megatron:$rules,heads=4,groups=2" "$scratch/mine" "$scratch/again"
not_ok "no file, no family of it" "$OPTIMFS" reshard -q --to torch,names=file \
    "$llama" "$scratch/none"
is "nothing of the model differs" "$("$OPTIMFS" diff "$llama" "$scratch/again" |
    grep -v '^extra/\|^optim/\|_extra_state')" ''

# bad WHAT LINE: a line that is no rule
bad() {
	printf 'family mine\n%s\n' "$2" >"$rules"
	status "$1" 2 "$OPTIMFS" ls -o "names=$rules" "$llama"
	like "$1: OFS891 with its line" "$(tap_said)" "*OFS891 *my.names: line 2: *"
}
bad "a path in a name" 'decoder.x = ../../etc/passwd'
bad "a digit behind a star" 'decoder.*0.x = model.*0.x'
bad "two dots" 'decoder..x = model.x'
bad "a slash" 'decoder.x = model/x'
bad "no right side" 'decoder.x ='
bad "an unknown word" 'decoder.x = model.x : rotate'
bad "a brace without the other" 'decoder.x = model.{q,k'
bad "too many parts" 'decoder.x = model.{a,b,c,d,e,f,g,h,i}'
bad "an empty part" 'decoder.x = {,}'
bad "stars that differ" 'decoder.*.x = model.x'
bad "too many stars" 'a.*.*.*.* = b.*.*.*.*'
bad "qkv of two" 'decoder.x = model.{q,k} : qkv'
bad "a family that has itself" 'use mine'
bad "a family that is not there" 'use nothing'
bad "a family without a name" 'family'
bad "a name of a family with a path" 'family ../llama'
bad "a stack on the right only" 'decoder.x = model.x[*]'
bad "stars that differ beside a stack" 'decoder.x[*] = model.*.x[*]'
bad "two parts that alternate" 'decoder.x = model.{a,b} : alternate'
bad "words of a vocabulary that alternate" 'decoder.x = model.x : alternate vocab'
bad "no name that must not be there" 'decoder.x = model.x : unless'
bad "a number of rows without a name" 'decoder.x = model.x : rows'
bad "a name with more stars" 'decoder.x = model.x : unless model.*.x'
bad "a long line" "decoder.x = $(printf '%02000d' 0)"
bad "what is left out has nothing to do" 'decoder.x = - : qkv'
bad "what is left out is no stack" 'decoder.x[*] = - : alternate'
bad "a beginning that anything has" '*.x = model.x'
printf 'a = b\n' >"$rules"
status "a rule before a family" 2 "$OPTIMFS" ls -o "names=$rules" "$llama"
{
	printf 'family f0\na = b\na = b\n'
	for i in $(seq 30); do
		printf 'family f%s\nuse f%s\nuse f%s\n' "$i" $((i - 1)) $((i - 1))
	done
} >"$rules"
status "tables that double" 2 "$OPTIMFS" ls -o "names=$rules" "$llama"
like "... are too many rules" "$(tap_said)" '*OFS891 *more than 4096 rules*'
status "no such file" 3 "$OPTIMFS" ls -o "names=$scratch/none" "$llama"
like "... is named" "$(tap_said)" '*OFS891 *names=*none: No such file*'
printf 'family mine\ndecoder.final_layernorm.weight = same\noutput_layer.weight = same\n' >"$rules"
not_ok "two tensors of one name" "$OPTIMFS" reshard -q -o "names=$rules" \
    --to dcp@1,names=mine "$llama" "$scratch/same"
like "... are refused" "$(tap_said)" '*OFS894*two tensors would be called model.same*'

# A mount in which something changes, and parts that are not there.
cp -r "$scratch/there" "$scratch/rw"
mnt=$(point mnt)
options=heads=4,groups=2
ok "a mount for writing" "$OPTIMFS" mount -o rw,commit=explicit "$scratch/rw" "$mnt"
ok "a view" ls "$mnt/.optimfs/view/torch,names=megatron:qwen3,$options"
ok "a change" rm "${mnt:?}/model/model.layers.0.self_attn.k_proj.weight"
not_ok "what has changed has no view" ls \
    "$mnt/.optimfs/view/dcp@2,names=megatron:qwen3,$options"
like "... and says so" "$(cat "$mnt/.optimfs/errors")" '*OFS898*commit first*'
ok "a commit" "$OPTIMFS" commit "$mnt"
ok "the end of the mount" "$OPTIMFS" umount "$mnt"
refuse "a part that is missing" 'OFS895 *the parts beside it are not all there: 2 of them' \
    "dcp@1,names=megatron:qwen3,$options" "$scratch/rw"
is "reshard --help lists all families" \
    "$("$OPTIMFS" reshard --help | sed -n 's/^Names: //p' | sed 's/ or /, /; s/, /\n/g' | sort | tr '\n' ' ')" \
    "$({ cat "$TOP_SRCDIR"/data/names/*.names | sed -n 's/^family //p' | tr ' ' '\n'; echo megatron; } |
    sort | tr '\n' ' ')"
done_testing
