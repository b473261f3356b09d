# dump_units.py - write down which parameters FSDP laid into which flat parameter
# SPDX-License-Identifier: Apache-2.0
"""Inside a training job, after the optimizer was made, on any one rank:

    from dump_units import dump_units
    if torch.distributed.get_rank() == 0:
        dump_units(model, "units.json", optimizer)

model is what FullyShardedDataParallel returned. The file is for
"optimfs mount -o units=units.json"; docs/formats/fsdp.md describes it. Nothing
is communicated and no parameter is touched. Works with PyTorch 1.12 and later;
what a release does not record is left out.
"""
import json

WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.",
            "_orig_mod.", "_fpw_module.")


def clean(name):
    """A parameter's name without the prefixes that wrappers put into it."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def numbers(value):
    """Sizes, shapes and tuples as JSON has them."""
    if isinstance(value, (list, tuple)):
        return [numbers(v) for v in value]
    return value


def handles_of(module):
    """The flat-parameter handles that this FSDP module itself has."""
    handles = [getattr(module, "_handle", None)]
    if handles[0] is None:
        handles = getattr(module, "_handles", None)
    # other modules may have members of that name too
    if not isinstance(handles, (list, tuple)):
        return []
    return [h for h in handles if hasattr(h, "flat_param")]


def shard_infos(flat):
    """(in shard, offset, elements, first, last) of each parameter."""
    infos = getattr(flat, "_shard_param_infos", None)
    if infos is None:
        return None
    return [[i.in_shard, i.offset_in_shard, i.numel_in_shard,
             i.intra_param_start_idx, i.intra_param_end_idx] for i in infos]


def shared_of(flat):
    """Name and module of each shared parameter, then of its first use."""
    return [[i.param_name, i.module_name, i.prim_param_name, i.prim_module_name]
            for i in getattr(flat, "_shared_param_infos", None) or ()]


def grads_of(flat):
    """Of each parameter, whether it is trained."""
    params = getattr(flat, "_params", None)
    if params is None:  # use_orig_params=False: all alike
        return [bool(flat.requires_grad)] * len(flat._fqns)
    return [None if p is None else bool(p.requires_grad) for p in params]


def unit_of(prefix, module, handle):
    """One flat parameter."""
    flat = handle.flat_param
    group = getattr(handle, "process_group", None) or module.process_group
    strategy = getattr(handle, "_sharding_strategy",
                       getattr(module, "sharding_strategy", None))
    record = {
        "prefix": clean(prefix + ".")[:-1],
        "fqns": list(flat._fqns),
        "shapes": [list(shape) for shape in flat._shapes],
        "numels": numbers(getattr(flat, "_numels", None)),
        "numels_with_padding": numbers(
            getattr(flat, "_numels_with_padding", None)),
        "is_padding_mask": numbers(getattr(flat, "_is_padding_mask", None)),
        "contiguities": numbers(getattr(flat, "_contiguities", None)),
        "shard_numel_padded": getattr(flat, "_shard_numel_padded", None),
        "use_orig_params": getattr(handle, "_use_orig_params", None),
        "world_size": group.size(),
        "rank": group.rank(),
        "shared": shared_of(flat),
        "strategy": str(strategy),
        "dtype": str(flat.dtype),
        "shard_param_infos": shard_infos(flat),
        "requires_grad": grads_of(flat),
    }
    for key, name in (("unpadded_unsharded_size", "_unpadded_unsharded_size"),
                      ("sharded_size", "_sharded_size")):
        size = getattr(flat, name, None)
        record[key] = None if size is None else list(size)
    return {k: v for k, v in record.items() if v is not None}


def units_of(model):
    """All units, an outer one before those nested in it."""
    units, seen = [], set()
    for prefix, module in model.named_modules():
        for handle in handles_of(module):
            if id(handle) not in seen:
                seen.add(id(handle))
                units.append(unit_of(prefix, module, handle))
    return units


def groups_of(model, optimizer):
    """The names of the optimizer's parameters, group by group; None where one
    of them is a flat parameter or not the model's."""
    names = {id(p): clean(n) for n, p in model.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        groups.append([names.get(id(p)) for p in group["params"]])
    flat = any(n is None or n.split(".")[-1] == "_flat_param"
               for group in groups for n in group)
    return None if flat else groups


def describe(model, optimizer=None):
    """What dump_units writes, as a dict."""
    names = [clean(n) for n, _ in model.named_parameters()]
    out = {"units": units_of(model)}
    if not any(n.split(".")[-1] == "_flat_param" for n in names):
        out["parameters"] = names
        if optimizer is not None:
            groups = groups_of(model, optimizer)
            if groups is not None:
                out["param_groups"] = groups
    return out


def dump_units(model, path, optimizer=None):
    """Write the units of model to path; with the optimizer, also which
    parameter each of its integer IDs is."""
    with open(path, "w", encoding="utf-8") as f:
        json.dump(describe(model, optimizer), f, indent=1)
        f.write("\n")
