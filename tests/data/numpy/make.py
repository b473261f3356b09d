#!/usr/bin/env python3
"""state.npz, compressed.npz: a small state dict as NumPy 1.24 writes it."""
import numpy as np

state = {
    "model/layers.0.weight": np.arange(6, dtype="<f4").reshape(2, 3),
    "model/layers.0.bias": np.array([1, 2, 3], dtype=">f4"),
    "model/fortran": np.asfortranarray(
        np.arange(6, dtype="<f8").reshape(2, 3)),
    "model/both": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
    "optim/state/layers.0.weight/step": np.int64(7),
    "extra/empty": np.zeros((0, 4), dtype="u1"),
    "extra/mask": np.array([True, False]),
    "extra/names": np.array(["a", "b"]),
    "extra/objects": np.array([None, {}], dtype=object),
    "extra/record": np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")]),
}
np.savez("state.npz", **state)
np.savez_compressed("compressed.npz", w=np.arange(64, dtype="<f4"))
np.save("array.npy", np.arange(4, dtype="<u2"))
