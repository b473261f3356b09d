#!/usr/bin/env python3
"""deepspeed.py - does DeepSpeed load what optimfs writes?

usage: deepspeed.py again DIR NEW RANKS   a job of RANKS processes makes a model with
                                          the parameters of DIR, loads DIR, and
                                          saves to NEW
       deepspeed.py train DIR NEW RANKS   the same, and two steps between, with the
                                          gradients of torch_reader.py
       deepspeed.py weights DIR NEW RANKS WEIGHTS  the same as again, but loads the model
                                          alone, from WEIGHTS
       deepspeed.py version               exit 0 where DeepSpeed can be used

DIR is a checkpoint of ZeRO 1, 2 or 3 of RANKS ranks, or a universal one. The
caller compares the trees of DIR and NEW. No accelerator is needed: PyTorch uses
gloo on CPUs.
"""
# SPDX-License-Identifier: Apache-2.0
import glob
import os
import re
import sys

# Not this script, which has the name of the package.
sys.path[:] = [p for p in sys.path
               if os.path.abspath(p) != os.path.dirname(os.path.abspath(__file__))]
os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("USE_LIBUV", "0")  # Debian's PyTorch has none


def natural(path):
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", path)]


def tag_of(top):
    for name in "latest_universal", "latest":
        if os.path.exists(os.path.join(top, name)):
            with open(os.path.join(top, name)) as f:
                return os.path.join(top, f.read().strip())
    raise SystemExit("no latest in " + top)


def load(torch, path):
    try:
        return torch.load(path, map_location="cpu", weights_only=False)
    except TypeError: # before PyTorch 1.13
        return torch.load(path, map_location="cpu")


def set_in(torch, module, name, value, buffer=False):
    *path, last = name.split(".")
    for word in path:
        if word not in module._modules:
            module.add_module(word, torch.nn.Module())
        module = module._modules[word]
    if buffer:
        module.register_buffer(last, value)
    else:
        module.register_parameter(last, value)
    return value


# Stage 1 does not list frozen parameters.
def frozen(state, made):
    listed = state["frozen_param_shapes"]
    if listed is not None:
        return listed
    return {name: value.shape for name, value in state["module"].items()
            if name not in made and name not in state["buffer_names"] and
            name not in state["shared_params"]}


# Makes a model with these parameters, and the param groups of its optimizer.
def build(torch, tag, universal):
    state = load(torch, sorted(glob.glob(tag + "/*model_states.pt"),
                               key=natural)[0])
    shapes = state["param_shapes"]
    shapes = shapes if isinstance(shapes, list) else [shapes]
    if universal:
        options = load(torch, tag + "/zero/optimizer_state.pt")
    else:
        options = load(torch, sorted(glob.glob(tag + "/*optim_states.pt"),
                                     key=natural)[0])["optimizer_state_dict"]
    options = options.get("base_optimizer_state", options)
    if "param_groups" not in options:
        options = options["optimizer_state_dict"]
    dtype = torch.bfloat16 if (state.get("ds_config") or {}).get(
        "bf16", {}).get("enabled") else torch.float32
    model, made, groups = torch.nn.Module(), {}, []
    for group in options["param_groups"]:
        params = []
        for number in group["params"]:
            for name, shape in shapes[number].items():
                made[name] = set_in(torch, model, name, torch.nn.Parameter(
                    torch.zeros(shape)))
                params.append(made[name])
        groups.append(dict({k: v for k, v in group.items()
                            if k in ("lr", "betas", "eps", "weight_decay")},
                           params=params))
    for name, shape in frozen(state, made).items():
        made[name] = set_in(torch, model, name, torch.nn.Parameter(
            torch.zeros(shape), requires_grad=False))
    for name, owner in state["shared_params"].items():
        set_in(torch, model, name, made[owner])
    for name in state["buffer_names"]:
        set_in(torch, model, name, torch.zeros_like(state["module"][name]),
               buffer=True)
    return model, groups, dtype, state


def config(state, stage, dtype, universal):
    zero = {"stage": stage}
    old = (state.get("ds_config") or {}).get("zero_optimization", {})
    if stage == 3:
        zero.update({k: old[k] for k in ("sub_group_size",) if k in old})
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": "bfloat16" in str(dtype)},
        "communication_data_type": "fp32",
        "checkpoint": {"load_universal": universal},
        "zero_optimization": zero,
    }


