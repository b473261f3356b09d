/* optimizers.h - the optimizers of a tree, and the files of their state */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_OPTIMIZERS_H
#define OFS_ANALYZE_OPTIMIZERS_H

#include "analyze/tensors.h"

/* An entry of param_groups. Missing numbers are NaN. */
struct ofs_param_group {
	char *path; /* of its directory */
	double lr, eps, beta[2], alpha, step;
	bool low_rank; /* it has an option rank */
};

/* A parameter with optimizer state. */
struct ofs_param {
	char *path;          /* directory of its states */
	size_t optimizer;    /* length of path before "/state/" */
	size_t first, n;     /* its states, in files */
	size_t group, model; /* indexes in group and in files; SIZE_MAX: none */
	double step;         /* NaN: not known */
	int grad;            /* requires_grad; -1: unknown */
};

struct ofs_optimizers {
	struct ofs_file_list files; /* all files of the tree */
	struct ofs_param_group *group;
	struct ofs_param *param;
	size_t ngroups, nparams, group_cap, param_cap;
	struct ofs_member *member; /* members of groups, sorted */
	size_t nmembers, member_cap;
	bool lists; /* groups list their parameters */
	bool no_memory;
};

int ofs_optimizers_read(struct optimfs *fs, struct ofs_optimizers *s,
    struct optimfs_error *err);
void ofs_optimizers_fini(struct ofs_optimizers *s);
/* The state of p with this name, or NULL. */
const struct ofs_file_info *ofs_param_state(const struct ofs_optimizers *s,
    const struct ofs_param *p, const char *name);
/* The name of a state of p: the end of its path. */
static inline const char *ofs_param_state_name(const struct ofs_param *p,
    const struct ofs_file_info *f)
{
	size_t n = __builtin_strlen(p->path);

	return f->path + n + 1;
}

#endif
