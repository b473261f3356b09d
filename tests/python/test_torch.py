# SPDX-License-Identifier: Apache-2.0
"""Tensors for any version of PyTorch; tests/interop/torch_reader.py tests the
StorageReader."""
import os
import re

import optimfs
import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
FSDP2 = "pytorch/dcp_fsdp2_w3/ckpt"


def bytes_of(t):
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_tensors_have_torchs_types(data):
    seen = set()
    with optimfs.open(data("pytorch/dcp_dtypes/ckpt")) as ck:
        for row in ck.tensors():
            t = ck[row.path]
            if not hasattr(torch, row.dtype):
                with pytest.raises(TypeError, match=row.dtype):
                    t.torch()
            elif t.shape and t.size:
                got = t.torch()
                assert str(got.dtype) == "torch." + row.dtype
                assert tuple(got.shape) == t.shape
                assert bytes_of(got) == t.tobytes()
                seen.add(row.dtype)
        assert {"bfloat16", "bool", "complex64", "int64"} <= seen
        step = ck["optim/state/w/step"].torch()
        assert step.shape == () and step.item() == 12
        wide = ck["model/t.bfloat16"].torch(dtype=torch.float32)
        assert np.array_equal(wide.numpy(),
                              ck["model/t.bfloat16"].numpy("float32"),
                              equal_nan=True)


def test_a_tensor_without_dimensions_may_be_complex(copy):
    path = copy("pytorch/dcp_dtypes/ckpt")
    with optimfs.edit(path) as ck:
        ck["optim/state/w/z"] = torch.tensor(1 - 2j)
    with optimfs.open(path) as ck:
        assert torch.equal(ck["optim/state/w/z"].torch(),
                           torch.tensor(1 - 2j))


def test_slices_are_read_into_tensors(data):
    with optimfs.open(data(FSDP2)) as ck:
        t = ck["model/layers.0.wq.weight"]
        assert torch.equal(t[2:9, ::3].torch(), t.torch()[2:9, ::3])


def test_a_tensor_is_written(data, copy):
    path = copy(FSDP2)
    new = torch.arange(12, dtype=torch.float64, requires_grad=True)
    with optimfs.edit(path) as ck:
        ck["model/norm.bias"] = new
        ck["optim/state/norm.bias/made"] = torch.ones(12, dtype=torch.bfloat16)
    with optimfs.open(path) as ck:
        assert ck["model/norm.bias"].numpy().tolist() == list(range(12))
        made = ck["optim/state/norm.bias/made"]
        assert made.dtype == "bfloat16" and (made.torch() == 1).all()


def test_load_gives_a_plain_state_dict(data):
    import optimfs.torch
    sd = optimfs.torch.load(data(FSDP2))
    assert sd["optim"]["param_groups"][1]["weight_decay"] == 0.0
    assert sd["optim"]["state"]["norm.bias"]["step"].item() == 3.0
    with optimfs.open(data(FSDP2)) as ck:
        assert set(sd["model"]) == set(ck.state_dict()["model"])
        for name, t in sd["model"].items():
            assert bytes_of(t) == ck["model/" + name].tobytes()


def test_load_maps_what_a_file_has_in_one_piece(tmp_path, data):
    import optimfs.torch
    with optimfs.open(data(FSDP2)) as ck:
        ck.view("safetensors,only=model").save(tmp_path / "st")
    path = str(tmp_path / "st")
    with optimfs.open(path) as ck:
        sd = optimfs.torch.load(ck, mmap=True)
        # Tensors are mapped; only metadata was read.
        assert ck.stats()["local.read_bytes"] < ck.info()["bytes"]["logical"]
        for name, t in sd["model"].items():
            assert bytes_of(t) == ck["model/" + name].tobytes()
        sd["model"]["norm.bias"].zero_()  # a private copy
        assert any(ck["model/norm.bias"].tobytes())
    with open("/proc/self/maps") as f:
        assert re.search(re.escape(path), f.read())


def make_model(ck):
    model = {}
    for name, t in ck.state_dict()["model"].items():
        kind = getattr(torch, t.dtype)
        model[name] = torch.full(t.shape, 1, dtype=kind)
    return model


def test_a_model_is_read_into(data):
    with optimfs.open(data(FSDP2)) as ck:
        model = make_model(ck)
        wide = next(n for n in model if model[n].dim() > 1)
        model[wide] = torch.zeros(model[wide].shape, dtype=torch.float64)
        turned = next(n for n in model if model[n].dim() > 1 and n != wide)
        model[turned] = model[turned].transpose(0, 1).contiguous() \
            .transpose(0, 1)
        assert not model[turned].is_contiguous()
        assert ck.load(model) == ([], [])
        for name, t in ck.state_dict()["model"].items():
            assert torch.equal(model[name].to(t.torch().dtype), t.torch())
        assert model[wide].dtype == torch.float64


