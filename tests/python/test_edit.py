# SPDX-License-Identifier: Apache-2.0
"""optimfs.edit, optimfs.diff, and copies of views."""
import io
import os
import sys
import zipfile

import optimfs
import pytest
from optimfs._tree import File

np = pytest.importorskip("numpy")
FSDP2 = "pytorch/dcp_fsdp2_w3/ckpt"
LR = "optim/param_groups/0/lr"


def files(path):
    found = {}
    for name in sorted(os.listdir(path)):
        with open(os.path.join(path, name), "rb") as f:
            found[name] = f.read()
    return found


def modes(path):
    paths = [path] + [os.path.join(at, name) for at, dirs, names in
                      os.walk(path) for name in dirs + names]
    return {os.stat(p).st_mode & 0o777 for p in paths}


@pytest.mark.parametrize("mode, made", [(0o700, {0o700, 0o600}),
                                        (0o755, {0o777, 0o666})])
def test_a_copy_is_not_wider_than_its_source(copy, tmp_path, mode, made):
    path = copy(FSDP2)
    for at, _, names in os.walk(path):
        for name in names:
            os.chmod(os.path.join(at, name), 0o644)
    os.chmod(path, mode)
    umask = os.umask(0)
    try:
        with optimfs.open(path) as ck:
            ck.view("dcp@2").save(tmp_path / "made")
    finally:
        os.umask(umask)
    assert modes(tmp_path / "made") == made


def test_an_edit_is_committed(copy):
    path = copy(FSDP2)
    w = np.arange(144, dtype="f4").reshape(12, 12)
    with optimfs.edit(path) as ck:
        ck[LR] = 1e-5
        ck["optim/param_groups/0/betas"] = [0.8, 0.99]
        ck["optim/param_groups/0/foreach"] = True
        ck["model/layers.0.wq.weight"] = w
        ck["model/layers.1.wq.weight"][2:4, ::3] = 7
        ck["optim/state/norm.bias/step"] = 9
        assert ck[LR] == 1e-5  # visible before the commit
    with optimfs.open(path) as ck:
        assert ck[LR] == 1e-5
        assert ck.param_groups[0]["betas"] == [0.8, 0.99]
        assert ck.param_groups[0]["foreach"] is True
        assert np.array_equal(ck["model/layers.0.wq.weight"].numpy(), w)
        part = ck["model/layers.1.wq.weight"].numpy()
        assert (part[2:4, ::3] == 7).all() and (part == 7).sum() == 8
        assert ck["optim/state/norm.bias/step"].item() == 9.0
    assert not [n for n in os.listdir(os.path.dirname(path))
                if n.startswith(".")]


def test_an_exception_rolls_all_back(copy):
    path = copy(FSDP2)
    before = files(path)
    with pytest.raises(RuntimeError, match="mine"):
        with optimfs.edit(path) as ck:
            ck[LR] = 1e-5
            ck["model/norm.bias"] = np.zeros(12)
            raise RuntimeError("mine")
    assert files(path) == before
    with optimfs.edit(path) as ck:  # the next writer finds no lock
        assert ck[LR] == 1e-3


def interrupt_at(n):
    """Ctrl-C when the package is about to run its n-th line, but for what
    Python calls when it frees something, and ignores exceptions of."""
    package, left = os.path.dirname(optimfs.__file__), [n]

    def trace(frame, event, arg):
        code = frame.f_code
        if not code.co_filename.startswith(package) or \
                code.co_name == "__del__":
            return None
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return trace
    sys.settrace(trace)


def set_both(path, n):
    with optimfs.edit(path) as ck:
        ck[LR] = float(n)
        ck["model/norm.bias"][3] = n


def test_an_interrupt_at_any_line_leaves_all_or_nothing_and_no_lock(copy):
    path, n, interrupted = copy(FSDP2), 0, True
    with optimfs.open(path) as ck:
        old = ck[LR], ck["model/norm.bias"][3].item()
    while interrupted:
        n += 19
        interrupt_at(n)
        try:
            set_both(path, n)
            interrupted = False
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        with optimfs.edit(path) as ck:
            now = ck[LR], ck["model/norm.bias"][3].item()
        assert now == (n, n) or interrupted and now == old, n
        old = now
    assert n > 100


