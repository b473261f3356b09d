#!/usr/bin/env python3
# dump_units.py - runs contrib/dump_units.py on a recorded FSDP model
# SPDX-License-Identifier: Apache-2.0
"""dump_units.py CONTRIB RECORDED OUT FROZEN...: let CONTRIB/dump_units.py write
OUT for a stub model with the flat parameters that the units file RECORDED has of
a real one.  FROZEN parameters are not trained.  With "flat" as the only one, the
optimizer has the flat parameters (use_orig_params=False) and one that FSDP
ignored."""
import json
import sys

contrib, recorded, out = sys.argv[1:4]
frozen = set(sys.argv[4:])
flat = frozen == {"flat"}
sys.path.insert(0, contrib)
sys.dont_write_bytecode = True
from dump_units import dump_units  # noqa: E402


class Thing:
    """A stub of an FSDP object: has the members that it is given."""

    def __init__(self, **members):
        self.__dict__.update(members)


class Module(Thing):
    """A wrapper: takes attributes that it lacks from the module inside."""

    def __getattr__(self, name):
        inside = self.__dict__.get("inside")
        if inside is None:
            raise AttributeError(name)
        return getattr(inside, name)


class Group:
    def __init__(self, rank, size):
        self.rank = lambda: rank
        self.size = lambda: size


def info(row):
    return Thing(in_shard=row[0], offset_in_shard=row[1], numel_in_shard=row[2],
                 intra_param_start_idx=row[3], intra_param_end_idx=row[4])


def handle_of(unit, params):
    flat = Thing(
        _fqns=tuple(unit["fqns"]), dtype=unit["dtype"],
        _shapes=tuple(tuple(s) for s in unit["shapes"]), _params=params,
        requires_grad=True,
        _shard_param_infos=tuple(map(info, unit["shard_param_infos"])),
        _shared_param_infos=tuple(
            Thing(param_name=a, module_name=b, prim_param_name=c,
                  prim_module_name=d) for a, b, c, d in unit["shared"]))
    for name in ("numels", "numels_with_padding", "is_padding_mask",
                 "shard_numel_padded", "unpadded_unsharded_size",
                 "sharded_size"):
        value = unit[name]
        setattr(flat, "_" + name,
                tuple(value) if isinstance(value, list) else value)
    return Thing(flat_param=flat, process_group=Group(unit["rank"],
                                                      unit["world_size"]),
                 _sharding_strategy=unit["strategy"],
                 _use_orig_params=params is not None)


modules, parameters = [("", Module(_handles=[object()]))], []
for unit in json.load(open(recorded)):
    path = unit["prefix"]
    names = [(path + "." if path else "") + n for n in unit["fqns"]]
    if flat:
        own = Module(_handle=handle_of(unit, None), _handles=3)
        parameters.append((path + "._fsdp_wrapped_module._flat_param",
                           own._handle.flat_param))
    else:
        params = [Thing(requires_grad=n not in frozen) for n in names]
        parameters += [("_fsdp_wrapped_module." + n, p)
                       for n, p in zip(names, params)]
        own = Module(_handle=handle_of(unit, params), _handles=3)
    # A checkpoint wrapper passes on the attributes of its module.
    modules.append((path, Module(inside=own)))
    modules.append((path + "._checkpoint_wrapped_module", own))
    modules.append((path + ".hooked", Module(_handle=None, _handles={})))
model = Thing(named_modules=lambda: modules,
              named_parameters=lambda: parameters)
optimizer = None
if flat:
    parameters.append(("_fsdp_wrapped_module.ignored", Thing()))
    optimizer = Thing(param_groups=[{"params": [p for _, p in parameters]}])
elif frozen:
    by_name = {n.split("_module.", 1)[1]: p for n, p in parameters}
    order = [line.strip() for line in sys.stdin]
    optimizer = Thing(param_groups=[{"params": [by_name[n] for n in order]}])
dump_units(model, out, optimizer)
