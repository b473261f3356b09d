# SPDX-License-Identifier: Apache-2.0
"""Reading: values, tensors, slices, errors, threads."""
import ctypes
import errno
import hashlib
import inspect
import json
import os
import pathlib
import pickle
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import zipfile

import optimfs
import pytest
from optimfs import _abi, _box, _tree

np = pytest.importorskip("numpy")
FSDP2 = "pytorch/dcp_fsdp2_w3/ckpt"


def truth(path):
    with open(os.path.join(os.path.dirname(path), "expected",
                           "manifest.json")) as f:
        return json.load(f)


@pytest.mark.parametrize("value", [1, -1, True, b"dcp", object()])
def test_an_option_of_another_type_is_refused(data, value):
    with pytest.raises(TypeError, match="'type' is a string"):
        optimfs.open(data(FSDP2), type=value)


@pytest.mark.parametrize("name", [
    FSDP2, "pytorch/dcp_tp_fsdp_w4/ckpt", "pytorch/dcp_dtypes/ckpt",
    "pytorch/fsdp1_local_flat_fullshard_w3/ckpt"])
def test_tensors_hold_what_the_framework_saved(data, name):
    units = os.path.join(os.path.dirname(data(name)), "units.json")
    seen = 0
    with optimfs.open(data(name),
                      units=units if os.path.exists(units) else None) as ck:
        for leaf in truth(data(name)):
            if leaf["path"][0] != "model" or not leaf.get("shape"):
                continue
            t = ck.state_dict()["model"][".".join(leaf["path"][1:])]
            assert list(t.shape) == leaf["shape"]
            assert t.dtype == leaf["dtype"].replace("torch.", "")
            assert hashlib.sha256(t.tobytes()).hexdigest() == leaf["sha256"]
            seen += 1
    assert seen > 5


def test_opening_and_listing_reads_no_data(data):
    with optimfs.open(data(FSDP2)) as ck:
        paths = list(ck)
        t = ck["model/norm.weight"]
        assert (t.shape, t.dtype, t.ndim) == ((12,), "float32", 1)
        assert t.size == 12 and t.nbytes == 48 and len(t) == 12
        assert "optim/state/norm.weight/exp_avg" in paths
        assert "optim/state/norm.weight/exp_avg" in ck
        assert "optim/state/norm.weight/nothing" not in ck
        assert len(ck) == len(paths) == len(set(paths))
        assert ck.stats()["local.read_bytes"] == 0


def test_a_checkpoint_with_a_lost_file_says_so(copy):
    ck = copy(FSDP2)
    os.unlink(os.path.join(ck, "__1_0.distcp"))
    with optimfs.open(ck) as c:
        assert c.info()["counts"]["damaged"] > 0
        assert "1 file missing" in repr(c) and "damaged" in repr(c)


def test_a_lost_rank_that_no_index_names_is_damage_too(copy):
    ck = copy("deepspeed/z2_ws2_bf16/ckpt")
    os.unlink(os.path.join(
        ck, "global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"))
    with optimfs.open(ck) as c:
        assert c.info()["counts"]["damaged"] == 24
        assert "24 damaged" in repr(c)


def test_shards_and_attributes_describe_a_tensor(data):
    with optimfs.open(data(FSDP2)) as ck:
        t = ck["optim/state/layers.0.wq.weight/exp_avg"]
        assert t.name == "layers.0.wq.weight"
        assert [s.rank for s in t.shards] == [0, 1, 2]
        assert [s.offsets for s in t.shards] == [(0, 0), (4, 0), (8, 0)]
        assert t.shards[1].file == "__1_0.distcp"
        assert t.attributes["shape"] == "12,12"
        row = [r for r in ck.tensors() if r.path == t.path][0]
        assert (row.dtype, row.shape, row.shards) == ("float32", (12, 12), 3)


def test_values_are_pythons_own(data):
    with optimfs.open(data("pytorch/dcp_dtypes/ckpt")) as ck:
        assert ck["optim/state/w/none"] is None
        assert ck["optim/state/w/name"] == "hello"
        assert ck["optim/state/w/frac"] == 0.125
        assert ck["optim/state/w/ints"] == [1, 2, 3]
        step = ck["optim/state/w/step"]
        assert step.shape == () and step.item() == 12.0
        assert float(step) == 12.0 and int(step) == 12
        assert step.numpy().dtype == np.float32
        assert step.tobytes() == np.float32(12).tobytes()


@pytest.fixture
def pickled(tmp_path):
    """A file with a value that pickle.dump wrote."""
    def make(value):
        path = tmp_path / "state.pkl"
        path.write_bytes(pickle.dumps(value, 2))
        return str(path)
    return make


