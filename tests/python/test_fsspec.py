# SPDX-License-Identifier: Apache-2.0
"""optimfs as a file system of fsspec."""
import pytest

fsspec = pytest.importorskip("fsspec")
np = pytest.importorskip("numpy")
FSDP2 = "pytorch/dcp_fsdp2_w3/ckpt"


@pytest.fixture
def fs(data):
    from optimfs.fsspec import OptimfsFileSystem
    # The entry point of an installed package registers it.
    fsspec.register_implementation("optimfs", OptimfsFileSystem, clobber=True)
    return fsspec.filesystem("optimfs", path=data(FSDP2))


def test_directories_are_listed(fs):
    assert fs.ls("", detail=False) == ["model", "optim"]
    assert "model/norm.bias" in fs.ls("optimfs://model", detail=False)
    assert fs.isdir("optim/state") and fs.isfile("model/norm.bias")
    assert not fs.exists("model/nothing")
    with pytest.raises(FileNotFoundError):
        fs.ls("nothing")


def test_files_are_described(fs):
    info = fs.info("model/layers.0.wq.weight")
    assert info["size"] == 576 and info["type"] == "file"
    assert (info["dtype"], info["shape"]) == ("float32", "12,12")
    # The size of a text is exact, although stat(2) gives an upper bound.
    assert fs.info("optim/param_groups/0/lr")["size"] == len("0.001\n")


def test_files_are_read(fs, data):
    assert fs.cat_file("optim/param_groups/0/lr") == b"0.001\n"
    whole = fs.cat_file("model/norm.bias")
    assert fs.cat_file("model/norm.bias", 4, -8) == whole[4:-8]
    with fsspec.open("optimfs://.optimfs/npy/model/norm.bias.npy",
                     path=data(FSDP2)) as f:
        assert np.load(f).tobytes() == whole
    with pytest.raises(IsADirectoryError):
        fs.open("model")
    with pytest.raises(FileNotFoundError):
        fs.open("model/nothing")
    with pytest.raises(NotImplementedError):
        fs.open("model/norm.bias", "wb")


def test_globs_and_walks_work(fs):
    found = fs.glob("optim/state/norm.*/exp_avg")
    assert found == ["optim/state/norm.bias/exp_avg",
                     "optim/state/norm.weight/exp_avg"]
    assert len(fs.find("model")) == 30


def test_dask_reads_blocks_and_tables(fs, data):
    pytest.importorskip("dask.dataframe")
    import dask.bytes

    path, whole = data(FSDP2), fs.cat_file("model/layers.0.wq.weight")
    _, blocks = dask.bytes.read_bytes(
        "optimfs://model/layers.0.wq.weight", blocksize=100, path=path)
    assert b"".join(dask.compute(*blocks[0], scheduler="threads")) == whole
    table = dask.dataframe.read_csv(
        "optimfs://.optimfs/tensors.tsv", sep="\t",
        storage_options={"path": path}).compute()
    assert table[table.path == "model/layers.0.wq.weight"].bytes.item() == 576
