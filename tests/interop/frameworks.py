#!/usr/bin/env python3
"""frameworks.py - what current releases of training libraries write

usage: frameworks.py write LIBRARY DIR   the library trains something tiny on the CPU,
                                         and saves it in its own ways: DIR/<case>/ck;
                                         DIR/<case>/want/<tree path> are the bytes
                                         that its tensors have in memory
       frameworks.py version LIBRARY     prints its version; exit 1 where it is missing

The caller compares both through optimfs. Values of tensors in few bits are those
that the library's own functions make of them.
"""
# SPDX-License-Identifier: Apache-2.0
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys

# Not the scripts beside this one, which have names of packages.
sys.path[:] = [p for p in sys.path
               if os.path.abspath(p) != os.path.dirname(os.path.abspath(__file__))]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("DS_ACCELERATOR", "cpu")


class Case:
    """A checkpoint and its values."""

    def __init__(self, top, name):
        self.ck = os.path.join(top, name, "ck")
        self.want = os.path.join(top, name, "want")
        os.makedirs(self.ck)
        os.makedirs(self.want)

    def expect(self, path, tensor):
        import torch
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        at = os.path.join(self.want, path)
        os.makedirs(os.path.dirname(at), exist_ok=True)
        with open(at, "wb") as f:
            f.write(raw.numpy().tobytes())

    def expect_model(self, state, below="model"):
        for name, value in state.items():
            if value.dim() > 0:
                self.expect("%s/%s" % (below, name), value)

    def expect_optimizer(self, optimizer, names=None, read=lambda value: value):
        import torch
        number = 0
        for group in optimizer.param_groups:
            for p in group["params"]:
                for kind, value in optimizer.state.get(p, {}).items():
                    name = names[p] if names else number
                    if isinstance(value, torch.Tensor) and value.dim() > 0:
                        self.expect("optim/state/%s/%s" % (name, kind), read(value))
                number += 1


    def expect_sharded(self, rank, model, optimizer):
        """The whole tensors of a model under FSDP2; a call of all ranks."""
        whole = lambda t: t.full_tensor() if hasattr(t, "full_tensor") else t
        for name, p in model.named_parameters():
            found = {"model/" + name: whole(p)}
            for kind, value in optimizer.state[p].items():
                found["optim/state/%s/%s" % (name, kind)] = whole(value)
            for path, value in found.items():
                if rank == 0 and value.dim() > 0:
                    self.expect(path, value)


def on_ranks(n, work):
    """Calls work(rank) in n processes that are joined by gloo."""
    import tempfile
    import traceback
    import torch.distributed as dist
    children = []
    with tempfile.TemporaryDirectory() as at:
        for rank in range(n):
            child = os.fork()
            if child != 0:
                children.append(child)
                continue
            status = 1
            try:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n),
                                  LOCAL_WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1",
                                  MASTER_PORT="0")
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
                dist.init_process_group("gloo", init_method="file://%s/store" % at,
                                        rank=rank, world_size=n)
                work(rank)
                dist.barrier()
                status = 0
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(status)
        if any([os.waitpid(c, 0)[1] for c in children]):
            sys.exit("a rank failed")


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that a library imports, but does not need to save."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        from unittest.mock import MagicMock
        made = MagicMock(name=spec.name)
        made.__path__, made.__spec__, made.__name__ = [], spec, spec.name
        made.__version__ = "9.9.9"
        return made

    def exec_module(self, module):
        pass


