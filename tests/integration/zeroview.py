# zeroview.py - reads directories as DeepSpeed's loaders do, for zeroview.t
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed is not needed: stubs replace its few classes.

same THEIRS OURS   are the files equal, except for padding?
gather DIR TREE    are the weights gathered from flat groups those of TREE, a copy
                   by optimfs cp, in optim/state/NAME/fp32?
load DIR           does every file load, and has the keys that loaders use?
integers DIR       store each step as an integer, as DeepSpeed's own Adam does
scalar FILE [half] torch.save a model with a trained scalar, a temperature;
                   half: in bfloat16
says DIR LR STEP   has every file this lr and step, and the keys that loaders use?
"""
import glob
import importlib.abc
import importlib.machinery
import math
import os
import sys
import types

import torch


class Stub:
    def __init__(self, *args):
        self.args = args

    def __eq__(self, other):
        return type(self) is type(other) and self.__dict__ == other.__dict__


class ZeroStageEnum(Stub):
    __module__ = "deepspeed.runtime.zero.config"


for number, word in enumerate(
        ("disabled", "optimizer_states", "gradients", "weights")):
    setattr(ZeroStageEnum, word, ZeroStageEnum(number))


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    classes = {"ZeroStageEnum": ZeroStageEnum}

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] != "deepspeed":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []

        def attribute(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return self.classes.setdefault(
                name, type(name, (Stub,), {"__module__": spec.name}))

        module.__getattr__ = attribute
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())


def natural(path):
    return [int(p) if p.isdigit() else p
            for p in os.path.basename(path).replace("_", " ").split()]


def files(tag, what):
    return sorted(glob.glob("%s/*%s_states.pt" % (tag, what)), key=natural)


def tag_of(top):
    for name in "latest", "latest_universal":
        if os.path.exists(os.path.join(top, name)):
            with open(os.path.join(top, name)) as f:
                return os.path.join(top, f.read())
    raise SystemExit("no latest in " + top)


def shapes(tag):
    return torch.load(files(tag, "model")[0])["param_shapes"]


# The indices of a rank's part of a group that are not padding.
def real(group, stage, world, rank):
    if stage < 3:
        n = sum(s.numel() for s in group.values())
        part = math.ceil(n / (2 * world)) * 2
        return list(range(max(0, min(n - rank * part, part))))
    at, out = 0, []
    for s in group.values():
        share = math.ceil(s.numel() / world)
        held = max(0, min(s.numel() - rank * share, share))
        out += range(at, at + held)
        at += share
    return out


def compare(a, b, where, flat):
    if torch.is_tensor(a):
        assert a.dtype == b.dtype and a.shape == b.shape, (where, a, b)
        keep = flat(where)
        if keep is not None and a.dim() > 0:
            a, b = a[keep], b[keep]
        assert torch.equal(a, b), (where, a, b)
    elif isinstance(a, dict):
        assert list(map(str, sorted(map(str, a)))) == sorted(map(str, b)), (
            where, set(a) ^ set(b))
        for key in a:
            compare(a[key], b[key], where + (key,), flat)
    elif isinstance(a, (list, tuple)) and not isinstance(a, torch.Size):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            compare(x, y, where + (i,), flat)
    else:
        assert a == b and type(a) is type(b), (where, a, b)


def same(theirs, ours):
    theirs, ours = tag_of(theirs), tag_of(ours)
    names = [[os.path.relpath(os.path.join(d, n), top)
              for d, _, f in os.walk(top) for n in f]
             for top in (theirs, ours)]
    assert sorted(names[0]) == sorted(names[1]), (
        set(names[0]) ^ set(names[1]))
    groups = shapes(theirs)
    for name in names[0]:
        a = torch.load(os.path.join(theirs, name))
        b = torch.load(os.path.join(ours, name))
        if name == "zero/optimizer_state.pt":
            # From stage 3 it has the flat groups of rank 0, which are unused.
            a.pop("fp32_flat_groups", None)
            for state in a.get("optimizer_state_dict", {}).get(
                    "state", {}).values():
                for key in [k for k in state if k != "step"]:
                    del state[key]
            a.pop("group_paddings", None)
            for key in b: # BF16_Optimizer does not have these
                if key in ("zero_stage", "loss_scaler", "overflow",
                           "dynamic_loss_scale", "ds_version"):
                    a.setdefault(key, b[key])
            b.pop("partition_count", None)
            a.pop("partition_count", None)
        if torch.is_tensor(a) and a.dim() == 1:
            a = a[:b.numel()] # 0.18.5 leaves elements beyond the end
        rank, world, stage = 0, 1, 0
        if name.endswith("optim_states.pt"):
            rank = int(name.split("pp_rank_")[1].split("_")[0])
            world = len(files(theirs, "optim"))
            sd = a["optimizer_state_dict"]
            if a["ds_config"]["zero_optimization"].get(
                    "round_robin_gradients"):
                # DeepSpeed's are in another order than its tensors.
                for d in a, b:
                    del d["optimizer_state_dict"]["param_slice_mappings"]
            stage = 3 if "fp32_flat_groups" in sd else 2

        def flat(where):
            if stage == 0 or len(where) < 2:
                return None
            if where[1] in ("fp32_flat_groups",
                            "single_partition_of_fp32_groups"):
                return real(groups[where[2]], stage, world, rank)
            if len(where) > 4 and where[2] == "state":
                return real(groups[where[3]], stage, world, rank)
            if where[1] == "base_optimizer_state":
                return None
            return None

        if isinstance(a, dict) and "module" in a:
            # An empty one means the same as none.
            for d in a, b:
                d.setdefault("universal_checkpoint_info", {})
        if isinstance(a, dict) and a.get("frozen_param_fragments") and len(files(theirs, "model")) > 1:
            # Bytes beyond the end of a fragment are arbitrary.
            fr, sh = a["frozen_param_fragments"], a["frozen_param_shapes"]
            r = int(name.split("pp_rank_")[1].split("_")[0])
            for key in fr or ():
                keep = max(0, sh[key].numel() - r * fr[key].numel())
                for d in a, b:
                    d["frozen_param_fragments"][key] = (
                        d["frozen_param_fragments"][key][:keep])
        compare(a, b, (), flat)


# Gathers weights as zero_to_fp32.py does.
def gather(top, tree):
    tag = tag_of(top)
    optim = [torch.load(f)["optimizer_state_dict"]
             for f in files(tag, "optim")]
    stage = 3 if "fp32_flat_groups" in optim[0] else 2
    count = optim[0]["partition_count"]
    count = max(count) if isinstance(count, list) else count
    assert count == len(optim), (count, len(optim))
    got = {}
    for g, group in enumerate(shapes(tag)):
        at = 0
        if stage == 2:
            whole = torch.cat(
                [o["single_partition_of_fp32_groups"][g] for o in optim])
        for name, shape in group.items():
            n = shape.numel()
            if stage == 2:
                got[name] = whole[at:at + n].view(shape)
                at += n
                continue
            share = math.ceil(n / count)
            got[name] = torch.cat(
                [o["fp32_flat_groups"][g][at:at + share]
                 for o in optim])[:n].view(shape)
            at += share
        if stage == 2:
            assert at == len(whole), (at, len(whole))
    for name, t in got.items():
        path = os.path.join(tree, "optim/state", name, "fp32")
        with open(path, "rb") as f:
            text = f.read()
        if t.dim() == 0:
            assert torch.tensor(float(text)) == t, name
        else:
            assert text == t.detach().numpy().tobytes(), name
    # Each model file has a fragment of each frozen parameter.
    models = [torch.load(f) for f in files(tag, "model")]
    for name, shape in (models[0]["frozen_param_shapes"] or {}).items():
        parts = [m["frozen_param_fragments"][name] for m in models]
        whole = torch.cat([p.flatten() for p in parts])[:shape.numel()]
        with open(os.path.join(tree, "model", name), "rb") as f:
            want = f.read()
        assert whole.view(torch.int8 if whole.element_size() == 1 else
                          torch.int16 if whole.element_size() == 2 else
                          torch.int32).numpy().tobytes() == want, name
    assert got


def load(top):
    tag = tag_of(top)
    for path in files(tag, "model"):
        d = torch.load(path)
        for key in ("module", "lr_scheduler", "sparse_tensor_module_names",
                    "global_steps", "skipped_steps", "dp_world_size",
                    "mp_world_size", "ds_version", "param_shapes"):
            assert key in d, (path, key)
        for name, owner in d["shared_params"].items():
            assert name in d["module"] and owner in d["module"]
    for path in files(tag, "optim"):
        d = torch.load(path)["optimizer_state_dict"]
        for key in ("loss_scaler", "dynamic_loss_scale", "overflow",
                    "zero_stage", "partition_count"):
            assert key in d, (path, key)
    for path in glob.glob(tag + "/zero/*/*.pt"):
        torch.load(path)
    if os.path.isdir(tag + "/zero"):
        assert "param_groups" in torch.load(tag + "/zero/optimizer_state.pt")


# Yields every dict with a step, and all param groups, of the optimizer files.
def values(top):
    tag = tag_of(top)
    paths = files(tag, "optim") + glob.glob(tag + "/zero/*/step.pt")
    paths += glob.glob(tag + "/zero/optimizer_state.pt")
    for path in paths:
        whole = torch.load(path)
        if not isinstance(whole, dict):
            yield path, {"step": whole}, []
            continue
        d = whole.get("optimizer_state_dict", whole)
        d = d.get("base_optimizer_state", d)
        if "state" not in d:
            d = d.get("optimizer_state_dict", d)
        states = d["state"].values() if "state" in d else []
        for state in states:
            yield path, state, []
        yield path, {}, d["param_groups"]
        yield path, whole, None


def integers(top):
    changed = {}
    for path, state, groups in values(top):
        if path.endswith("step.pt"):
            torch.save(int(state["step"]), path)
        elif groups is None:
            continue
        elif "step" in state:
            changed.setdefault(path, []).append(state)
    for path in changed:
        whole = torch.load(path)
        d = whole["optimizer_state_dict"]
        d = d.get("base_optimizer_state", d)
        d = d if "state" in d else d["optimizer_state_dict"]
        for state in d["state"].values():
            state["step"] = int(state["step"])
        torch.save(whole, path)


def says(top, lr, step):
    n = 0
    load(top)
    for path, state, groups in values(top):
        if groups is not None and "step" in state:
            assert state["step"] == float(step), (path, state["step"])
            n += 1
        for group in groups or ():
            assert group["lr"] == float(lr), (path, group["lr"])
            n += 1
    assert n > 1


def scalar(path, half=None):
    model = {"w": torch.randn(5, 3), "temperature": torch.randn(()),
             "b": torch.randn(4)}
    state = {k: {"step": torch.tensor(3.0), "exp_avg": torch.randn(v.shape),
                 "exp_avg_sq": torch.rand(v.shape)} for k, v in model.items()}
    # A group with the scalar only, and one without it.
    groups = [{"lr": 0.5, "params": ["w", "temperature"]},
              {"lr": 0.25, "params": ["b"]}]
    model["other"] = torch.randn(())
    state["other"] = {k: v + 1 for k, v in state["temperature"].items()}
    state["other"]["step"] = torch.tensor(3.0)
    # A parameter without elements.
    model["none"] = torch.zeros(0, 2)
    groups.append({"lr": 0.125, "params": ["other", "none"]})
    if half is not None:
        for k, v in model.items():
            model[k] = v.bfloat16()
            if k in state:
                state[k]["fp32"] = v
    torch.save({"model": model, "optimizer": {"state": state,
                                              "param_groups": groups}}, path)


{"same": same, "scalar": scalar, "integers": integers, "says": says, "gather": gather, "load": load}[sys.argv[1]](*sys.argv[2:])