def test_values_have_the_types_that_they_were_saved_with(pickled):
    saved = {"config": {"params": 7, "k" * 300: "params"}, "id": "12",
             "none": "null", "z": 1 - 2j, "n": 12}
    with optimfs.open(pickled(saved)) as ck:
        assert ck.state_dict()["extra"].load() == saved


def test_a_string_of_dcp_stays_one(copy):
    path = copy("pytorch/dcp_dtypes/ckpt")
    with optimfs.edit(path) as ck:
        ck["optim/state/w/name"] = "12"
    with optimfs.open(path) as ck:
        assert ck["optim/state/w/name"] == "12"


def test_a_key_may_look_like_a_name_that_was_cut(pickled):
    key = "w~0123456789abcdef"
    with optimfs.open(pickled({key: 1})) as ck:
        assert ck.listdir("extra") == [optimfs._names.encode(key)]


def test_names_of_parameters_may_have_newlines(pickled):
    names = ["a\nb", "[c"]
    state = {n: {"exp_avg": 0.5, "step": 1} for n in names}
    group = {"lr": 0.1, "params": names}
    path = pickled({"optim": {"state": state, "param_groups": [group]}})
    params = "optim/param_groups/0/params"
    with optimfs.edit(path) as ck:
        assert ck[params] == names
        ck[params] = names[::-1]
    with optimfs.open(path) as ck:
        assert ck[params] == names[::-1]


def test_a_complex_number_is_pythons_own(copy):
    path = copy("pytorch/dcp_dtypes/ckpt")
    with optimfs.edit(path) as ck:
        ck["optim/state/w/z"] = np.array(1 - 2j, "complex64")
    with optimfs.open(path) as ck:
        z = ck["optim/state/w/z"]
        assert z.item() == 1 - 2j and z.numpy().dtype == np.complex64


def test_an_object_is_the_name_of_its_class(data):
    with optimfs.open(data("deepspeed/z2_ws2_bf16/ckpt")) as ck:
        scaler = ck["extra/optimizer_state_dict/loss_scaler"]
        assert isinstance(scaler, optimfs.Opaque)
        assert scaler == "deepspeed.runtime.fp16.loss_scaler.LossScaler"


def test_param_groups_are_dicts(data):
    with optimfs.open(data(FSDP2)) as ck:
        groups = ck.param_groups
        assert [g["weight_decay"] for g in groups] == [0.1, 0.0]
        assert groups[0]["betas"] == [0.9, 0.999]
        assert "norm.bias" in groups[1]["params"]


def test_the_state_dict_is_nested_and_lazy(data):
    with optimfs.open(data(FSDP2)) as ck:
        sd = ck.state_dict()
        assert set(sd) >= {"model", "optim"}
        t = sd["optim"]["state"]["norm.bias"]["exp_avg"]
        assert ck.stats()["local.read_bytes"] == 0
        got = sd["model"].load(optimfs.Tensor.numpy)
        assert set(got) == set(sd["model"])
        assert got["norm.bias"].tobytes() == ck["model/norm.bias"].tobytes()
        assert t.path == "optim/state/norm.bias/exp_avg"
        with pytest.raises(KeyError):
            sd["nothing"]


def test_any_key_is_found_in_the_state_dict(data):
    with optimfs.open(data("pytorch/dcp_names/ckpt")) as ck:
        model = ck.state_dict()["model"]
        for key in model:
            assert isinstance(model[key], optimfs.Tensor)
            fresh = ck.state_dict()["model"]
            assert fresh[key].path == model[key].path
        assert {"", ".", "..", "a/b", "a%2Fb", "sp ace\nnl"} <= set(model)
        assert max(map(len, model)) > 255