def import_saving(library):
    """Imports what saves, after all that is installed."""
    names = {"torchtitan": ("datasets", "tensorboard", "wandb", "torchvision"),
             "megatron_bridge": ("transformer_engine", "transformer_engine_torch"),
             "verl": ("ray", "tensordict", "hydra", "wandb", "codetiming", "pylatexenc",
                      "liger_kernel", "pyvers", "torchvision", "cachetools", "pandas",
                      "pyarrow", "datasets", "qwen_vl_utils", "mathruler", "orjson",
                      "dill", "mlflow", "tensorboard", "uvicorn", "fastapi", "PIL",
                      "torchcodec", "av")}
    modules = {"torchtitan": "torchtitan.components.checkpointer.dcp",
               "verl": "verl.utils.checkpoint.fsdp_checkpoint_manager",
               "torch_checkpointing": "torch_checkpointing.default_resharder",
               "megatron_bridge": "megatron.bridge.models.conversion.param_mapping"}
    if library in names:
        import transformers  # looks for them itself
        sys.meta_path.append(Absent(names[library]))
    return importlib.import_module(modules.get(library, library))


def small(torch):
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(),
                               torch.nn.Linear(128, 64), torch.nn.LayerNorm(64))


def train(torch, model, optimizer, steps=2):
    for _ in range(steps):
        model(torch.randn(4, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def sharded(torch, model, layers):
    """The model under FSDP2 on two ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def llama(width=64):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(7)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=96, hidden_size=width, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64))


def sentences(torch):
    class Sentences(torch.utils.data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, i):
            words = torch.randint(0, 96, (8,), generator=torch.Generator().manual_seed(i))
            return {"input_ids": words, "labels": words}
    return Sentences()


def trainer(torch, model, where):
    """Hugging Face's Trainer, after its two steps."""
    from transformers import Trainer, TrainingArguments
    t = Trainer(model, TrainingArguments(
        output_dir=where, per_device_train_batch_size=2, max_steps=2, save_steps=2,
        use_cpu=True, report_to=[], optim="adamw_torch", disable_tqdm=True),
        train_dataset=sentences(torch))
    t.train()
    return t


def write_transformers(top):
    import torch
    case, model = Case(top, "trainer"), llama()
    t = trainer(torch, model, os.path.dirname(case.ck))
    os.rmdir(case.ck)
    os.rename(os.path.join(os.path.dirname(case.ck), "checkpoint-2"), case.ck)
    case.expect_model(model.state_dict())
    inner = getattr(t.optimizer, "optimizer", t.optimizer)
    case.expect_optimizer(inner)
    case = Case(top, "shards")
    model.save_pretrained(case.ck, max_shard_size="40KB")
    case.expect_model(model.state_dict())


def write_peft(top):
    import torch
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    case = Case(top, "adapter")
    model = get_peft_model(llama(), LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    t = trainer(torch, model, os.path.dirname(case.ck))
    os.rmdir(case.ck)
    os.rename(os.path.join(os.path.dirname(case.ck), "checkpoint-2"), case.ck)
    case.expect_model(get_peft_model_state_dict(model))
    case.expect_optimizer(getattr(t.optimizer, "optimizer", t.optimizer))


def write_accelerate(top):
    import torch
    from accelerate import Accelerator
    case, a, model = Case(top, "state"), Accelerator(cpu=True), small(torch)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = a.prepare(model, optimizer)
    train(torch, model, optimizer)
    a.save_state(case.ck)
    case.expect_model(model.state_dict())
    case.expect_optimizer(optimizer.optimizer)


    case = Case(top, "fsdp2")
    on_ranks(2, lambda rank: save_fsdp2(case, rank))


def save_fsdp2(case, rank):
    """What Accelerate does on GPUs; on CPUs it takes FSDP for DDP."""
    import torch
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType
    os.environ.update(ACCELERATE_USE_FSDP="true", FSDP_VERSION="2")
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="NO_WRAP", state_dict_type="SHARDED_STATE_DICT")
    AcceleratorState._reset_state(True)
    a, model = Accelerator(cpu=True, fsdp_plugin=plugin), small(torch)
    shared = AcceleratorState._shared_state
    shared.update(distributed_type=DistributedType.FSDP, fsdp_plugin=plugin)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = a.prepare(model, optimizer)
    train(torch, model, optimizer)
    shared["distributed_type"] = DistributedType.FSDP
    a.save_state(case.ck)
    case.expect_sharded(rank, model, optimizer.optimizer)


def write_torchtitan(top):
    import torch
    manager = import_saving("torchtitan").CheckpointManager
    from torchtitan.components.optimizer import (
        LRSchedulersContainer, OptimizersContainer, ParamGroupConfig)
    case = Case(top, "dcp")

    class State:
        def state_dict(self):
            return {"step": torch.tensor(2), "ntokens_seen": torch.tensor(640)}

        def load_state_dict(self, state):
            pass

    def work(rank):
        model = small(torch)
        model = sharded(torch, model, (model[0], model[2]))
        group = lambda pattern, decay: ParamGroupConfig(
            pattern=pattern, optimizer_name="AdamW",
            optimizer_kwargs={"lr": 1e-3, "weight_decay": decay})
        optimizers = OptimizersContainer(OptimizersContainer.Config(
            implementation="for-loop", param_groups=[group("bias", 0.0), group(".*", 0.1)]),
            model_parts=[model])
        schedulers = LRSchedulersContainer.Config(warmup_steps=1).build(
            optimizers=optimizers, training_steps=10)
        train(torch, model, optimizers)
        manager(manager.Config(enable=True, interval=2, async_mode="disabled",
                               keep_latest_k=0),
                dataloader=State(), model_parts=[model], optimizers=optimizers,
                lr_schedulers=schedulers, states={"train_state": State()},
                sd_adapter=None, base_folder=os.path.dirname(case.ck)).save(2)
        case.expect_sharded(rank, model, optimizers.optimizers[0])
    on_ranks(2, work)
    os.rmdir(case.ck)
    os.rename(os.path.join(os.path.dirname(case.ck), "checkpoint", "step-2"), case.ck)


def write_torch_checkpointing(top):
    import torch
    resharder = import_saving("torch_checkpointing").DefaultResharder()
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch_checkpointing import CheckpointManager, ItemSpec, SyncCheckpointSaverConfig
    from torch_checkpointing.checkpoint_layout import LayoutInfo, SafetensorsSerialization

    def work(rank, case, layout):
        # Without a GPU it fails twice: where it gathers, and where files must be
        # written in whole blocks.
        torch.Tensor.cuda = lambda self, *args, **options: self
        make = torch.tensor
        torch.tensor = lambda *args, device=None, **options: make(*args, **options)
        os.O_DIRECT = 0
        model = small(torch)
        model = sharded(torch, model, (model[0], model[2]))
        optimizer = torch.optim.AdamW(model.parameters())
        train(torch, model, optimizer)
        manager = CheckpointManager.Config(
            items={"model": ItemSpec(layout=layout, resharder=resharder),
                   "optimizer": ItemSpec(resharder=resharder)},
            save=SyncCheckpointSaverConfig()).build()
        m, o = get_state_dict(model, optimizer)
        manager.save(os.path.join(case.ck, "step_2"),
                     {"model": m, "optimizer": o, "step": 2, "note": {"rank": rank}})
        manager.close()
        case.expect_sharded(rank, model, optimizer)

    for name, layout in {"torch": None, "safetensors": LayoutInfo(
            file_path="model/{rank}.safetensors",
            serialization_format=SafetensorsSerialization())}.items():
        case = Case(top, name)
        on_ranks(2, lambda rank: work(rank, case, layout))
        os.rename(os.path.join(case.ck, "step_2"), case.ck + "2")
        os.rmdir(case.ck)
        os.rename(case.ck + "2", case.ck)


def write_verl(top):
    import torch
    manager = import_saving("verl").FSDPCheckpointManager
    case = Case(top, "fsdp2")

    def work(rank):
        model = llama()
        model = sharded(torch, model, model.model.layers)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        for _ in range(2):
            words = torch.randint(0, 96, (2, 8))
            model(input_ids=words, labels=words).loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        manager(model, optimizer, schedule, checkpoint_config={}).save_checkpoint(
            os.path.join(case.ck, "actor"), global_step=2)
        if rank == 0:
            torch.save({"position": 3}, os.path.join(case.ck, "data.pt"))
        case.expect_sharded(rank, model, optimizer)
    on_ranks(2, work)


def write_lightning(top):
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = small(torch)

        def training_step(self, batch, _):
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    case, module = Case(top, "file"), Module()
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(8, 64)), batch_size=4)
    t = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, logger=False,
        enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False)
    t.fit(module, data)
    t.save_checkpoint(os.path.join(case.ck, "epoch=1-step=4.ckpt"))
    case.expect_model(module.state_dict())
    case.expect_optimizer(t.optimizers[0])