# Gloo of older PyTorch has no bfloat16, so the bytes are sent.
def move_bytes(torch):
    def raw(t):
        if not torch.is_tensor(t) or t.dtype != torch.bfloat16:
            return t
        return t.detach().view(-1).view(torch.int8)

    def wrap(name):
        function = getattr(torch.distributed, name, None)
        if function is None:
            return

        def call(*args, **kwargs):
            both = list(args), dict(kwargs)
            for values, keys in ((both[0], range(len(args))),
                                 (both[1], list(kwargs))):
                for key in keys:
                    v = values[key]
                    values[key] = ([raw(t) for t in v]
                                   if isinstance(v, (list, tuple)) else raw(v))
            return function(*both[0], **both[1])

        setattr(torch.distributed, name, call)

    def into(output_tensor, input_tensor, group=None, async_op=False):
        ranks = torch.distributed.get_world_size(group)
        parts = output_tensor.view(-1).chunk(ranks)
        return torch.distributed.all_gather(
            [t.view(input_tensor.shape) for t in parts], input_tensor,
            group=group, async_op=async_op)

    for name in ("broadcast", "all_gather"):
        wrap(name)
    # Nor has it all_gather_into_tensor.
    for name in ("all_gather_into_tensor", "_all_gather_base"):
        if hasattr(torch.distributed, name):
            setattr(torch.distributed, name, into)


# Gradients that depend on names and positions only, as in torch_reader.py.
def backward(torch, engine, number):
    loss = 0.0
    trained = sorted((n, p) for n, p in engine.module.named_parameters()
                     if p.requires_grad)
    for i, (_, p) in enumerate(trained):
        g = torch.Generator().manual_seed(1000 * number + i)
        shape = getattr(p, "ds_shape", p.shape)
        loss = loss + (p * torch.randn(shape, generator=g)).sum()
    engine.backward(loss)


def job(rank, ranks, port, top, new, steps, weights=None):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import torch
    import torch.distributed
    move_bytes(torch)
    import deepspeed
    deepspeed.init_distributed("gloo")
    tag = tag_of(top)
    universal = os.path.isdir(tag + "/zero")
    model, groups, dtype, state = build(torch, tag, universal)
    stage = 3 if glob.glob(tag + "/zero_pp_rank_*_model_states.pt") else 2
    if not universal:
        one = load(torch, glob.glob(tag + "/*optim_states.pt")[0])
        stage = int(one["optimizer_state_dict"]["zero_stage"])
    adam = torch.optim.AdamW(groups, lr=0.001)
    engine, _, _, _ = deepspeed.initialize(
        model=model, optimizer=adam, model_parameters=None,
        config=config(state, stage, dtype, universal))
    # Without states, stage 3 has its weights from zero_to_fp32.py.
    path, _ = engine.load_checkpoint(weights or top,
                                     load_module_only=weights is not None,
                                     load_optimizer_states=weights is None or
                                     universal)
    assert path is not None, "DeepSpeed found nothing to load"
    engine.optimizer.clip_grad = 0.0  # the checkpoint has set it
    for number in range(steps):
        if stage == 3:
            with deepspeed.zero.GatheredParameters(list(engine.parameters())):
                backward(torch, engine, number)
        else:
            backward(torch, engine, number)
        engine.step()
    engine.save_checkpoint(new, tag="again")


def again(top, new, ranks, steps=0, weights=None):
    import socket
    import torch.multiprocessing
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(job, (int(ranks), port, top, new, steps, weights),
                                nprocs=int(ranks))


def train(top, new, ranks):
    again(top, new, ranks, 2)


def alone(top, new, ranks, weights):
    again(top, new, ranks, weights=weights)


def version():
    try:
        import deepspeed
        import torch.distributed
    except Exception as e:
        sys.exit("no DeepSpeed here: %s" % e)
    if not torch.distributed.is_gloo_available() if hasattr(
            torch.distributed, "is_gloo_available") else False:
        sys.exit("PyTorch without gloo")
    print(deepspeed.__version__)


if __name__ == "__main__":
    {"again": again, "train": train, "version": version,
     "weights": alone}[sys.argv[1]](*sys.argv[2:])
