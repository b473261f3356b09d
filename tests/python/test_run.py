# test_run.py - runs: steps as a mapping, and series
# SPDX-License-Identifier: Apache-2.0
import os
import pickle
import shutil

import conftest
import optimfs
import pytest

WEIGHT = "model/norm.weight"
LR = "optim/param_groups/0/lr"


@pytest.fixture
def run(tmp_path):
    """Steps 100 and 2000, one without a step, and one that is unfinished."""
    def put(source, name):
        shutil.copytree(os.path.join(conftest.DATA, "pytorch", source, "ckpt"),
                        tmp_path / "run" / name)
        for path in [tmp_path / "run" / name,
                     *(tmp_path / "run" / name).iterdir()]:
            path.chmod(0o755)
    put("dcp_fsdp2_w2", "step-100")
    put("dcp_fsdp2_w3", "step-2000")
    put("dcp_fsdp2_w2", "final")
    (tmp_path / "run" / "step-9000").mkdir()
    return tmp_path / "run"


def test_steps_are_a_mapping(run):
    with optimfs.open_run(run) as r:
        assert list(r) == [100, 2000] and len(r) == 2
        assert 100 in r and "latest" in r and "by-name/final" in r
        assert 7 not in r and "newest" not in r and None not in r
        assert [ck.path for ck in r.values()] == [
            "%s:100" % run, "%s:2000" % run]
        assert r[100][LR] == 0.001
        assert r["first"].path == "%s:100" % run
        assert r["latest"].path == "%s:2000" % run
        assert not list(optimfs.diff(r["latest"], str(run / "step-2000")))
        assert r["by-name/final"][LR] == 0.001
        assert r.get(7) is None


def test_the_entries_say_why_one_is_no_step(run):
    found = {e.name: e for e in optimfs.open_run(run).entries()}
    assert found["step-100"].path == "steps/100"
    assert found["step-100"].format == "dcp"
    assert found["final"].step is None and found["final"].complete
    assert "tells no step" in found["final"].why
    assert found["step-9000"].path is None
    assert "empty" in found["step-9000"].why


def test_errors_say_what_there_is(run, tmp_path):
    r = optimfs.open_run(run)
    for key, text in ((7, "no step 7; the last one is 2000"),
                      (-1, "-1 names no"), (9000, "is not finished"),
                      ("newest", "newest names no")):
        with pytest.raises(KeyError, match=text) as e:
            r[key]
        assert e.value.code == "OFS851"
    with pytest.raises(TypeError):
        r[1.5]
    with pytest.raises(optimfs.Error, match="optimfs.open") as e:
        optimfs.open_run(run / "step-100")
    assert e.value.code == "OFS852"
    with pytest.raises(optimfs.NotFoundError):
        optimfs.open_run(tmp_path / "none")
    (tmp_path / "new").mkdir()
    new = optimfs.open_run(tmp_path / "new")
    assert list(new) == []
    with pytest.raises(KeyError):
        new["latest"]


def test_a_run_is_shown_closed_and_pickled(run):
    r = optimfs.open_run(run, runs_open=1)
    assert repr(r) == ("<optimfs.Run %s: 3 checkpoints, steps 100 to 2000; 1 "
                       "only in by-name/; 1 not finished>" % run)
    again = pickle.loads(pickle.dumps(r))
    assert list(again) == [100, 2000]
    ck = r["latest"]
    r.close()
    assert repr(r) == "<optimfs.Run %s: closed>" % run
    with pytest.raises(ValueError, match="is closed"):
        list(r)
    assert ck[LR] == 0.001  # a checkpoint outlives its run
    assert pickle.loads(pickle.dumps(ck)).path == "%s:2000" % run


def test_a_run_follows_its_directory(run):
    r = optimfs.open_run(run)
    (run / "step-2000").rename(run / "step-3000")
    assert list(r) == [100, 3000]


def test_series_are_the_statistics_of_each_step(run):
    np = pytest.importorskip("numpy")
    with optimfs.edit(run / "step-2000") as ck:
        ck[LR] = 1e-5
        ck[WEIGHT] = np.full(12, 2.0, "float32")
    r = optimfs.open_run(run)
    steps, rms = r.series(WEIGHT)
    assert steps.dtype == np.int64 and list(steps) == [100, 2000]
    assert list(rms) == [r[100].statistics(WEIGHT)["rms"], 2.0]
    assert list(r.series("model", "nan")[1]) == [0, 0]
    assert list(r.series(LR)[1]) == [0.001, 1e-5]
    with pytest.raises(ValueError, match="no value 'median': there are "):
        r.series(WEIGHT, "median")
    with pytest.raises(KeyError, match="did you mean"):
        r.series("model/norm.weigth")


def test_a_step_that_cannot_be_read_is_nan_and_a_warning(run):
    np = pytest.importorskip("numpy")
    (run / "step-100" / "__0_0.distcp").unlink()
    with pytest.warns(optimfs.UnreadWarning, match="step 100: OFS"):
        steps, rms = optimfs.open_run(run).series("model")
    assert list(steps) == [100, 2000]
    assert np.isnan(rms[0]) and rms[1] > 0


def test_series_for_pandas(run):
    pandas = pytest.importorskip("pandas")
    found = optimfs.open_run(run).series(WEIGHT, "max", pandas=True)
    assert isinstance(found, pandas.Series)
    assert list(found.index) == [100, 2000] and found.index.name == "step"
    assert found.name == WEIGHT + " max"


def test_averages_and_differences_are_checkpoints(run):
    np = pytest.importorskip("numpy")
    with optimfs.open_run(run) as r:
        a, b = (r[s][WEIGHT].numpy() for s in (100, 2000))
        mean, delta = r.average(100, 2000), r.delta(100, 2000)
        assert np.array_equal(mean[WEIGHT].numpy(), ((
            a.astype("f8") + b) / 2).astype(a.dtype))
        assert np.array_equal(delta[WEIGHT].numpy(),
                              (b.astype("f8") - a).astype("f4"))
        for same in (r.average("last2"), r.average("first", "latest"),
                     r.average("100-2000")):
            assert np.array_equal(same[WEIGHT].numpy(), mean[WEIGHT].numpy())
        assert np.array_equal(r.delta("latest", "first")[WEIGHT].numpy(),
                              -delta[WEIGHT].numpy())
    with pytest.raises(TypeError):
        r.average()
    with pytest.raises(TypeError):
        optimfs.open_run(run).delta(1.5, 2)
    with pytest.raises(optimfs.Error, match="no step 7"):
        optimfs.open_run(run).average(7)
    assert mean[WEIGHT].numpy().shape == a.shape  # the run is closed