def test_types_that_numpy_lacks_are_never_raw_bytes(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with optimfs.open(data("pytorch/dcp_dtypes/ckpt")) as ck:
        t = ck["model/t.bfloat16"]
        with pytest.raises(TypeError, match="float32.*ml_dtypes"):
            t.numpy()
        with pytest.raises(TypeError):
            np.asarray(t)
        raw = np.frombuffer(t.tobytes(), "<u2").reshape(t.shape)
        want = (raw.astype("u4") << 16).view("f4")
        assert np.array_equal(t.numpy("float32"), want, equal_nan=True)
        assert np.array_equal(t[1:3, ::2].numpy("float32"), want[1:3, ::2],
                              equal_nan=True)
        assert t.numpy("float64").dtype == np.float64
        one = t[1, 2].numpy("float32")  # an array without dimensions
        assert one.shape == () and one.dtype == np.float32
        assert one == want[1, 2]


def test_ml_dtypes_is_used_where_it_is(data, monkeypatch):
    class Fake:
        bfloat16 = np.float16  # has the same size, which is enough here
    monkeypatch.setitem(sys.modules, "ml_dtypes", Fake)
    with optimfs.open(data("pytorch/dcp_dtypes/ckpt")) as ck:
        t = ck["model/t.bfloat16"]
        assert t.numpy().dtype == np.float16
        assert t.numpy().tobytes() == t.tobytes()
        assert t.numpy("float32").dtype == np.float32


FLOAT8 = {  # from the specifications of OCP and IEEE
    "float8_e4m3fn": {0x38: 1, 0x7E: 448, 0x01: 2.0**-9, 0xB8: -1},
    "float8_e5m2": {0x3C: 1, 0x7B: 57344, 0x01: 2.0**-16, 0x7C: float("inf")},
    "float8_e4m3fnuz": {0x40: 1, 0x7F: 240, 0x01: 2.0**-10},
    "float8_e5m2fnuz": {0x40: 1, 0x7F: 57344, 0x01: 2.0**-17},
    "float8_e8m0fnu": {0x7F: 1, 0x80: 2, 0x00: 2.0**-127},
}
FLOAT8_NAN = {"float8_e4m3fn": 0x7F, "float8_e5m2": 0x7E,
              "float8_e4m3fnuz": 0x80, "float8_e5m2fnuz": 0x80,
              "float8_e8m0fnu": 0xFF}


@pytest.mark.parametrize("dtype", sorted(FLOAT8))
def test_float8_widens_exactly(dtype):
    from optimfs import _dtypes
    raw = np.arange(256, dtype="u1")
    wide = _dtypes.widen(raw, dtype)
    for bits, value in FLOAT8[dtype].items():
        assert wide[bits] == np.float32(value)
    assert np.isnan(wide[FLOAT8_NAN[dtype]])
    assert _dtypes.widen(raw[0].reshape(()), dtype).shape == ()


def test_slices_are_those_of_numpy(safetensors):
    rng = random.Random(7)
    whole = np.arange(5 * 7 * 11 * 3, dtype="<i4").reshape(5, 7, 11, 3)
    path = safetensors({"w": ("I32", whole.shape, whole.tobytes())})

    def one(n):
        if rng.random() < 0.25:
            return rng.randrange(-n, n)
        return slice(rng.choice([None, rng.randrange(-n - 2, n + 2)]),
                     rng.choice([None, rng.randrange(-n - 2, n + 2)]),
                     rng.choice([None, 1, 2, 3]))

    with optimfs.open(path) as ck:
        t = ck["model/w"]
        for _ in range(400):
            key = tuple(one(n) for n in whole.shape[:rng.randrange(1, 5)])
            if rng.random() < 0.3:
                key = key[:3] + (Ellipsis,)
            want, got = whole[key], t[key]
            assert got.shape == want.shape, key
            assert np.array_equal(got.numpy(), want), key
            if want.ndim:  # a slice of a slice
                again = one(want.shape[0]) if want.shape[0] else slice(None)
                assert np.array_equal(got[again].numpy(), want[again]), key


@pytest.mark.parametrize("key,error", [
    (12, IndexError), (slice(None, None, -1), IndexError),
    ((0, 0, 0), IndexError), ([1, 2], TypeError), (None, TypeError),
    (1.5, TypeError), (True, TypeError), (np.True_, TypeError),
    (np.array([1, 2]), TypeError), ((Ellipsis, Ellipsis), IndexError)])
def test_an_index_that_cannot_be_says_why(data, key, error):
    with optimfs.open(data(FSDP2)) as ck:
        with pytest.raises(error):
            ck["model/layers.0.wq.weight"][key]


def test_a_tensor_is_iterated_and_tested_as_an_array_is(data):
    with optimfs.open(data(FSDP2)) as ck:
        t = ck["model/norm.bias"]
        assert [x.item() for x in t] == t.numpy().tolist()
        step = ck["optim/state/norm.bias/step"]
        assert step
        with pytest.raises(TypeError):
            iter(step)
        with pytest.raises(TypeError):
            t.numpy()[0] in t
        with pytest.raises(ValueError):
            bool(t)


def test_a_slice_reads_what_it_covers(safetensors):
    whole = np.arange(1024 * 4096, dtype="<f4").reshape(1024, 4096)
    path = safetensors({"w": ("F32", whole.shape, whole.tobytes())})
    with optimfs.open(path) as ck:
        t = ck["model/w"]
        for key in ((slice(250, 500), slice(None, 64)), slice(10, 20),
                    (slice(None, None, 512),), (5, slice(None)),
                    (slice(None), 7)):
            before = ck.stats()["local.read_bytes"]
            assert np.array_equal(t[key].numpy(), whole[key])
            read = ck.stats()["local.read_bytes"] - before
            assert t[key].nbytes <= read <= t[key].nbytes + 4096


def test_small_gaps_are_read_along():
    # 4 elements of each row of 16: one read for four pieces
    box = (range(4), range(4))
    assert list(_box.reads((4, 16), box, 4, 1 << 20)) == [
        (0, 3 * 64 + 16, [(i * 64, i * 16, 16) for i in range(4)])]
    # A read has at most the size of the buffer.
    assert len(list(_box.reads((4, 16), box, 4, 100))) == 2
    # Large pieces are read one by one.
    assert len(list(_box.reads((4, 1024), box, 4, 1 << 20))) == 4


def test_an_empty_tensor_reads(data):
    with optimfs.open(data("pytorch/dcp_dtypes/ckpt")) as ck:
        assert ck["model/empty"].numpy().shape == (0, 5)
        assert ck["model/empty"].tobytes() == b""
        assert ck["model/five_d"][:0].numpy().shape == (0, 1, 3, 2, 2)


def test_read_into_fills_a_buffer(data):
    with optimfs.open(data(FSDP2)) as ck:
        t = ck["model/norm.bias"]
        b = bytearray(t.nbytes)
        t.read_into(b)
        assert bytes(b) == t.tobytes()
        with pytest.raises(ValueError):
            t.read_into(bytearray(3))
    with optimfs.open(data("pytorch/dcp_dtypes/ckpt")) as ck:
        t = ck["model/scalar0d"]  # its file is a text
        b = bytearray(4)
        t.read_into(b)
        assert bytes(b) == t.tobytes()


def test_errors_suggest_the_name_that_was_meant(data):
    state = "optim/state/norm.bias"
    with optimfs.open(data(FSDP2)) as ck:
        for path, meant in (("optim/stat/norm.bias", "state"),
                            ("optim/state/norm.bais", "norm.bias"),
                            (state + "/exp_ag", "exp_avg"),
                            ("modle", "model")):
            for look in (ck.__getitem__, ck.stat, ck.open, ck.listdir):
                with pytest.raises(optimfs.NotFoundError) as e:
                    look(path)
                assert str(e.value).startswith("OFS018 %s" % path)
                assert "\n" not in str(e.value)
                assert "; did you mean '%s'?" % meant in str(e.value)
        with pytest.raises(KeyError) as e:
            ck[state]["exp_ag"]
        assert "; did you mean 'exp_avg'?" in str(e.value)
        assert ck[state].get("exp_ag") is None
        for path in ("zzzzzzzz", state + "/exp_avg/x"):
            with pytest.raises(optimfs.NotFoundError) as e:
                ck[path]
            assert "did you mean" not in str(e.value)


def test_errors_have_code_errno_and_advice(data):
    with pytest.raises(optimfs.Error) as e:
        optimfs.open(data("megatron/llama_dp2"))
    assert e.value.code == "OFS681"
    assert e.value.errno == errno.ENOENT
    assert e.value.advice == optimfs.advice("OFS681")
    assert "What to do" not in str(e.value)  # the message says it
    with optimfs.open(data(FSDP2)) as ck:
        with pytest.raises(optimfs.NotFoundError) as e:
            ck["model/nothing"]
        assert isinstance(e.value, KeyError)
        assert isinstance(e.value, FileNotFoundError)
        assert e.value.errno == errno.ENOENT
        assert e.value.code == "OFS002"
        assert e.value.advice == optimfs.advice("OFS002") is not None
        assert str(e.value).endswith("What to do: " + e.value.advice)
        for path in ("model/nothing", "model/norm.bias/x", "x" * 300):
            assert ck.get(path) is None
            assert path not in ck
        with pytest.raises(ValueError, match="null"):
            ck["model\0x"]
    with pytest.raises(ValueError, match="null"):
        optimfs.open(data(FSDP2) + "\0x")


def test_a_missing_shard_is_an_error_and_the_rest_reads(copy):
    path = copy(FSDP2)
    os.remove(os.path.join(path, "__1_0.distcp"))
    with optimfs.open(path) as ck:
        t = ck["model/layers.0.wq.weight"]
        with pytest.raises(optimfs.DamagedError) as e:
            t.numpy()
        assert e.value.code == "OFS140" and e.value.errno == errno.EIO
        assert t[:4].numpy().shape == (4, 12)
        with pytest.raises(optimfs.DamagedError):
            t[3:5].numpy()
        assert ck.notes("missing")


def test_a_tensor_whose_shape_is_no_shape_is_damaged(tmp_path):
    def text(s):
        return b"X" + struct.pack("<I", len(s)) + s

    def integer(n):
        return b"\x8a\x09" + n.to_bytes(9, "little")

    path = tmp_path / "huge.pt"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("huge/data.pkl", b"".join((
            b"\x80\x02}", text(b"w"), b"ctorch._utils\n_rebuild_tensor_v2\n((",
            text(b"storage"), b"ctorch\nFloatStorage\n", text(b"0"),
            text(b"cpu"), integer(2), b"tQ", integer(0), b"(",
            integer(2**40), integer(2**30), b"t(", integer(1), integer(1),
            b"t\x89ccollections\nOrderedDict\n)RtRs.")))
        z.writestr("huge/data/0", bytes(8))
        z.writestr("huge/version", "3\n")
    with optimfs.open(path) as ck:
        t = ck["model/w"]
        assert t.shape == (2**40, 2**30)
        for read in (t.numpy, t.tobytes):
            with pytest.raises(optimfs.DamagedError):
                read()


def test_a_closed_checkpoint_says_so(data):
    ck = optimfs.open(data(FSDP2))
    t = ck["model/norm.bias"]
    f = ck.open("model/norm.bias")
    ck.close()
    ck.close()
    assert f.read() != b""  # an open file can still be read
    f.seek(0)
    f.close()
    with pytest.raises(ValueError, match="closed"):
        f.read()
    for use in (lambda: ck["model"], t.numpy, lambda: list(ck)):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert "closed" in repr(ck)


def test_files_are_files(data):
    with optimfs.open(data(FSDP2)) as ck:
        with ck.open("model/norm.bias") as f:
            whole = f.read()
            assert f.seek(-8, 2) == len(whole) - 8
            assert f.read() == whole[-8:] and f.read() == b""
        with pytest.raises(ValueError):
            f.read()
        assert whole == ck["model/norm.bias"].tobytes()
        assert ck.listdir(".optimfs/npy/model")[0].endswith(".npy")
        with ck.open(".optimfs/npy/model/norm.bias.npy") as f:
            assert np.array_equal(np.load(f), ck["model/norm.bias"].numpy())
        assert ck.stat("model").is_dir
        assert ck.stat("model/norm.bias").size == 48


def test_threads_read_at_once(safetensors):
    whole = np.arange(64 * 65536, dtype="<u4").reshape(64, 65536)
    path = safetensors({"w": ("U32", whole.shape, whole.tobytes())})
    with optimfs.open(path) as ck:
        t, wrong = ck["model/w"], []

        def work(n):
            rng = random.Random(n)
            for _ in range(50):
                i = rng.randrange(64)
                if not np.array_equal(t[i].numpy(), whole[i]):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for th in threads:
            th.start()
        for th in threads:
            th.join()
        assert wrong == []


def test_the_gil_is_free_during_a_read():
    import ctypes
    from optimfs import _abi
    assert type(_abi.lib) is ctypes.CDLL  # not PyDLL, which keeps the GIL


def test_checkpoints_and_tensors_are_pickled_by_path(data):
    with optimfs.open(data(FSDP2)) as ck:
        t = pickle.loads(pickle.dumps(ck["model/layers.0.wq.weight"][2:5, 1]))
        assert np.array_equal(
            t.numpy(), ck["model/layers.0.wq.weight"][2:5, 1].numpy())
        t.checkpoint.close()


def test_info_and_reprs_say_what_it_is(data):
    with optimfs.open(data(FSDP2)) as ck:
        assert ck.info()["format"] == "dcp"
        assert "dcp, 3 ranks, 108 tensors" in repr(ck)
        assert "float32 [12, 12]" in repr(ck["model/layers.0.wq.weight"])
        page = ck._repr_html_()
        assert "model/adapter.bias" in page and "and 88 more" in page
        page = ck["model/layers.0.wq.weight"]._repr_html_()
        assert page.count("<title>rank") == 3 and "of 144 elements" in page
        assert re.findall(r"&#9632;</span> (\d)", page) == ["0", "1", "2"]
        least = "%.3g" % ck["model/layers.0.wq.weight"].numpy().min()
        assert ">%s</text>" % least in page
        assert "keys>" in repr(ck["model"])


def test_the_page_of_a_checkpoint_begins_with_the_answer(data, copy):
    with optimfs.open(data(FSDP2)) as ck:
        page = ck._repr_html_()
        assert "no damage in the index" in page
        assert "AdamW at step 3, 26 parameters" in page
        assert page.index("AdamW") < page.index("model/adapter.bias")
        assert ck.stats()["local.read_bytes"] < 1 << 20
    lost = copy(FSDP2)
    os.unlink(os.path.join(lost, "__1_0.distcp"))
    with optimfs.open(lost) as ck:
        page = ck._repr_html_()
        assert "the checkpoint is damaged: 1 missing file" in page
        assert "no damage" not in page


def test_report_is_the_page_of_the_program(data, monkeypatch, tmp_path):
    monkeypatch.setenv("OPTIMFS_PROGRAM", os.environ["OPTIMFS"])
    path = data(FSDP2)
    with optimfs.open(path) as ck:
        report = ck.report()
        assert report.verdict.startswith("Sound. dcp, 3 ranks, 30 parameters")
        assert repr(report) == "<optimfs.Report %s>" % report.verdict
        page = subprocess.run([os.environ["OPTIMFS"], "report", path],
                              stdout=subprocess.PIPE, check=True).stdout
        assert str(report).encode() == page
        report.save(tmp_path / "page.html")
        assert (tmp_path / "page.html").read_bytes() == page
        assert len(report.data["tensors"]) == len(
            [t for t in ck.tensors() if t.shape])
        shown = report._repr_html_()
        assert "<script" not in shown and "&lt;script&gt;" in shown
        two = ck.report(data("pytorch/dcp_fsdp2_w4/ckpt"))
        assert [v[:5] for v in two.verdict.split("\n")] == ["Sound", "Sound"]
        with pytest.raises(optimfs.Error, match="no-such"):
            ck.report("no-such")
        monkeypatch.setenv("OPTIMFS_PROGRAM", "")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(FileNotFoundError, match="OPTIMFS_PROGRAM"):
            ck.report()
    with optimfs.open(path, subtree="model") as ck:
        with pytest.raises(TypeError, match="without options.*subtree"):
            ck.report()


def test_the_page_of_a_tensor_reads_a_sample(safetensors):
    whole = np.zeros((1000, 2000), "<f4")
    whole[-1] = 5
    path = safetensors({"w<b>": ("F32", whole.shape, whole.tobytes())})
    with optimfs.open(path) as ck:
        t = next(iter(ck["model"].values()))
        page = t._repr_html_()
        assert "w&lt;b&gt;" in page and "0 to 5" in page
        assert ck.stats()["local.read_bytes"] < 1 << 20


def test_everything_public_has_a_docstring():
    for name in optimfs.__all__:
        thing = getattr(optimfs, name)
        if not inspect.isclass(thing) and not inspect.isfunction(thing):
            continue
        assert inspect.getdoc(thing), name
        for m, f in vars(thing).items() if inspect.isclass(thing) else ():
            if not m.startswith("_") and (inspect.isfunction(f) or
                                          isinstance(f, property)):
                assert inspect.getdoc(f), "%s.%s" % (name, m)


def test_what_is_long_is_read_by_several_threads(data, monkeypatch):
    path = "optim/state/layers.0.wq.weight/exp_avg"
    with optimfs.open(data(FSDP2)) as ck:
        t = ck[path]
        want = t.tobytes()
        monkeypatch.setattr(_tree, "PIECE", 100)
        for readers in 1, 2, 7:
            monkeypatch.setattr(_tree, "READERS", readers)
            assert t.numpy().tobytes() == want
            assert t[1:3].tobytes() == t.numpy()[1:3].tobytes()
        with ck.open(path) as f:  # the file ends before the buffer is full
            f.seek(-250, os.SEEK_END)
            buffer = bytearray(1000)
            assert f.readinto(buffer) == 250
            assert buffer[:250] == want[-250:]


def test_statistics_are_those_of_numpy(data):
    path = "optim/state/layers.0.wq.weight/exp_avg_sq"
    with optimfs.open(data(FSDP2)) as ck:
        found, a = ck.statistics(path), ck[path].numpy().astype(np.float64)
        assert found["elements"] == a.size and found["nan"] == 0
        assert found["min"] == a.min() and found["max"] == a.max()
        assert found["rms"] == pytest.approx(np.sqrt((a * a).mean()), 1e-12)
        with pytest.raises(optimfs.NotFoundError):
            ck.statistics("model/no.such")


def test_statistics_of_a_directory_are_sums(data):
    with optimfs.open(data(FSDP2)) as ck:
        for path in "", "optim/state", "/model/":
            below = [r for r in ck.tensors() if r.shape and
                     r.path.startswith(path.strip("/"))]
            found = ck.statistics(path)
            every = [ck.statistics(r.path) for r in below]
            assert found["tensors"] == len(below) > 1
            for name in "elements", "zeros", "denormals":
                assert found[name] == sum(s[name] for s in every)
            assert found["max"] == max(s["max"] for s in every)
            assert found["l2"] == pytest.approx(
                sum(s["l2"] ** 2 for s in every) ** 0.5, 1e-12)
            assert "xxh3" not in found and "first_nan" not in found


def test_an_interrupt_ends_statistics(data, monkeypatch):
    real, ended = _tree.lib.optimfs_statistics, []

    def interrupted(fs, path, how, s, err):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        stop = ctypes.cast(how._obj.stop, _abi.STOP_FN)
        while not stop(None):
            time.sleep(0.001)
        ended.append((real(fs, path, how, s, err), err._obj.code))
        return ended[0][0]

    monkeypatch.setattr(_tree.lib, "optimfs_statistics", interrupted)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with optimfs.open(data(FSDP2)) as ck, \
                pytest.raises(KeyboardInterrupt):
            ck.statistics("")
    finally:
        signal.signal(signal.SIGINT, old)
    assert ended == [(-1, errno.ECANCELED)]


def test_statistics_are_those_of_the_file(data):
    with optimfs.open(data("pytorch/dcp_dtypes/ckpt")) as ck:
        for row in (r for r in ck.tensors() if r.shape):
            text = ck.open(".optimfs/stat/" + row.path).read().decode()
            want = dict(line.split() for line in text.splitlines())
            found = ck.statistics(row.path)
            assert list(found) == list(want)
            assert all(v == want[n] if n == "xxh3" else v == float(want[n])
                       for n, v in found.items())


def test_a_summary_says_what_the_checkpoint_is(data):
    with optimfs.open(data(FSDP2)) as ck:
        whole = ck.summary()
        assert whole["kind"] == "checkpoint" and whole["step"] == 3
        assert "AdamW" in json.dumps(whole)
        assert ck.summary("optim/state") != whole
        with pytest.raises(optimfs.NotFoundError):
            ck.summary("no/such")


def test_a_directory_is_not_opened(data):
    with optimfs.open(data(FSDP2)) as ck:
        for path, said in (("model", "model: is a directory"), ("", "the root: is")):
            with pytest.raises(optimfs.Error, match=said) as e:
                ck.open(path)
            assert (e.value.errno, e.value.code) == (errno.EISDIR, "OFS009")


@pytest.mark.parametrize("option", [
    {"cache": -1}, {"cache": 1 << 64}, {"strict": "no"}, {"follow": 2}])
def test_an_option_that_c_would_cut_is_refused(data, option):
    with pytest.raises((ValueError, OverflowError), match=next(iter(option))):
        optimfs.open(data(FSDP2), **option)


def test_limits_that_advices_name_are_options(data):
    with pytest.raises(optimfs.Error) as e:
        optimfs.open(data(FSDP2), max_metadata=10)
    assert e.value.code == "OFS440"
    assert e.value.advice.startswith("raise max_metadata= if")


@pytest.mark.parametrize("key", [3, None, ("model", "x"), 1.5])
def test_what_is_no_path_is_a_type_error(data, key):
    with optimfs.open(data(FSDP2)) as ck:
        for look in (ck.__getitem__, ck.stat, ck.listdir, ck.open,
                     ck.summary, ck.statistics):
            with pytest.raises(TypeError, match="PathLike"):
                look(key)
        assert key not in ck
        model = ck.state_dict()["model"]
        assert key not in model
        with pytest.raises(KeyError):
            model[key]


def test_paths_may_be_bytes_or_pathlib_s(data):
    path, name = data(FSDP2), "model/norm.bias"
    with optimfs.open(os.fsencode(path)) as ck:
        assert ck.path == path
        for same in (os.fsencode(name), pathlib.PurePath(name)):
            assert same in ck
            assert ck[same].path == name


def test_numbers_are_keys_as_in_pytorch(data):
    with optimfs.open(data(FSDP2)) as ck:
        groups = ck.state_dict()["optim"]["param_groups"]
        assert groups[0]["lr"] == ck["optim/param_groups/0/lr"]
        assert 0 in groups and 7 not in groups


def test_a_listing_of_a_file_names_it(data):
    with optimfs.open(data(FSDP2)) as ck:
        with pytest.raises(optimfs.Error, match="model/norm.bias: not a dir"):
            ck.listdir("model/norm.bias")


def test_advices_and_messages_are_pythons(data):
    assert "`" not in optimfs.advice("OFS002")
    assert optimfs.advice("OFS168").startswith("give the model's optimizer "
                                               "to dump_units.py")
    assert optimfs.advice("OFS166").startswith("give units=FILE;")
    assert "optimfs.edit" in optimfs.advice("OFS007")
    assert "open it again" in optimfs.advice("OFS753")
    with optimfs.open(data(FSDP2)) as ck:
        with pytest.raises(optimfs.Error, match=r"OFS170.*give units=FILE"):
            ck.view("fsdp@2").files()


def test_displays_say_only_what_is_known(safetensors):
    one = struct.pack("<f", 2.5)
    with optimfs.open(safetensors({"w": ("F32", [1], one)})) as ck:
        assert repr(ck).endswith(": safetensors, 1 tensor, 4 B>")
        html = ck["model/w"]._repr_html_()
        assert ", 1 shard<" in html and "rank" not in html
        assert "2.5 to 2.5, mean 2.5 of 1 elements" in html


def test_a_seek_from_nowhere_is_a_value_error(data):
    with optimfs.open(data(FSDP2)) as ck, ck.open("model/norm.bias") as f:
        with pytest.raises(ValueError, match="whence"):
            f.seek(0, 5)


def test_there_is_no_array_without_a_copy(data):
    with optimfs.open(data(FSDP2)) as ck:
        with pytest.raises(ValueError, match="without a copy"):
            ck["model/norm.bias"].__array__(copy=False)
        assert ck["model/norm.bias"].__array__(copy=True).shape == (12,)


def test_glob_tree_and_printing(data):
    with optimfs.open(data(FSDP2)) as ck:
        assert ck.glob("optim/state/layers.*.wq.weight/exp_avg") == [
            "optim/state/layers.%d.wq.weight/exp_avg" % i for i in range(3)]
        assert ck.glob("model/*/x") == [] and ck.glob("model") == []
        text = ck.tree(depth=2)
        assert repr(text) == str(text)
        assert text.splitlines()[:2] == ["/  132 files", "  model/  30 files"]
        assert "    state/  102 files" not in ck.tree("model")
        t = ck["model/norm.bias"][0:2]
        assert str(t) == str(t.numpy()) and repr(t).startswith("<optimfs.")
        with pytest.raises(optimfs.NotFoundError,
                           match="did you mean 'model/layers.0.wq.weight'"):
            ck["layers.0.wq.weight"]
        with pytest.raises(optimfs.NotFoundError, match="3 names end so"):
            ck["wq.weight"]


def test_natural_order(tmp_path):
    names = ["layers.%d.w" % i for i in (10, 2, 1)]
    head = json.dumps({n: {"dtype": "F32", "shape": [1], "data_offsets":
                           [4 * i, 4 * i + 4]} for i, n in enumerate(names)})
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(head)) + head.encode() + bytes(12))
    with optimfs.open(path) as ck:
        assert ck.glob("model/*") == [
            "model/layers.%d.w" % i for i in (1, 2, 10)]