def test_a_commit_that_fails_rolls_back(copy):
    path = copy(FSDP2)
    before = files(path)
    with pytest.raises(optimfs.Error, match="OFS301"):
        with optimfs.edit(path) as ck:
            ck[LR] = 1e-5
            st = ck.stat("model/norm.bias")
            File(ck._tree, st.node, write=True, truncate=True).close()
    assert files(path) == before
    with optimfs.edit(path):
        pass


def test_items_of_megatron_are_changed_with_their_checksums(copy):
    path = copy("megatron/gpt_tp2_dp2/fully_reshardable/iter_0000003")
    name = "optim/state/decoder.final_layernorm.weight/exp_avg"
    inside = "extra/rng_state/0.0/0/cuda_rng_state"
    with optimfs.edit(path) as ck:
        ck[name] = 7
        changed = ck[inside].numpy() + 1
        ck[inside] = changed
    with optimfs.open(path) as ck:
        assert np.array_equal(ck[inside].numpy(), changed)
        assert (ck[name].numpy() == 7).all()
        for s in ck[name].shards:
            with open(os.path.join(path, s.file), "rb") as f:
                f.seek(s.offset)
                item = io.BytesIO(f.read(s.length))
            assert zipfile.ZipFile(item).testzip() is None


def test_state_is_added_and_removed(copy):
    path = copy(FSDP2)
    with optimfs.edit(path) as ck:
        ck["optim/state/norm.bias/extra_avg"] = np.ones(12, "f4")
        ck["extra/made/note"] = "by hand"
        ck["extra/made/numbers"] = {"a": [1, 2.5, None]}
        del ck["optim/state/norm.weight"]
    with optimfs.open(path) as ck:
        t = ck["optim/state/norm.bias/extra_avg"]
        assert t.dtype == "float32" and (t.numpy() == 1).all()
        assert "optim/state/norm.weight" not in ck
        assert ck["extra/made/note"] == "by hand"
        assert ck["extra/made/numbers"] == {"a": [1, 2.5, None]}


def test_bfloat16_is_rounded_to_nearest(copy):
    path = copy("pytorch/dcp_dtypes/ckpt")
    values = np.array([1.0, 1.00390625, 1.01171875, np.nan, -2.5, 3e38],
                      dtype="f4")
    with optimfs.edit(path) as ck:
        t = ck["model/t.bfloat16"]
        t[0, :6] = values
        t[1] = 0.5
    with optimfs.open(path) as ck:
        got = ck["model/t.bfloat16"].numpy("float32")
        assert got[0, :3].tolist() == [1.0, 1.0, 1.015625]  # ties to even
        assert np.isnan(got[0, 3]) and got[0, 4] == -2.5
        assert (got[1] == 0.5).all()


def test_tensors_of_another_checkpoint_are_taken(copy, data):
    path = copy("pytorch/dcp_dtypes/ckpt")
    source = data("pytorch/dcp_dtypes/ckpt")
    with optimfs.open(source) as other, optimfs.edit(path) as ck:
        for name in ("bfloat16", "float8_e4m3fn", "complex64"):
            ck["model/t." + name] = other["model/t." + name]
            ck["model/new." + name] = other["model/t." + name]
        ck["model/t.float32"][1] = other["model/t.bfloat16"][2]
        wide = other["model/t.bfloat16"][2].numpy("float32")
        with pytest.raises(ValueError):
            ck["model/t.bfloat16"] = other["model/t.bfloat16"][:2, :3]
    assert [d.path for d in optimfs.diff(source, path)
            if d.kind != "only in b"] == ["model/t.float32"]
    with optimfs.open(path) as ck:
        assert np.array_equal(ck["model/t.float32"][1].numpy(), wide,
                              equal_nan=True)
        for name in ("bfloat16", "float8_e4m3fn", "complex64"):
            new = ck["model/new." + name]
            assert new.tobytes() == ck["model/t." + name].tobytes()


