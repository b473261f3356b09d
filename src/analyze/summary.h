/* summary.h - a summary of a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SUMMARY_H
#define OFS_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "detect/inventory.h"
#include "fs/fs.h"

#define OFS_SUMMARY_STATES 16
#define OFS_SUMMARY_OPTIMS 8
#define OFS_SUMMARY_VIEWS  16

/* Counts of tensors and values of one kind. */
struct ofs_summary_count {
	uint64_t tensors, values, elements, bytes;
};

/* A kind of state of an optimizer. */
struct ofs_summary_state {
	const char *name;
	struct ofs_summary_count n;
	uint8_t dtype; /* of all of them; OFS_DTYPE_NONE: mixed or no tensors */
	const struct ofs_tensor *largest;
	/* Why this version cannot read the largest one; code 0: it can. */
	struct optimfs_error why;
};

struct ofs_summary_optim {
	const char *name;       /* NULL if there is only one optimizer */
	const char *kind;       /* "AdamW"; NULL: not certain */
	uint32_t state, groups; /* directories in the tree, or OFS_NONE */
	uint64_t parameters;    /* number with state */
	struct ofs_summary_state states[OFS_SUMMARY_STATES];
	unsigned nstates; /* number kept; further ones count in all only */
	char step[32];    /* of its first parameter, or "" */
};

/* A summary of everything below a node; members after dtype are set for the
 * root only. */
struct ofs_summary {
	struct ofs_snapshot *snap;
	uint32_t below;
	struct ofs_summary_count all, model, optimizer, extra;
	struct ofs_summary_count dtype[OFS_NDTYPES];
	/* what tensors in few bits are as float32 (.optimfs/f32) */
	struct ofs_summary_count few_bits;
	uint64_t model_elements[OFS_NDTYPES];
	/* how tensors are sharded */
	uint64_t whole, sharded, flat, lost, replicated;
	uint64_t cut[OFS_MAX_DIMS]; /* sharded along this dimension */
	/* Tensors and values: with an error; unreadable in this version or
	 * without an option; partly in missing or truncated files, or in
	 * none. */
	uint64_t damaged, unread, gone;

	uint64_t files, missing_files, short_files, refused_files;
	uint64_t damaged_files, file_bytes;
	const char *damaged_file; /* the first one */
	bool is_lossy;            /* files are missing, truncated, or refused */
	uint64_t missing, remarks, warnings, errors; /* notes */
	uint32_t ranks;                              /* ranks that hold data */
	struct ofs_summary_optim optim[OFS_SUMMARY_OPTIMS];
	unsigned noptims;
	char step[32]; /* of training, or "" */
	struct ofs_summary_view {
		const char *name;
		bool ranked; /* needs "@N" */
		struct optimfs_error
		    why; /* why it cannot be made; code 0: it can */
		/* Number of values copied as pickled, and the first of
		 * them. */
		uint32_t ncopied;
		char copied[160];
	} view[OFS_SUMMARY_VIEWS];
	unsigned nviews;
	struct ofs_inventory left; /* what is beside the checkpoint's files */
};

/* Is it a note about lost data, or about state that is absent by design? */
bool ofs_summary_is_remark(const struct ofs_note *n);
/* The number of damaged or lost tensors and values, and of missing and truncated
 * files. */
uint64_t ofs_summary_problems(const struct ofs_summary *s);
/* The text of a value of the tree; false if it cannot be read or is longer than
 * size. */
bool ofs_summary_value(struct ofs_snapshot *snap, uint32_t index, char *text,
    size_t size);

void ofs_summary_text(const struct ofs_summary *s, struct ofs_buf *out);
void ofs_summary_json(const struct ofs_summary *s, struct ofs_buf *out);
/* summary_text.c: "1 file", "2 files"; a number of bytes, rounded; a name from a
 * file, made printable. */
void ofs_summary_put_count(struct ofs_buf *out, uint64_t n, const char *one);
void ofs_summary_put_bytes(struct ofs_buf *out, uint64_t n);
void ofs_summary_put_plain(struct ofs_buf *out, const char *s);

/* summary_line.c: one line without the newline. */
void ofs_summary_line(const struct ofs_summary *s, struct ofs_buf *out);
/* As above, about damage only; "" if there is none. */
void ofs_summary_damage(const struct ofs_summary *s, struct ofs_buf *out);

/* summary_file.c: a summary of one file, as text and JSON. */
void ofs_summary_file_text(struct optimfs *fs, const struct optimfs_attr *attr,
    struct ofs_buf *out);
void ofs_summary_file_json(struct optimfs *fs, const char *path,
    const struct optimfs_attr *attr, struct ofs_buf *out);
/* summary_shards.c: a table of the ranks and their boxes of a tensor. */
void ofs_summary_shards(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, struct ofs_buf *out);

#endif
