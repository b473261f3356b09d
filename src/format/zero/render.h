/* render.h - a layout as DeepSpeed's files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_RENDER_H
#define OFS_FORMAT_ZERO_RENDER_H

#include "format/format.h"
#include "format/zero/layout.h"
#include "layout/archive_cache.h"
#include "layout/flat_model.h"

/* Only render*.c include this, and universal.c for its end.
 * docs/formats/deepspeed.md describes the files of zero1@N, zero2@N, zero3@N
 * and universal. */

/* The fp32 weights of a parameter that the optimizer updates. */
struct ofs_zero_new_master {
	uint32_t fp32; /* entry */
	bool widened;  /* they are the model's, in half precision */
	bool frozen;   /* none: the optimizer does not train it */
};

enum ofs_zero_new_role {
	OFS_ZERO_NEW_BUFFER,
	OFS_ZERO_NEW_TRAINED,
	OFS_ZERO_NEW_FROZEN,
	OFS_ZERO_NEW_ALIAS,
};

/* A model entry. */
struct ofs_zero_new_weight {
	uint32_t entry;
	enum ofs_zero_new_role role;
	uint32_t of; /* TRAINED: its param; ALIAS: the other weight */
};

struct ofs_zero_new_file { /* a state file of a universal checkpoint */
	uint32_t param;
	const char *name;
	uint32_t entry;
};

struct ofs_zero_new {
	struct ofs_files files;
	/* param: trained parameters, by ID; flat: their group. state: without
	 * fp32 */
	struct ofs_flat_model m;
	bool universal;
	int stage; /* 1, 2, 3: form of the model's and the optimizer's files */
	uint32_t world; /* ranks that share these files */

	struct ofs_state extra;             /* the section extra/ */
	struct ofs_zero_new_master *master; /* of m.param */
	struct ofs_zero_new_weight *weight;
	uint32_t nweights;
	struct ofs_keys names; /* of weight */

	/* Parameters in flat order, by flat group. In stage 3 several flat
	 * groups may share one of the optimizer's groups. */
	uint32_t *order;
	uint32_t *group; /* of each flat group: the optimizer's group */
	struct ofs_zero_shapes shapes;
	struct ofs_zero_layout layout;

	char latest[64]; /* the text of the file latest: a directory */
	bool bf16;
	struct ofs_zero_new_file *file;
	uint32_t nfiles, file_cap;
	struct ofs_torch_cache archives;
};

/* The dtype of a parameter's tensor in the files; *cast gets the dtype that its
 * parts are converted to. */
enum ofs_dtype ofs_zero_new_dtype(const struct ofs_zero_new *z, uint32_t param,
    uint32_t entry, enum ofs_dtype *cast);

/* render_facts.c: facts about the job in the source's extra/. A path is words
 * with "/" between them. */
/* The value of an entry, a node of the document; NULL: the entry is OFS_NONE or
 * a tensor, or its value cannot be read. _release takes NULL. */
const struct ofs_pickle *ofs_zero_new_value(const struct ofs_zero_new *z,
    uint32_t entry, uint32_t *node);
void ofs_zero_new_release(const struct ofs_zero_new *z, uint32_t entry,
    const struct ofs_pickle *doc);
bool ofs_zero_new_int(const struct ofs_zero_new *z, const char *path,
    int64_t *v);
/* Is this entry the value True? */
bool ofs_zero_new_true(const struct ofs_zero_new *z, uint32_t entry);
/* The source's stage; 0: unknown. */
int ofs_zero_new_stage(const struct ofs_zero_new *z);
/* The number of steps; 0: unknown. */
int64_t ofs_zero_new_steps(const struct ofs_zero_new *z);
/* A leaf of extra; OFS_NONE: missing, or not a leaf. */
uint32_t ofs_zero_new_fact(const struct ofs_zero_new *z, const char *path);

/* render_plan.c: plans parameters, their state, their groups and the other
 * model entries, and checks that the layout is possible. */
int ofs_zero_new_plan(struct ofs_zero_new *z, struct optimfs_error *err);
/* render_scalars.c: fills m.scalar. */
int ofs_zero_new_scalars(struct ofs_zero_new *z, struct optimfs_error *err);
/* render_order.c: plans flat groups. */
int ofs_zero_new_order(struct ofs_zero_new *z, struct optimfs_error *err);
/* render_model.c, render_optim.c, render_universal.c: make one file, up to
 * _lay. */
int ofs_zero_new_model(const struct ofs_zero_new *z, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err);
int ofs_zero_new_optim(const struct ofs_zero_new *z, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err);
int ofs_zero_new_globals(const struct ofs_zero_new *z, struct ofs_torch_new *a,
    struct ofs_buf *pickle, struct optimfs_error *err);
int ofs_zero_new_one(const struct ofs_zero_new *z,
    const struct ofs_zero_new_file *file, struct ofs_torch_new *a,
    struct ofs_buf *pickle, struct optimfs_error *err);
/* Lists the state files of each parameter. */
int ofs_zero_new_list(struct ofs_zero_new *z, struct optimfs_error *err);

/* Shared by these writers. */
struct ofs_zero_writer {
	const struct ofs_zero_new *z;
	uint32_t rank;
	struct ofs_state_pickler p;
};
/* Begins a pickle and its top dict; _end ends both. */
void ofs_zero_new_begin(struct ofs_zero_writer *w, const struct ofs_zero_new *z,
    uint32_t rank, struct ofs_torch_new *a, struct ofs_buf *pickle,
    struct optimfs_error *err);
int ofs_zero_new_end(struct ofs_zero_writer *w);
/* Writes members of a dict: what the source's optimizer has besides its state,
 * the stage, and what loaders need. */
int ofs_zero_new_put_scaler(struct ofs_zero_writer *w);
/* Writes the list of the optimizer's groups; params are numbers of flat
 * groups. */
int ofs_zero_new_put_groups(struct ofs_zero_writer *w);
/* Writes {state, param_groups}, the optimizer that ZeRO wraps; state writes its
 * state. */
int ofs_zero_new_put_base(struct ofs_zero_writer *w,
    int (*state)(struct ofs_zero_writer *w));
/* Writes a leaf of extra as a member of a dict, or None. */
int ofs_zero_new_put_fact(struct ofs_zero_writer *w, const char *key);
void ofs_zero_new_put_version(struct ofs_zero_writer *w);

/* The render of both formats. */
extern const struct ofs_files_ops ofs_zero_render;

#endif