def write_torchao(top):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torchao import optim
    for kind in "AdamW8bit", "AdamW4bit", "AdamWFp8":
        model = small(torch)
        optimizer = getattr(optim, kind)(model.parameters())
        train(torch, model, optimizer)
        read = lambda v: v.dequantize() if hasattr(v, "dequantize") and \
            type(v) is not torch.Tensor else v
        case = Case(top, kind)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                   os.path.join(case.ck, "checkpoint.pt"))
        case.expect_model(model.state_dict())
        case.expect_optimizer(optimizer, read=read)
        case = Case(top, kind + "_dcp")
        m, o = get_state_dict(model, optimizer)
        dcp.save({"model": m, "optimizer": o}, checkpoint_id=case.ck, no_dist=True)
        case.expect_model(model.state_dict())
        case.expect_optimizer(optimizer, {p: n for n, p in model.named_parameters()},
                              read)


def write_bitsandbytes(top):
    import torch
    import bitsandbytes
    from bitsandbytes import functional
    for kind in "AdamW8bit", "Lion8bit", "AdEMAMix8bit":
        case, model = Case(top, kind), small(torch)
        optimizer = getattr(bitsandbytes.optim, kind)(model.parameters(), lr=1e-3,
                                                      min_8bit_size=1024)
        train(torch, model, optimizer)
        saved = optimizer.state_dict()
        torch.save({"model": model.state_dict(), "optimizer": saved},
                   os.path.join(case.ck, "checkpoint.pt"))
        case.expect_model(model.state_dict())
        for number, state in saved["state"].items():
            packed = state.get("__bnb_optimizer_quant_state__", {})
            for i in "1", "2":
                if "qmap" + i in packed:
                    codes, scale = packed["state" + i], packed["absmax" + i]
                    pairs = zip(codes, scale) if scale.dim() == 2 else [(codes, scale)]
                    case.expect(
                        "optim/state/%s/__bnb_optimizer_quant_state__/state%s" % (number, i),
                        torch.stack([functional.dequantize_blockwise(
                            c, absmax=s, code=packed["qmap" + i], blocksize=256)
                            for c, s in pairs]))
    write_quantized(top, torch, functional)


