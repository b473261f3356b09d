/* optimizers.h - optimizers: which files of the tree are whose state */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_OPTIMIZERS_H
#define OFS_ANALYZE_OPTIMIZERS_H

#include "analyze/tensors.h"

/* One of param_groups. What is not there is NaN. */
struct ofs_param_group {
	char *path; /* of its directory */
	double lr, eps, beta[2], alpha, step;
	bool amsgrad;
};

/* A parameter that an optimizer has state of. */
struct ofs_param {
	char *path;          /* of the directory with its states */
	size_t optimizer;    /* length of path before "/state/" */
	size_t first, n;     /* its states in the list of files */
	size_t group, model; /* in groups, and in files; SIZE_MAX: none */
	double step;         /* NaN: not known */
	int grad;            /* requires_grad; -1: not known */
};

struct ofs_optimizers {
	struct ofs_file_list files; /* of the whole tree */
	struct ofs_param_group *group;
	struct ofs_param *param;
	size_t ngroups, nparams, group_cap, param_cap;
	struct ofs_member *member; /* of groups; sorted */
	size_t nmembers, member_cap;
	bool lists; /* groups say which parameters they have */
	bool no_memory;
};

int ofs_optimizers_read(struct optimfs *fs, struct ofs_optimizers *s,
    struct optimfs_error *err);
void ofs_optimizers_fini(struct ofs_optimizers *s);
/* The state of p with this name; NULL. */
const struct ofs_file_info *ofs_param_state(const struct ofs_optimizers *s,
    const struct ofs_param *p, const char *name);
/* The name of a state of p: what its path ends with. */
static inline const char *ofs_param_state_name(const struct ofs_param *p,
    const struct ofs_file_info *f)
{
	size_t n = __builtin_strlen(p->path);

	return f->path + n + 1;
}

#endif