def test_a_module_is_read_into(tmp_path, data):
    import optimfs.torch
    saved, module = torch.nn.Linear(3, 5), torch.nn.Linear(3, 5)
    torch.save(saved.state_dict(), tmp_path / "model.pt")
    assert not torch.equal(module.weight, saved.weight)
    optimfs.torch.load_into(tmp_path / "model.pt", module)
    assert torch.equal(module.weight, saved.weight)
    assert torch.equal(module.bias, saved.bias)


def test_nothing_is_read_into_another_model(data):
    with optimfs.open(data(FSDP2)) as ck:
        model = make_model(ck)
        first, second, third = list(model)[:3]
        model[first] = torch.ones(1234)
        model["other"] = model.pop(second)
        model[third] = torch.empty(model[third].shape, device="meta")
        before = {n: t.clone() for n, t in model.items()}
        with pytest.raises(RuntimeError) as failed:
            ck.load(model)
        text = str(failed.value)
        assert "%s: has the shape [1234], and " % first in text
        assert "other: is not in the checkpoint" in text
        assert "%s: is in the checkpoint only" % second in text
        assert "%s: has no memory" % third in text
        for name, t in model.items():
            assert name == third or torch.equal(t, before[name])
        del model[first], model[third]
        missing, unexpected = ck.load(model, strict=False)
        assert missing == ["other"]
        assert set(unexpected) == {first, second, third}


def test_tied_weights_are_not_missing(data):
    with optimfs.open(data(FSDP2)) as ck:
        model = make_model(ck)
        model["lm_head"] = next(iter(model.values()))
        assert ck.load(model) == ([], [])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_is_read_into(tmp_path):
    saved = {"large": torch.randn(50, 100003), "small": torch.arange(7),
             "half": torch.ones(3, 5).half(), "step": torch.tensor(4)}
    torch.save(saved, tmp_path / "model.pt")
    with optimfs.open(tmp_path / "model.pt") as ck:
        model = {n: torch.zeros_like(t, device="cuda")
                 for n, t in saved.items()}
        model["half"] = model["half"].float()
        for _ in range(100):  # what still runs when the load begins
            model["large"].add_(1)
        assert ck.load(model) == ([], [])
        for n, t in saved.items():
            assert torch.equal(model[n].cpu().to(t.dtype), t)
            assert torch.equal(ck["model/" + n].torch("cuda").cpu(), t)