def write_quantized(top, torch, functional):
    """Weights in 4 and 8 bits, as transformers saves them."""
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    base = os.path.join(top, "base")
    llama().to(torch.bfloat16).save_pretrained(base)
    for name, options in {
            "nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                        bnb_4bit_use_double_quant=True),
            "fp4": dict(load_in_4bit=True, bnb_4bit_quant_type="fp4"),
            "nf4_bf16": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                             bnb_4bit_use_double_quant=True,
                             bnb_4bit_quant_storage=torch.bfloat16),
            "int8": dict(load_in_8bit=True)}.items():
        case = Case(top, name)
        AutoModelForCausalLM.from_pretrained(
            base, quantization_config=BitsAndBytesConfig(**options), device_map="cpu",
            dtype=torch.bfloat16).save_pretrained(case.ck)
        tensors = load_file(os.path.join(case.ck, "model.safetensors"))
        for key in list(tensors):
            if key.endswith(".SCB"):
                weight = key[:-3] + "weight"
                case.expect("model/" + weight, functional.int8_vectorwise_dequant(
                    tensors[weight], tensors[key]))
            elif ".quant_state." in key:
                weight = key.split(".quant_state.")[0]
                state = functional.QuantState.from_dict(
                    {k: v.clone() for k, v in tensors.items()
                     if k.startswith(weight + ".")}, "cpu")
                state.dtype = torch.float32
                # in one row: the kernel for CPUs has other blocks where rows are
                # no multiple of them
                state.shape = (1, state.shape.numel())
                case.expect("model/" + weight,
                            functional.dequantize_4bit(tensors[weight], state))


