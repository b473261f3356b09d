/* dcp_writer.h - .metadata of any version, valid or not, and small archives */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DCP_WRITER_H
#define DCP_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define MK_DIMS   6
#define MK_CHUNKS 32

struct mk_dims {
	int n;
	int64_t v[MK_DIMS];
};

/* The recorded location of an item. file NULL: storage_data has no entry. */
struct mk_place {
	const char *file;
	size_t file_len; /* 0: strlen */
	int64_t off, len;
	const char *transform; /* NULL: no such attribute */
	const char *transform2;
};

struct mk_chunk {
	struct mk_dims off, size;
	struct mk_place at;
	struct mk_dims *stored_off; /* the offset in the key, if it differs */
};

struct mk_tensor {
	const char *key;
	const char *dtype;  /* "float32" */
	const char *layout; /* NULL: "torch.strided" */
	int format;         /* memory format: 0 contiguous ... */
	struct mk_dims size;
	struct mk_chunk chunk[MK_CHUNKS];
	int nchunks;
	int repeated;              /* the last chunk is so often in it again */
	const char *path[MK_DIMS]; /* of planner_data: NULL: {key} */
	bool no_path;              /* planner_data has no entry */
};

struct mk_value {
	const char *key;
	struct mk_place at;
	const char *path[MK_DIMS]; /* "#3" is the list index 3 */
};

enum mk_generation {
	MK_TORCH_2_11,
	MK_TORCH_2_7,
	MK_TORCH_2_3,
	MK_TORCH_2_0,
	MK_TORCH_1_13,
	MK_GETATTR, /* as 2.11, written by Python 3.11.2 */
	MK_MEGATRON,
	MK_OLMO,
};

struct mk_index {
	enum mk_generation generation;
	struct mk_tensor tensor[8];
	int ntensors;
	struct mk_value value[8];
	int nvalues;
	enum {
		MK_PLANNER,
		MK_NO_PLANNER,
		MK_ODD_PLANNER,
		MK_BAD_PATHS
	} planner;
	/* Errors to write. */
	const char *stray_key;          /* of planner_data */
	const char *stray_item;         /* of storage_data */
	bool no_storage;                /* storage_data is None */
	bool twice_meta, twice_storage; /* the first tensor's keys again */
	/* If not NULL, write the size of tensor 0, the file offset of its first
	 * chunk, and all of its metadata. */
	void (*size)(struct ofs_buf *b);
	void (*offset)(struct ofs_buf *b);
	void (*meta)(struct ofs_buf *b);
};

/* Appends the pickle of the index to b. */
void mk_write_index(struct ofs_buf *b, const struct mk_index *index);

/* Append a torch.save archive of a contiguous tensor, or of a pickled object,
 * to b; return its length. */
size_t mk_write_tensor(struct ofs_buf *b, const char *storage,
    const struct mk_dims *size, const void *bytes, size_t n);
size_t mk_write_object(struct ofs_buf *b, const void *pickle, size_t n);

/* Make a temporary directory, write a file into it (and directories of its
 * name), remove all. A failure ends the test. */
void mk_dir(char dir[64]);
void mk_file(const char *dir, const char *name, const void *p, size_t n);
void mk_remove(const char *dir);

#endif
