# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/python.md run in the order of the page.

The words after ```python are the modules that the recipe needs. Recipes with a
process group are run by tests/interop/torch_reader.py.
"""
import os
import re
import shutil
import warnings

import conftest
import optimfs
import pytest

with open(os.path.join(conftest.TOP, "docs", "python.md")) as page:
    TEXT = page.read()
RECIPES = [(" ".join(re.findall("^##+ (.*)", TEXT[:m.start()], re.M)[-1:]),
            m[1].split(), m[2])
           for m in re.finditer(r"^```python(.*)\n((?:.*\n)*?)```$", TEXT,
                                re.M)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with the checkpoints that the page mentions."""
    at = tmp_path_factory.mktemp("recipes")
    step = at / "step-1000"
    shutil.copytree(os.path.join(conftest.DATA, "pytorch/dcp_fsdp2_w4/ckpt"),
                    step)
    for path in [step, *step.iterdir()]:
        path.chmod(0o755)
    (at / "run").mkdir()
    for name in ("step-1000", "step-2000"):
        shutil.copytree(step, at / "run" / name)
    with optimfs.open(step) as ck:
        ck.view("torch").save(at / "converted")
    return at


@pytest.fixture(scope="module")
def names():
    """The names that earlier recipes have defined."""
    return {"__name__": "recipes"}


@pytest.mark.parametrize("i", range(len(RECIPES)), ids=[
    "%d %s" % (i, title or "first") for i, (title, _, _) in enumerate(RECIPES)])
def test_recipe(i, place, names, monkeypatch):
    _, needs, code = RECIPES[i]
    if "distributed" in needs:
        pytest.skip("needs a process group: torch_reader.t")
    for module in needs:
        there = pytest.importorskip(module)
        if module == "fsspec":  # the entry point of an installed package registers it
            there.register_implementation(
                "optimfs", "optimfs.fsspec.OptimfsFileSystem", clobber=True)
    monkeypatch.chdir(place)
    monkeypatch.setenv("OPTIMFS_PROGRAM", os.environ["OPTIMFS"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optimfs.UnsyncedWarning)
        exec(compile(code, "docs/python.md", "exec"), names)


def test_the_recipes_have_done_what_they_say(place, names):
    assert "d" not in names  # optimfs.diff() found nothing
    with optimfs.open(place / "step-1000-for-8-ranks") as ck:
        assert ck.summary()["world_size"] == 8
        assert ck["optim/param_groups/0/lr"] == 0.001
    with optimfs.open(place / "for-the-hub") as ck:
        assert {r.dtype for r in ck.tensors()} == {"bfloat16"}
    assert (place / "report.html").stat().st_size > 10000
    assert list(names["run"]) == [1000, 2000]
    if "rms" in names:
        assert list(names["steps"]) == [1000, 2000] and names["lr"][0] == 0.001
        assert names["rms"][0] == names["rms"][1] > 0
    if "new_head" in names:
        with optimfs.open(place / "step-1000") as ck:
            assert ck["optim/param_groups/0/lr"] == 1e-5
            assert "optim/state/conv.weight" not in ck
            words = ck.glob("*/tok_embeddings.weight") + \
                ck.glob("optim/state/tok_embeddings.weight/exp_avg*")
            assert [ck[p].shape for p in words] == [(64, 12)] * 3
            assert ck["model/tok_embeddings.weight"][31, 0].item() != 0
            assert not ck["model/tok_embeddings.weight"][37:].numpy().any()
            assert ck.check() == []


def test_one_recipe_is_for_torch_reader():
    assert [needs for _, needs, _ in RECIPES].count(["distributed"]) == 1