@pytest.mark.parametrize("value,error", [
    (np.zeros(5, "f4"), ValueError), (np.zeros(12, "c8"), TypeError),
    (object(), TypeError)])
def test_what_does_not_fit_is_refused(copy, value, error):
    path = copy(FSDP2)
    with optimfs.edit(path) as ck:
        before = ck["model/norm.bias"].tobytes()
        with pytest.raises(error):
            ck["model/norm.bias"] = value
        with pytest.raises(optimfs.Error):
            ck[LR] = "fast"
        with pytest.raises(TypeError):
            ck["optim/param_groups"] = 1
        assert ck["model/norm.bias"].tobytes() == before


def test_a_second_writer_is_told_who_has_it(copy):
    path = copy(FSDP2)
    with optimfs.edit(path):
        with pytest.raises(optimfs.BusyError, match="OFS259"):
            optimfs.edit(path)


def test_what_is_opened_to_read_is_not_written(copy):
    with optimfs.open(copy(FSDP2)) as ck:
        with pytest.raises(optimfs.RefusedError):
            ck["model/norm.bias"][:] = 1
        with pytest.raises(TypeError):
            ck[LR] = 1


def test_a_view_is_saved_and_equal(data, tmp_path):
    told = []
    with optimfs.open(data(FSDP2)) as ck:
        view = ck.view("dcp@8")
        assert ".metadata" in view.files()
        with view.open("__7_0.distcp") as f:
            part = f.read()
        view.save(tmp_path / "new", progress=lambda *a: told.append(a))
        assert told and all(done <= total for done, total in told)
        with open(tmp_path / "new" / "__7_0.distcp", "rb") as f:
            assert f.read()[:1000] == part[:1000]
        with pytest.raises(FileExistsError):
            view.save(tmp_path / "new")
        with pytest.raises(optimfs.Error):
            ck.view("dpc@4").files()
    assert optimfs.diff(data(FSDP2), tmp_path / "new") == []


def test_the_root_stays(copy):
    with optimfs.edit(copy(FSDP2)) as ck:
        with pytest.raises(ValueError):
            del ck["/"]
        assert LR in ck


def test_a_fork_that_ends_leaves_the_changes(copy):
    path = copy(FSDP2)
    with optimfs.edit(path) as ck:
        ck[LR] = 0.5
        child = os.fork()
        if child == 0:
            try:
                ck.__exit__(SystemExit, None, None)
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    with optimfs.open(path) as ck:
        assert ck[LR] == 0.5


def test_a_fork_changes_nothing(copy):
    path = copy(FSDP2)
    with optimfs.edit(path) as ck:
        ck[LR] = 0.5
        child = os.fork()
        if child == 0:
            refused = 0
            try:
                for change in (
                        lambda: ck.__setitem__(LR, 0.25),
                        lambda: ck["model/norm.bias"].__setitem__(0, 1),
                        lambda: ck.__setitem__("model/x", np.zeros(2)),
                        lambda: ck.__delitem__("model/norm.bias"),
                        ck.abort, ck.commit):
                    with pytest.raises(optimfs.BusyError, match="is a fork"):
                        change()
                    refused += 1
                refused += ck[LR] == 0.5
            finally:  # never on into the other tests
                os._exit(refused)
        assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
    with optimfs.open(path) as ck:
        assert ck[LR] == 0.5


def test_values_that_do_not_fit_are_named(copy):
    with optimfs.edit(copy(FSDP2)) as ck:
        with pytest.raises(ValueError, match=r"shape \[12\] does not fit"):
            ck["model/adapter.weight"][:, :3] = ck["model/norm.bias"]
        with pytest.raises(TypeError, match="the root is a directory"):
            ck[""] = 1