def test_check_finds_what_the_command_finds(data, tmp_path):
    with optimfs.open(data(FSDP2)) as ck:
        assert ck.check() == []
        raw = {p: ck[p].tobytes() for p in ("model/norm.bias",)}
    head = json.dumps({"w": {"dtype": "F32", "shape": [12],
                             "data_offsets": [0, 48]}}).encode()
    path = tmp_path / "nan.safetensors"
    path.write_bytes(struct.pack("<Q", len(head)) + head +
                     raw["model/norm.bias"][:44] +
                     struct.pack("<f", float("nan")))
    with optimfs.open(path) as ck:
        finding, = ck.check()
    assert (finding.code, finding.path) == ("OFS202", "model/w")
    assert "1 of 12 elements" in finding.text and finding.means


def test_dlpack_reads_the_elements(data):
    np = pytest.importorskip("numpy")
    with optimfs.open(data(FSDP2)) as ck:
        t = ck["model/layers.0.wq.weight"]
        assert t.__dlpack_device__() == (1, 0)
        if hasattr(np, "from_dlpack"):
            assert np.array_equal(np.from_dlpack(t), t.numpy())


def test_a_name_that_begins_others_is_answered_with_them(data):
    with optimfs.open(data(FSDP2)) as ck:
        with pytest.raises(KeyError, match=r"ck.glob\('model/layers.0.\*'\)"):
            ck["layers.0"]
        assert ck.glob("model/layers.0.*")
        with pytest.raises(KeyError, match="OFS002"):
            ck["layers.77"]


def test_load_state_dict_says_what_to_give_it(data):
    # torch.nn.Module.load_state_dict() asks a mapping for this first
    with optimfs.open(data(FSDP2)) as ck:
        for mapping in ck, ck["model"]:
            with pytest.raises(TypeError, match=r"ck\[.model.\].load\(\)"):
                getattr(mapping, "_metadata", None)
