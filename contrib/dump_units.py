# dump_units.py - record which parameters FSDP put into which flat parameter
# SPDX-License-Identifier: Apache-2.0
"""Inside a training job, after the optimizer is created, on any one rank:

    from dump_units import dump_units
    if torch.distributed.get_rank() == 0:
        dump_units(model, "units.json", optimizer)

model is what FullyShardedDataParallel returned. The file is for
"optimfs mount -o units=units.json"; docs/formats/fsdp.md describes it. The ranks
do not communicate, and no parameter is changed. Works with PyTorch 1.12 and
later; attributes that a release lacks are left out.
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
    """Convert sizes, shapes and tuples to lists for JSON."""
    if isinstance(value, (list, tuple)):
        return [numbers(v) for v in value]
    return value


def handles_of(module):
    """The flat-parameter handles of this FSDP module, without its children."""
    handles = [getattr(module, "_handle", None)]
    if handles[0] is None:
        handles = getattr(module, "_handles", None)
    # modules other than FSDP's may have an attribute of this name
    if not isinstance(handles, (list, tuple)):
        return []
    return [h for h in handles if hasattr(h, "flat_param")]


def shard_infos(flat):
    """[in shard, offset, elements, first, last] of each parameter."""
    infos = getattr(flat, "_shard_param_infos", None)
    if infos is None:
        return None
    return [[i.in_shard, i.offset_in_shard, i.numel_in_shard,
             i.intra_param_start_idx, i.intra_param_end_idx] for i in infos]


def shared_of(flat):
    """Name and module of each shared parameter, and of the primary one."""
    return [[i.param_name, i.module_name, i.prim_param_name, i.prim_module_name]
            for i in getattr(flat, "_shared_param_infos", None) or ()]


def grads_of(flat):
    """Whether each parameter is trained; None if unknown."""
    params = getattr(flat, "_params", None)
    if params is None:  # use_orig_params=False: one value for all
        return [bool(flat.requires_grad)] * len(flat._fqns)
    return [None if p is None else bool(p.requires_grad) for p in params]


def unit_of(prefix, module, handle):
    """Describe one flat parameter."""
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
    """All units; an outer unit precedes those nested in it."""
    units, seen = [], set()
    for prefix, module in model.named_modules():
        for handle in handles_of(module):
            if id(handle) not in seen:
                seen.add(id(handle))
                units.append(unit_of(prefix, module, handle))
    return units


def names_of(model):
    """The names of each parameter: of a flat parameter, those that it has."""
    names = {id(p): [clean(n)] for n, p in model.named_parameters()}
    for prefix, module in model.named_modules():
        for handle in handles_of(module):
            flat = handle.flat_param
            if id(flat) in names:  # use_orig_params=False
                names[id(flat)] = [clean(f"{prefix}.{n}").lstrip(".")
                                   for n in flat._fqns]
    return names


def groups_of(names, optimizer):
    """The names of the optimizer's parameters, group by group; None if any of
    them is not the model's."""
    groups = []
    for group in optimizer.param_groups:
        groups.append([])
        for p in group["params"]:
            if id(p) not in names:
                return None
            groups[-1] += names[id(p)]
    return groups


def describe(model, optimizer=None):
    """Return what dump_units writes, as a dict."""
    names = names_of(model)
    out = {"units": units_of(model),
           "parameters": [n for p in names.values() for n in p]}
    groups = None if optimizer is None else groups_of(names, optimizer)
    if groups is not None:
        out["param_groups"] = groups
    return out


def dump_units(model, path, optimizer=None):
    """Write the units of model to path; with the optimizer, also the names of
    the parameters behind its integer IDs."""
    with open(path, "w", encoding="utf-8") as f:
        json.dump(describe(model, optimizer), f, indent=1)
        f.write("\n")
