"""Directories with files of two jobs: python3 make.py DIR, with PyTorch 2.14 on a CPU.

All elements of a job are the number of its ranks, or of its save, so that od(1) shows which one was read."""
import json
import os
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def sharded(world, value):
    mesh = init_device_mesh("cpu", (world,))
    return distribute_tensor(torch.full((8, 3), float(value)), mesh, [Shard(0)])


def world_sizes(rank, world):
    """verl's names: 2 ranks, then 4; fsdp_config.json is of the last job."""
    w = sharded(world, world)
    state = {"state": {0: {"step": torch.tensor(float(world)), "exp_avg": w}},
             "param_groups": [{"lr": 1e-3, "params": [0]}]}
    torch.save({"w": w}, f"model_world_size_{world}_rank_{rank}.pt")
    torch.save(state, f"optim_world_size_{world}_rank_{rank}.pt")
    if rank == 0:
        with open("fsdp_config.json", "w") as f:
            json.dump({"FSDP_version": 2, "world_size": world}, f)


def numbers(rank, world):
    """checkpoint_R.pt: 4 ranks, then 2, which overwrite the first two files."""
    torch.save({"model": {"w": sharded(world, world)}}, f"checkpoint_{rank}.pt")


def overwritten(rank, world):
    """Two saves to one place; the second one ended after the file of rank 0."""
    for save, place in (1, "."), (2, "later"):
        mesh = init_device_mesh("cpu", (world,))
        w = distribute_tensor(torch.full((4, 3), float(save)), mesh, [Shard(0)])
        dcp.save({"model": {"w": w}}, checkpoint_id=place)
    dist.barrier()
    if rank == 0:
        shutil.copy("later/__0_0.distcp", "__0_0.distcp")
        shutil.rmtree("later")


def shards():
    """HuggingFaceStorageWriter: a save in one file a rank, then one in two."""
    for rank in 0, 1:
        for part, parts, name, value in (1, 1, "ab", 0), (1, 2, "a", 1), (2, 2, "b", 2):
            info = {k: {"saved_offsets": [2 * rank, 0]} for k in name}
            save_file({k: torch.full((2, 3), float(value)) for k in name},
                      f"shard-{rank + 1:05}-model-{part:05}-of-{parts:05}.safetensors",
                      metadata={"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(info)})


def fewer():
    """HuggingFaceStorageWriter: a save by 4 ranks, then one by 2."""
    for world in 4, 2:
        rows = 8 // world
        for rank in range(world):
            info = {"w": {"saved_offsets": [rows * rank, 0]}}
            save_file({"w": torch.full((rows, 3), float(world))},
                      f"shard-{rank + 1:05}-model-00001-of-00001.safetensors",
                      metadata={"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(info)})


def work(rank, world, make, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    make(rank, world)
    dist.barrier()
    dist.destroy_process_group()


top = os.path.abspath(sys.argv[1])
port = 29711
for make, worlds in (world_sizes, (2, 4)), (numbers, (4, 2)), (overwritten, (2,)), (shards, ()), (fewer, ()):
    os.makedirs(f"{top}/{make.__name__}")
    os.chdir(f"{top}/{make.__name__}")
    if not worlds:
        make()
    for world in worlds:
        mp.start_processes(work, (world, make, port), world, start_method="fork")
        port += 1
