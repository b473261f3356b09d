#!/usr/bin/env python3
"""A small state dict: state.npz and array.npy as NumPy 1.24 writes them,
compressed.npz and piped.npz as NumPy 2.4 does."""
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


class Pipe:
    """Cannot seek, so that zipfile writes data descriptors."""

    def __init__(self, f):
        self.write, self.flush, self.read = f.write, f.flush, None


np.savez("state.npz", **state)
np.save("array.npy", np.arange(4, dtype="<u2"))
# more than the cache decodes at once
state["model/large"] = np.repeat(np.arange(1000, dtype="<i4"), 1500)
np.savez_compressed("compressed.npz", **state)
with open("piped.npz", "wb") as f:
    np.savez_compressed(Pipe(f), **{"model/w": state["model/layers.0.weight"],
                                    "model/W": state["model/fortran"]})
