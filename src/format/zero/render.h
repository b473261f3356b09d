/* render.h - DeepSpeed's files being laid out */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_RENDER_H
#define OFS_FORMAT_ZERO_RENDER_H

#include "format/format.h"
#include "format/zero/layout.h"
#include "layout/archive_cache.h"
#include "layout/flat_model.h"

/* Only render*.c include it, and universal.c for what is at its end. What they write is in
 * docs/formats/deepspeed.md: zero1@N, zero2@N, zero3@N and universal. */

/* The weights of a parameter that the optimizer updates. */
struct ofs_zero_new_master {
	uint32_t fp32; /* entry */
	bool widened;  /* the model's, in half precision */
	bool frozen;   /* there are none, though the optimizer lists it */
};

enum ofs_zero_new_role {
	OFS_ZERO_NEW_BUFFER,
	OFS_ZERO_NEW_TRAINED,
	OFS_ZERO_NEW_FROZEN,
	OFS_ZERO_NEW_ALIAS,
};

/* An entry of the model. */
struct ofs_zero_new_weight {
	uint32_t entry;
	enum ofs_zero_new_role role;
	uint32_t of; /* TRAINED: param; ALIAS: weight */
};

struct ofs_zero_new_file { /* of a universal checkpoint */
	uint32_t param;
	const char *name;
	uint32_t entry;
};

struct ofs_zero_new {
	struct ofs_files files;
	/* param: what is trained, by ID; flat: the group. state: without fp32 */
	struct ofs_flat_model m;
	bool universal;
	int stage; /* 1, 2, 3: how model's files are, and the optimizer's */
	uint32_t world; /* how many ranks have them */

	struct ofs_state extra;             /* the section */
	struct ofs_zero_new_master *master; /* of m.param */
	struct ofs_zero_new_weight *weight;
	uint32_t nweights;
	struct ofs_map names; /* of weight */

	/* Parameters in flat order, by flat group: those of stage 3 are parts
	 * of the optimizer's. */
	uint32_t *order;
	uint32_t *group; /* of each flat group: the optimizer's */
	struct ofs_zero_shapes shapes;
	struct ofs_zero_layout layout;

	char latest[64]; /* the text of that file: a directory's name */
	bool bf16;
	struct ofs_zero_new_file *file;
	uint32_t nfiles, file_cap;
	struct ofs_torch_cache archives;
};

/* The type that a tensor of a parameter has in the files; *cast gets what its
 * parts must say for that. */
enum ofs_dtype ofs_zero_new_dtype(const struct ofs_zero_new *z, uint32_t param,
    uint32_t entry, enum ofs_dtype *cast);

/* render_facts.c: what the source's extra/ says of the job. A path is
 * words with '/' between them. */
bool ofs_zero_new_int(const struct ofs_zero_new *z, const char *path,
    int64_t *v);
bool ofs_zero_new_true(const struct ofs_zero_new *z, const char *path);
/* The stage that the source was in; 0: it does not say. */
int ofs_zero_new_stage(const struct ofs_zero_new *z);
/* How many steps were made; 0: nobody says. */
int64_t ofs_zero_new_steps(const struct ofs_zero_new *z);
/* A leaf of extra; OFS_NONE: it is none, or not there. */
uint32_t ofs_zero_new_fact(const struct ofs_zero_new *z, const char *path);

/* render_plan.c: parameters, their state, their groups and what else the
 * model has, and whether they can be laid out so. */
int ofs_zero_new_plan(struct ofs_zero_new *z, struct optimfs_error *err);
/* render_scalars.c: fill m.scalar. */
int ofs_zero_new_scalars(struct ofs_zero_new *z, struct optimfs_error *err);
/* render_order.c: flat groups. */
int ofs_zero_new_order(struct ofs_zero_new *z, struct optimfs_error *err);
/* render_model.c, render_optim.c, render_universal.c: one file,
 * but for _lay. */
int ofs_zero_new_model(const struct ofs_zero_new *z, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err);
int ofs_zero_new_optim(const struct ofs_zero_new *z, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err);
int ofs_zero_new_globals(const struct ofs_zero_new *z, struct ofs_torch_new *a,
    struct ofs_buf *pickle, struct optimfs_error *err);
int ofs_zero_new_one(const struct ofs_zero_new *z,
    const struct ofs_zero_new_file *file, struct ofs_torch_new *a,
    struct ofs_buf *pickle, struct optimfs_error *err);
/* Which files those are, of each parameter. */
int ofs_zero_new_list(struct ofs_zero_new *z, struct optimfs_error *err);

/* What these share. */
struct ofs_zero_writer {
	const struct ofs_zero_new *z;
	uint32_t rank;
	struct ofs_state_pickler p;
};
/* Begin a pickle, and a dict that all of it is in; end both. */
void ofs_zero_new_begin(struct ofs_zero_writer *w, const struct ofs_zero_new *z,
    uint32_t rank, struct ofs_torch_new *a, struct ofs_buf *pickle,
    struct optimfs_error *err);
int ofs_zero_new_end(struct ofs_zero_writer *w);
/* In a dict: what the source's optimizer had beside its state; the stage, and
 * what loaders ask for. */
int ofs_zero_new_put_scaler(struct ofs_zero_writer *w);
/* The list of the optimizer's groups: params are the numbers of flat ones. */
int ofs_zero_new_put_groups(struct ofs_zero_writer *w);
/* In a dict: a leaf of extra as it is, or none of it. */
int ofs_zero_new_put_fact(struct ofs_zero_writer *w, const char *key);
void ofs_zero_new_put_version(struct ofs_zero_writer *w);

/* The render of ofs_format_universal. */
int ofs_universal_render(const struct ofs_render *from,
    const struct ofs_layout *to, struct ofs_files **out,
    struct optimfs_error *err);

extern const struct ofs_format ofs_format_zero1, ofs_format_zero2,
    ofs_format_zero3;

#endif