def family_models():
    """A tiny model of each family that names= knows."""
    import torch
    import transformers
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    for family, name, more in (
            ("llama", "Llama", {}), ("mistral", "Mistral", {}), ("qwen2", "Qwen2", {}),
            ("qwen3", "Qwen3", {}), ("gemma", "Gemma", {}), ("gemma2", "Gemma2", {}),
            ("gemma3_text", "Gemma3", {}), ("phi3", "Phi3", {}),
            ("nemotron", "Nemotron", {}), ("qwen2_moe", "Qwen2Moe", experts),
            ("olmo2", "Olmo2", {}), ("olmo3", "Olmo3", {}), ("glm4", "Glm4", {}),
            ("gpt_oss", "GptOss", {"num_local_experts": 4}),
            ("qwen3_moe", "Qwen3Moe", experts), ("olmoe", "Olmoe", {"num_experts": 4}),
            ("mixtral", "Mixtral", {"num_local_experts": 4}),
            ("glm4_moe", "Glm4Moe", {
                "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
                "moe_intermediate_size": 32, "n_shared_experts": 1, "topk_group": 1,
                "first_k_dense_replace": 1})):
        config = getattr(transformers, name + "Config", None)
        if family == "gemma3_text":
            config = transformers.Gemma3TextConfig
        model = getattr(transformers, name + "ForCausalLM")(config(
            vocab_size=96, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
            head_dim=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, **more))
        for p in model.parameters():
            p.data.normal_()
        yield family, model.to(torch.bfloat16)


def write_families(top):
    """A tiny model of each family: DIR/FAMILY."""
    for family, model in family_models():
        model.save_pretrained(os.path.join(top, family))


# Of the families that megatron-bridge 0.3.1 has not: the mapping of Megatron-Bridge
# 57852623, models/olmo2/olmo2_bridge.py; that of mcore-bridge 78d614c6,
# model/gpts/glm4.py; and query, key, value, gate and up of phi3 are fused there, too.
COPIED = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "output_layer.weight": "lm_head.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "decoder.layers.*.self_attention.linear_proj.weight": "model.layers.*.self_attn.o_proj.weight",
    "decoder.layers.*.mlp.linear_fc2.weight": "model.layers.*.mlp.down_proj.weight"}
NORMS = {
    "decoder.layers.*.self_attention.linear_qkv.layer_norm_weight":
        "model.layers.*.input_layernorm.weight",
    "decoder.layers.*.mlp.linear_fc1.layer_norm_weight":
        "model.layers.*.post_attention_layernorm.weight"}
QKV = {x: "model.layers.*.self_attn.%s_proj.weight" % x for x in "qkv"}
GATED = {x: "model.layers.*.mlp.%s_proj.weight" % x for x in ("gate", "up")}
FUSED = "model.layers.*.mlp.gate_up_proj.weight"
BY_HAND = {
    "olmo2": dict(COPIED, **{
        "decoder.layers.*.self_attention.linear_qkv.weight": QKV,
        "decoder.layers.*.mlp.linear_fc1.weight": GATED,
        "decoder.layers.*.self_attention.q_layernorm.weight":
            "model.layers.*.self_attn.q_norm.weight",
        "decoder.layers.*.self_attention.k_layernorm.weight":
            "model.layers.*.self_attn.k_norm.weight",
        "decoder.layers.*.self_attention.linear_proj.post_layernorm.weight":
            "model.layers.*.post_attention_layernorm.weight",
        "decoder.layers.*.mlp.linear_fc2.post_layernorm.weight":
            "model.layers.*.post_feedforward_layernorm.weight"}),
    "glm4": dict(COPIED, **NORMS, **{
        "decoder.layers.*.self_attention.linear_qkv.weight": QKV,
        "decoder.layers.*.self_attention.linear_qkv.bias":
            {k: v.replace("weight", "bias") for k, v in QKV.items()},
        "decoder.layers.*.mlp.linear_fc1.weight": FUSED,
        "decoder.layers.*.self_attention.post_self_attn_layernorm.weight":
            "model.layers.*.post_self_attn_layernorm.weight",
        "decoder.layers.*.mlp.post_mlp_layernorm.weight":
            "model.layers.*.post_mlp_layernorm.weight"}),
    "phi3": dict(COPIED, **NORMS, **{
        "decoder.layers.*.self_attention.linear_qkv.weight":
            "model.layers.*.self_attn.qkv_proj.weight",
        "decoder.layers.*.mlp.linear_fc1.weight": FUSED})}