def test_torchs_tensors_are_cast_as_numpys_arrays_are(copy):
    torch = pytest.importorskip("torch")
    with optimfs.edit(copy(FSDP2)) as ck:
        with pytest.raises(TypeError, match="complex64 cannot be cast"):
            ck["model/norm.bias"] = torch.zeros(12, dtype=torch.complex64)
        with pytest.raises(ValueError, match=r"shape \[3\] does not fit"):
            ck["model/norm.bias"] = torch.zeros(3)
        ck["model/norm.bias"] = torch.full((1,), 2, dtype=torch.int64)
        assert ck["model/norm.bias"].numpy().tolist() == [2.0] * 12


def test_what_progress_raises_ends_the_saving(data, tmp_path):
    def fail(done, total):
        raise RuntimeError("enough")
    with optimfs.open(data(FSDP2)) as ck:
        with pytest.raises(RuntimeError, match="enough"):
            ck.view("dcp@8").save(tmp_path / "new", progress=fail)


def test_an_array_of_another_shape_is_refused_in_words(copy):
    with pytest.raises(ValueError, match=r"an array of shape \[3, 3\] does not "
                       r"fit \[37, 12\]"):
        with optimfs.edit(copy(FSDP2)) as ck:
            ck["model/output.weight"] = np.zeros((3, 3))


def test_diff_names_each_difference(copy, data):
    path = copy(FSDP2)
    with optimfs.edit(path) as ck:
        ck[LR] = 1e-5
        ck["model/norm.bias"][3:5] = 7
        ck["extra/note"] = "new"
        del ck["optim/state/norm.weight"]
    with optimfs.open(path) as b:
        found = {d.path: d for d in optimfs.diff(data(FSDP2), b)}
    assert found[LR].kind == "value" and found[LR].b == 1e-5
    assert found["model/norm.bias"].elements == 2
    assert found["extra/note"].kind == "only in b"
    assert found["optim/state/norm.weight/exp_avg"].kind == "only in a"
    assert "2 of 12 elements differ, by up to 7" in \
        str(found["model/norm.bias"])
    assert len(found) == 6


def test_diff_measures_what_differs(copy, data):
    np = pytest.importorskip("numpy")
    path = copy(FSDP2)
    weight = "model/layers.0.w1.weight"
    with optimfs.open(path) as ck:
        a = ck[weight].numpy()
    b = a.copy()
    b[3, 4] += 0.5
    b[7, 0] *= 1.001
    with optimfs.edit(path) as ck:
        ck[weight] = b
        ck[LR] = ck[LR] * 1.0001
    weight_differs, lr = sorted(optimfs.diff(data(FSDP2), path),
                                key=lambda d: d.path != weight)
    x, y = a.astype(float), b.astype(float)
    d = weight_differs
    assert (d.elements, d.of, d.first, d.at) == (2, a.size, 40, 40)
    assert d.max_abs == np.abs(x - y).max()
    assert d.rms == pytest.approx(
        np.sqrt(((x - y) ** 2).sum() / (x ** 2).sum()), rel=1e-12)
    assert d.cosine == pytest.approx(
        (x * y).sum() / np.sqrt((x ** 2).sum() * (y ** 2).sum()), rel=1e-12)
    assert d.ulps > 1 and 0 < d.max_rel <= 2
    assert lr.kind == "value"
    near = optimfs.diff(data(FSDP2), path, rtol=0.01)
    assert [(n.path, n.elements) for n in near] == [(weight, 1)]
    assert optimfs.diff(data(FSDP2), path, atol=1) == []


def test_no_tolerance_makes_infinity_a_number(copy, data):
    path = copy(FSDP2)
    with optimfs.edit(path) as ck:
        ck[LR] = float("inf")
        ck["model/norm.bias"][3] = float("-inf")
    found = optimfs.diff(data(FSDP2), path, rtol=0.5, atol=1)
    assert [d.path for d in found] == ["model/norm.bias", LR]


@pytest.mark.parametrize("rtol", [-1, float("nan")])
def test_a_tolerance_that_is_none_is_refused(data, rtol):
    with pytest.raises(ValueError, match="tolerance"):
        optimfs.diff(data(FSDP2), data(FSDP2), rtol=rtol)
