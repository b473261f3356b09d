/* summary.h - what a checkpoint is, at a glance */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SUMMARY_H
#define OFS_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "fs/fs.h"

#define OFS_SUMMARY_STATES 16
#define OFS_SUMMARY_OPTIMS 8
#define OFS_SUMMARY_VIEWS  16

/* Tensors, and values that are not, of one kind. */
struct ofs_summary_count {
	uint64_t tensors, values, elements, bytes;
};

/* A name of state that parameters of an optimizer have. */
struct ofs_summary_state {
	const char *name;
	struct ofs_summary_count n;
	uint8_t dtype; /* of all of them; OFS_DTYPE_NONE: mixed or no tensors */
};

struct ofs_summary_optim {
	const char *name;       /* NULL where there is but one optimizer */
	const char *kind;       /* "AdamW"; NULL: not known for certain */
	uint32_t state, groups; /* directories of the tree; OFS_NONE */
	uint64_t parameters;    /* with state */
	struct ofs_summary_state states[OFS_SUMMARY_STATES];
	unsigned nstates; /* kept; others are counted in all only */
	char step[32];    /* of its first parameter; "" */
};

/* What is below a node of the tree. The rest is known of the root only. */
struct ofs_summary {
	struct ofs_snapshot *snap;
	uint32_t below;
	struct ofs_summary_count all, model, optimizer, extra;
	struct ofs_summary_count dtype[OFS_NDTYPES];
	/* how tensors are cut */
	uint64_t whole, sharded, flat, lost, replicated;
	uint64_t cut[OFS_MAX_DIMS]; /* of sharded ones: along this dimension */
	/* Tensors and values: with an error; that this version, or without an
	 * option, cannot read; a part of which lies in files that are missing
	 * or short. */
	uint64_t damaged, unread, gone;

	uint64_t files, missing_files, short_files, file_bytes;
	bool is_lossy; /* files are missing or short */
	uint64_t missing, remarks, warnings, errors; /* notes */
	uint32_t ranks;                              /* that hold something */
	struct ofs_summary_optim optim[OFS_SUMMARY_OPTIMS];
	unsigned noptims;
	char step[32]; /* of training; "" */
	struct ofs_summary_view {
		const char *name;
		bool ranked; /* it wants "@N" behind */
		struct optimfs_error
		    why; /* it cannot be made; code 0: it can */
		/* Values that it has byte for byte, and the first of them. */
		uint32_t ncopied;
		char copied[160];
	} view[OFS_SUMMARY_VIEWS];
	unsigned nviews;
};

/* All but views. */
int ofs_summary_make(struct ofs_summary *s, struct ofs_snapshot *snap,
    uint32_t below, struct optimfs_error *err);
/* Is it a note of what is lost, or of state that there is none of by intent? */
bool ofs_summary_is_remark(const struct ofs_note *n);
/* What is wrong: damaged tensors and values, and files that are missing. */
uint64_t ofs_summary_problems(const struct ofs_summary *s);
/* The text of a value of the tree; false where it cannot be read or is longer
 * than size. */
bool ofs_summary_value(struct ofs_snapshot *snap, uint32_t index, char *text,
    size_t size);

void ofs_summary_text(const struct ofs_summary *s, struct ofs_buf *out);
void ofs_summary_json(const struct ofs_summary *s, struct ofs_buf *out);
/* One line, without its end. */
void ofs_summary_line(const struct ofs_summary *s, struct ofs_buf *out);
/* The same of what is damaged alone; "" where nothing is. */
void ofs_summary_damage(const struct ofs_summary *s, struct ofs_buf *out);

/* summary_file.c: of one file, in both forms. */
void ofs_summary_file_text(struct optimfs *fs, const struct optimfs_attr *attr,
    struct ofs_buf *out);
void ofs_summary_file_json(struct optimfs *fs, const char *path,
    const struct optimfs_attr *attr, struct ofs_buf *out);
/* summary_shards.c: which rank has which box of a tensor, as a table. */
void ofs_summary_shards(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, struct ofs_buf *out);

#endif
