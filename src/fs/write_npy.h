/* write_npy.h - writing to files in .optimfs/npy */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_WRITE_NPY_H
#define OFS_FS_WRITE_NPY_H

#include "fs/fs.h"

/* A new .npy file is kept aside until it is closed, because only its complete
 * header says what it contains. A file that is changed in place keeps its
 * header. */
struct ofs_file_npy;

int ofs_file_npy_begin(struct optimfs_file *file, bool anew,
    struct optimfs_error *err);
void ofs_file_npy_end(struct optimfs_file *file);
uint64_t ofs_file_npy_size(const struct optimfs_file *file);
ssize_t ofs_file_npy_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
int ofs_file_npy_write(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
int ofs_file_npy_resize(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err);
/* Stores what was written as the tensor. EINVAL (OFS816): another dtype or
 * shape, or not a .npy file. */
int ofs_file_npy_accept(struct optimfs_file *file, struct optimfs_error *err);

#endif