class Elsewhere(torch.Tensor):
    """A tensor whose elements another one has, as torchao's."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, f, types, args=(), kwargs=None):
        assert f is torch.ops.aten.copy_.default
        args[0].inner.copy_(args[1])
        return args[0]


def test_what_has_no_plain_memory_gets_a_copy(data):
    with optimfs.open(data(FSDP2)) as ck:
        model = make_model(ck)
        names = [n for n in model if model[n].dim()][:2]
        other, turned = [model[n] for n in names]
        model[names[0]] = Elsewhere(other)
        turned = turned.to(torch.complex64).conj()
        model[names[1]] = turned
        assert ck.load(model) == ([], [])
        assert torch.equal(other, ck["model/" + names[0]].torch())
        assert torch.equal(turned.real, ck["model/" + names[1]].torch())


@pytest.mark.skipif(not hasattr(torch, "set_default_device"),
                    reason="PyTorch 2.0 or later")
def test_the_default_device_is_that_of_new_tensors(data):
    with optimfs.open(data(FSDP2)) as ck:
        model = make_model(ck)
        name = next(n for n in model if model[n].dim())
        wide = model[name] = model[name].double()  # converted from a copy
        with torch.device("meta"):
            assert ck.load(model) == ([], [])
            assert ck["model/" + name].torch().device.type == "meta"
            assert torch.from_dlpack(ck["model/" + name]).device.type == "cpu"
        assert torch.equal(wide, ck["model/" + name].torch().double())


def test_the_last_of_two_names_for_one_tensor_counts(tmp_path):
    torch.save({"x": torch.ones(5), "y": torch.full((5,), 2.)},
               tmp_path / "two.pt")
    with optimfs.open(tmp_path / "two.pt") as ck:
        tied = torch.zeros(5)
        assert ck.load({"x": tied, "y": tied, "z": tied}) == ([], [])
        assert tied.tolist() == [2] * 5
        with pytest.raises(RuntimeError, match="x: is no tensor"):
            ck.load({"x": None})
        with pytest.raises(TypeError, match="no device"):
            ck["model"].load(optimfs.Tensor.numpy, device="cpu")


def test_parts_are_read_with_gaps(data):
    with optimfs.open(data(FSDP2)) as ck:
        name = next(n for n, t in ck.state_dict()["model"].items()
                    if t.ndim > 1 and t.shape[1] > 4)
        t = ck["model/" + name]
        assert torch.equal(t[:, 1:3].torch(), t.torch()[:, 1:3])
        assert torch.equal(t[1:, ::2].torch(dtype=torch.float64),
                           t.torch()[1:, ::2].double())


def test_keys_lead_to_paths(data):
    from optimfs.torch import _Names
    with optimfs.open(data(FSDP2)) as ck:
        names = _Names(ck, None)
        w = "layers.0.wq.weight"
        for key, path in {
                "model." + w: "model/" + w,
                w: "model/" + w,
                "app.model." + w: "model/" + w,
                "model.module." + w: "model/" + w,
                "_orig_mod.layers.0._fsdp_wrapped_module.wq.weight":
                    "model/" + w,
                "optim.state.%s.exp_avg" % w: "optim/state/%s/exp_avg" % w,
                "app.optimizer.state.%s.step" % w: "optim/state/%s/step" % w,
                "optim.param_groups.1.lr": "optim/param_groups/1/lr",
                "optim.param_groups": "optim/param_groups",
                "optim.param_groups.norm.bias.lr": "optim/param_groups/1/lr",
        }.items():
            found = names.path(key)
            assert found is not None and \
                ck.stat(found).ino == ck.stat(path).ino, key
        for key in ("ema." + w, "model.nothing", "optim.state.nothing.step",
                    "optim.param_groups.7.lr", "nothing"):
            assert names.path(key) is None, key
    with optimfs.open(data("deepspeed/z3_ws2_bf16/ckpt")) as ck:
        assert _Names(ck, None).path("ds_config.zero_optimization.stage") == \
            "extra/ds_config/zero_optimization/stage"


@pytest.mark.parametrize("text", [
    '{"mine": "norm.bias"}', "# new old\nmine norm.bias\n"])
def test_names_are_mapped_by_a_file(data, tmp_path, text):
    from optimfs.torch import _Names
    path = tmp_path / "names"
    path.write_text(text)
    with optimfs.open(data(FSDP2)) as ck:
        for given in (path, {"mine": "norm.bias"},
                      lambda n: "norm.bias" if n == "mine" else n):
            names = _Names(ck, given)
            assert names.path("model.mine") == "model/norm.bias"
            assert names.path("optim.state.mine.exp_avg") == \
                "optim/state/norm.bias/exp_avg"
            assert names.back == {"norm.bias": "mine"}
            assert names.path("model.norm.weight") == "model/norm.weight"


def test_a_mapping_that_is_none_says_which_line(tmp_path, data):
    from optimfs.torch import _Names
    path = tmp_path / "names"
    path.write_text("only-one\n")
    with optimfs.open(data(FSDP2)) as ck:
        with pytest.raises(ValueError, match="only-one"):
            _Names(ck, path)
    assert os.path.exists(path)


def test_a_number_is_no_mapping():
    import optimfs.torch
    with pytest.raises(TypeError, match="PathLike"):
        optimfs.torch._mapping(0)  # not standard input


def test_options_that_are_tensors_are_numbers(tmp_path):
    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([w])
    optimizer.param_groups[0]["lr"] = torch.tensor(0.5)
    path = str(tmp_path / "optim.pt")
    torch.save(optimizer.state_dict(), path)
    with optimfs.open(path) as ck:
        lr = ck.param_groups[0]["lr"]
        assert type(lr) is float and lr == 0.5


class OfDLPack:
    def __dlpack__(self, **how):
        return torch.ones(2).__dlpack__(**how)

    def __dlpack_device__(self):
        return (1, 0)


def test_torch_takes_a_tensor_as_it_is(data):
    with optimfs.open(data(FSDP2)) as ck:
        t = ck["model/layers.0.wq.weight"]
        try:
            torch.as_tensor(OfDLPack())
            assert torch.equal(torch.as_tensor(t), t.torch())
        except RuntimeError:  # not before PyTorch 2.1 or later
            assert torch.equal(torch.from_dlpack(t), t.torch())
        assert torch.equal(torch.from_dlpack(t[2:5]), t[2:5].torch())
        module = torch.nn.Linear(2, 2)
        with pytest.raises(TypeError, match=r"ck\[.model.\].load\(\)"):
            module.load_state_dict(ck)