BY_HAND["olmo3"] = BY_HAND["olmo2"]
BRIDGES = {
    "llama": "llama.llama_bridge.LlamaBridge", "qwen2": "qwen.qwen2_bridge.Qwen2Bridge",
    "qwen3": "qwen.qwen3_bridge.Qwen3Bridge", "gemma": "gemma.gemma_bridge.GemmaBridge",
    "gemma2": "gemma.gemma2_bridge.Gemma2Bridge",
    "gemma3_text": "gemma.gemma3_bridge.Gemma3ModelBridge",
    "nemotron": "nemotron.nemotron_bridge.NemotronBridge",
    "qwen3_moe": "qwen.qwen3_moe_bridge.Qwen3MoEBridge",
    "olmoe": "olmoe.olmoe_bridge.OlMoEBridge",
    "glm4_moe": "glm.glm45_bridge.GLM45Bridge",
    "gpt_oss": "gpt_oss.gpt_oss_bridge.GPTOSSBridge"}


def to_megatron(pm, mapping, got, expert, shape):
    """The tensor of Megatron-Core that this mapping makes of those of Hugging Face."""
    import torch
    kind = type(mapping).__name__
    if set(got) == {"q", "k", "v"}:
        merge = pm.merge_qkv_biases if got["q"].dim() == 1 else pm.merge_qkv_weights
        return merge(shape, got["q"], got["k"], got["v"])
    if set(got) == {"gate", "up"}:
        return torch.cat([got["gate"], got["up"]])
    value, = got.values()
    if kind.startswith("GPTOSS"):
        value = value.transpose(-1, -2)[expert] if value.dim() == 3 else value[expert]
        return mapping._interleave(value) if "GateUp" in kind else value
    if "qkv_proj" in next(iter(got)):
        return pm.merge_qkv_weights(shape, *value.split([64, 32, 32]))
    return value


def megatron_state(pm, family, state, shape):
    """The state dict of Megatron-Core, experts stacked as in its checkpoints."""
    import re
    import torch
    if family in BY_HAND:
        rows = [(None, left, right) for left, right in BY_HAND[family].items()]
    else:
        module, name = BRIDGES[family].rsplit(".", 1)
        bridge = getattr(importlib.import_module("megatron.bridge.models." + module), name)
        rows = [(m, m.megatron_param, m.hf_param) for m in bridge().mapping_registry().mappings
                if "local_experts" not in m.megatron_param]
    made, used = {}, set()
    for mapping, left, right in rows:
        right = right if isinstance(right, dict) else {right: right}
        first = next(iter(right.values()))
        for name in state:
            m = re.fullmatch(re.escape(first).replace(r"\*", r"(\d+)"), name)
            names = m and {k: re.sub(r"\*", lambda _, i=iter(m.groups()): next(i), r)
                           for k, r in right.items()}
            if not m or not used.isdisjoint(names.values()):
                continue
            used.update(names.values())
            got = {k: state[n] for k, n in names.items()}
            alone = left.count("*") == len(m.groups())
            for e in [None] if alone else range(len(state[name])):
                stars = iter(list(m.groups()) + [str(e)])
                made[re.sub(r"\*", lambda _: next(stars), left)] = to_megatron(
                    pm, mapping, got, e, shape).contiguous()
    if set(state) != used:
        sys.exit("%s: no mapping for %s" % (family, sorted(set(state) - used)))
    stacked = {}
    for name in sorted(made, key=lambda n: [int(x) if x.isdigit() else x
                                            for x in re.split(r"(\d+)", n)]):
        m = re.fullmatch(r"(.*\.mlp\.experts\.)(linear_fc.\.(?:weight|bias))\d+", name)
        stacked.setdefault(m[1] + "experts." + m[2] if m else name, []).append(made[name])
    return {n: torch.stack(v) if ".experts.experts." in n else v[0] for n, v in stacked.items()}


