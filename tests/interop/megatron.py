#!/usr/bin/env python3
"""megatron.py - Megatron-Core loads a checkpoint and trains on

usage: megatron.py train DIR NEW RANKS [TP [PP]]
                          RANKS processes make the GPT model of DIR, a torch_dist
                          checkpoint with args, load DIR, train two steps with the
                          gradients of torch_reader.py, and save to NEW
       megatron.py again DIR NEW RANKS [TP [PP]]   the same without the steps
       megatron.py kinds DIR NEW RANKS [TP [PP]]   the same; NEW gets a directory for
                                                   each way to save the optimizer
       megatron.py weights DIR NEW RANKS [TP [PP]] loads and saves the model alone
       megatron.py version                         exit 0 where Megatron-Core can be used

TP and PP: tensor and pipeline parallel ranks. The caller compares trees. No GPU
is needed: PyTorch uses gloo on CPUs.
"""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

# Not this script, which has the name of the package.
sys.path[:] = [p for p in sys.path
               if os.path.abspath(p) != os.path.dirname(os.path.abspath(__file__))]
os.environ.setdefault("USE_LIBUV", "0")  # Debian's PyTorch has none


def without_gpu(torch):
    """Megatron-Core names GPUs in places that work on CPUs as well."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda: None

    class OnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is torch.Tensor.cuda:
                return args[0]
            kwargs = dict(kwargs or {})
            if kwargs.get("device") == "cuda":
                kwargs["device"] = "cpu"
            result = function(*args, **kwargs)
            if function is torch.Tensor.type and len(args) == 1:
                result = result.replace("torch.", "torch.cuda.")
            return result

    OnCpu().__enter__()

    # Gloo has no bfloat16, so the bytes are sent.
    from megatron.core.distributed import param_and_grad_buffer as buffers
    gather = buffers.dist_all_gather_func
    buffers.dist_all_gather_func = lambda whole, part, **how: gather(
        whole.view(torch.uint8), part.view(torch.uint8), **how)


def build(torch, args):
    """The model of args, wrapped, and its optimizer."""
    from megatron.core.distributed import (DistributedDataParallel,
                                           DistributedDataParallelConfig)
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig
    from megatron.core import parallel_state as mpu

    config = TransformerConfig(
        num_layers=args.num_layers, hidden_size=args.hidden_size,
        ffn_hidden_size=args.ffn_hidden_size,
        num_attention_heads=args.num_attention_heads,
        num_query_groups=args.num_query_groups,
        gated_linear_unit=args.swiglu, add_bias_linear=not args.swiglu,
        activation_func=torch.nn.functional.silu if args.swiglu else
        torch.nn.functional.gelu,
        normalization=args.normalization, bf16=True,
        params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16,
        use_cpu_initialization=True, bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
        tensor_model_parallel_size=mpu.get_tensor_model_parallel_world_size(),
        pipeline_model_parallel_size=mpu.get_pipeline_model_parallel_world_size())
    tied = not args.untie_embeddings_and_output_weights
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(
            normalization=args.normalization),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=mpu.is_pipeline_first_stage(),
        post_process=mpu.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=tied,
        position_embedding_type="learned_absolute" if tied else "rope")
    model.bfloat16()
    model = DistributedDataParallel(config, DistributedDataParallelConfig(
        use_distributed_optimizer=True, grad_reduce_in_fp32=True), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=args.lr, min_lr=args.lr, weight_decay=args.weight_decay,
        adam_beta1=args.adam_beta1, adam_beta2=args.adam_beta2,
        adam_eps=args.adam_eps, bf16=True, params_dtype=torch.bfloat16,
        use_distributed_optimizer=True, clip_grad=0.0), [model])
    return model, optimizer


def make_state(torch, optimizer):
    """Lets PyTorch's AdamW load. Megatron-Core expects states to be there, and
    looks for a step in each, where it has not stored one."""
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    put = DistributedOptimizer._set_main_param_and_optimizer_states
    DistributedOptimizer._set_main_param_and_optimizer_states = \
        lambda self, param, tensors: put(self, param, dict(tensors, step=None))
    optimizer.step()


def names_of(base):
    """The parameters that a ShardedTensor has a part of: a stack has layers."""
    if not base.prepend_axis_num:
        return base.key
    return base.key.replace("layers.", "layers.%d." % base.global_offset[0], 1)


def parts(base, data):
    """Name, shape, offset and a view of data, for each part of a parameter."""
    from dataclasses import replace
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory

    found = [base]
    if isinstance(base, ShardedTensorFactory):
        found = list(nested_values(replace(base, data=data).build()))
    for x in found:
        n = x.prepend_axis_num
        yield (names_of(x), x.global_shape[n:], x.global_offset[n:],
               data if x is base else x.data)


def set_grads(torch, model, sharded, names, step):
    """Gradients that depend on names and positions only, as in torch_reader.py."""
    from megatron.core.dist_checkpointing.mapping import (ShardedTensor,
                                                          ShardedTensorFactory)
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    trained = {id(p) for p in model.parameters()}
    for base in nested_values(sharded):
        if not isinstance(base, (ShardedTensor, ShardedTensorFactory)) or \
                id(base.data) not in trained:
            continue
        for name, shape, at, grad in parts(base, base.data.main_grad):
            g = torch.Generator().manual_seed(1000 * step + names.index(name))
            full = torch.randn(shape, generator=g)
            grad.copy_(full[tuple(slice(a, a + n)
                                  for a, n in zip(at, grad.shape))])


def parameters(path):
    """The names of all trained parameters, layer by layer."""
    from torch.distributed.checkpoint import FileSystemReader
    names = []
    index = FileSystemReader(path).read_metadata().state_dict_metadata
    for key, t in index.items():
        if not key.startswith("optimizer.state.exp_avg."):
            continue
        key = key[len("optimizer.state.exp_avg."):]
        layers = range(t.size[0]) if ".layers." in key else [None]
        names += [key if i is None else
                  key.replace("layers.", "layers.%d." % i, 1) for i in layers]
    return sorted(names)


# Releases such as 0.19 cannot save fully_sharded_model_space any more.
KINDS = "fully_reshardable", "dp_reshardable"


def job(rank, ranks, store, tp, pp, path, new, steps, kinds=False, weights=False):
    import torch
    import torch.distributed as dist
    import torch.overrides
    without_gpu(torch)
    from megatron.core import dist_checkpointing, parallel_state

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks),
                            rank=rank, world_size=ranks)
    parallel_state.initialize_model_parallel(tp, pp)
    common = dist_checkpointing.load_common_state_dict(path)
    metadata = common["content_metadata"]
    model, optimizer = build(torch, common["args"])

    def state(loading, how=metadata):
        sharded = model.module.sharded_state_dict(metadata=how)
        if weights:  # --no-load-optim, --no-save-optim
            return {"model": sharded}
        return {"model": sharded, "optimizer": optimizer.sharded_state_dict(
            sharded, is_loading=loading, metadata=how)}

    def save(where, how):
        if rank == 0:
            os.makedirs(where)
        dist.barrier()
        dist_checkpointing.save(
            dict(state(False, how), args=common["args"], checkpoint_version=3.0,
                 iteration=common["iteration"] + steps),
            where, content_metadata=how)

    if weights:
        model.module.load_state_dict(
            dist_checkpointing.load(state(True), path)["model"])
        save(new, metadata)
        dist.destroy_process_group()
        return
    make_state(torch, optimizer)
    loaded = dist_checkpointing.load(state(True), path)
    model.module.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    for own in optimizer.chained_optimizers:
        for values in own.optimizer.state.values():
            values["step"] = values["step"].clone()  # one tensor for all
    names = parameters(path)
    for step in range(steps):
        with torch.no_grad():
            set_grads(torch, model, state(False)["model"], names, step)
        optimizer.step()
    if not kinds:
        save(new, metadata)
    for kind in KINDS if kinds else ():
        save(os.path.join(new, kind), dict(metadata, distrib_optim_sharding_type=kind))
    dist.destroy_process_group()


def run(steps, path, new, ranks, tp="1", pp="1", kinds=False, weights=False):
    import tempfile
    import torch.multiprocessing as mp
    with tempfile.NamedTemporaryFile() as f:
        mp.spawn(job, (int(ranks), f.name + ".store", int(tp), int(pp), path,
                       new, steps, kinds, weights), nprocs=int(ranks))


def train(*args):
    run(2, *args)


def again(*args):
    run(0, *args)


def every_kind(*args):
    run(1, *args, kinds=True)


def alone(*args):
    run(0, *args, weights=True)


def version():
    try:
        import torch.distributed
        import megatron.core
        from megatron.core.models.gpt import GPTModel
    except Exception as e:
        sys.exit("no Megatron-Core here: %s" % e)
    if not torch.distributed.is_gloo_available():
        sys.exit("PyTorch without gloo")
    print(megatron.core.__version__)


if __name__ == "__main__":
    {"again": again, "kinds": every_kind, "train": train, "version": version,
     "weights": alone}[sys.argv[1]](*sys.argv[2:])