def write_megatron_bridge(top):
    """DIR/FAMILY/hf, and DIR/FAMILY/megatron that the mapping of the bridge makes of it."""
    import types
    import torch.distributed.checkpoint as dcp
    shape = types.SimpleNamespace(num_attention_heads=4, num_query_groups=2,
                                  kv_channels=16, hidden_size=64)
    pm = import_saving("megatron_bridge")
    from safetensors.torch import load_file
    for family, model in family_models():
        if family not in BRIDGES and family not in BY_HAND:
            continue
        to = os.path.join(top, family)
        model.save_pretrained(os.path.join(to, "hf"))
        state = load_file(os.path.join(to, "hf", "model.safetensors"))
        dcp.save({"model": megatron_state(pm, family, state, shape)},
                 checkpoint_id=os.path.join(to, "megatron"), no_dist=True)


def write_mbridge(top):
    """What verl's converter makes of a checkpoint of Megatron-Core."""
    import torch
    import torch.distributed.checkpoint as dcp
    from megatron.core import dist_checkpointing
    from mbridge.models.llama import LLaMABridge
    from safetensors.torch import save_file
    from transformers import LlamaConfig
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "data",
                        "megatron/llama_dp2/fully_reshardable/iter_0000003")
    args = dist_checkpointing.load_common_state_dict(path)["args"]
    bridge = LLaMABridge.__new__(LLaMABridge)  # its __init__ needs a job
    bridge.hf_config = LlamaConfig(
        hidden_size=args.hidden_size, num_attention_heads=args.num_attention_heads,
        num_key_value_heads=args.num_query_groups)
    bridge.make_vocab_size_divisible_by = None
    index = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    state = {k: torch.empty(m.size, dtype=m.properties.dtype) for k, m in index.items()
             if hasattr(m, "size") and not k.startswith("optimizer")}
    dcp.load(state, checkpoint_id=path, no_dist=True)
    made = {}
    for key, value in state.items():
        layers = [(key, value)] if ".layers." not in key else [
            (key.replace("layers.", "layers.%d." % i, 1), v) for i, v in enumerate(value)]
        for name, v in layers:
            names, tensors = bridge._weight_to_hf_format(name, v)
            made.update((n, t.contiguous().clone()) for n, t in zip(names, tensors))
    save_file(made, os.path.join(top, "model.safetensors"))
    print(path)


LIBRARIES = {
    "mbridge": write_mbridge, "families": write_families,
    "megatron_bridge": write_megatron_bridge,
    "transformers": write_transformers, "peft": write_peft,
    "accelerate": write_accelerate, "lightning": write_lightning,
    "torchtitan": write_torchtitan, "verl": write_verl,
    "torch_checkpointing": write_torch_checkpointing,
    "torchao": write_torchao, "bitsandbytes": write_bitsandbytes,
}


def version(library):
    try:
        import_saving(library)
        importlib.import_module("torch")
        if library in ("peft", "bitsandbytes"):
            importlib.import_module("transformers")
    except Exception as e:
        sys.exit("no %s here: %s" % (library, e))
    print(importlib.metadata.version(library))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        LIBRARIES[sys.argv[2]](sys.argv[3])
    else:
        version(sys.argv[2])
