/* candidates.h - the checkpoints in the subdirectories of a directory */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_CANDIDATES_H
#define OFS_DETECT_CANDIDATES_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/error.h"

#include "base/io.h"

struct ofs_candidates {
	struct ofs_candidate {
		char *path;             /* below the directory */
		const char *unfinished; /* as ofs_unfinished */
	} * v;
	size_t n, cap;
	size_t looked; /* directories searched */
};
/* Finds them, by names and first bytes, at most depth levels below the entries
 * of dir (0: its entries only); those in a checkpoint are not looked for.
 * Highest number first. */
int ofs_candidates_find(const struct ofs_dir *dir,
    const struct ofs_names *names, int depth, struct ofs_candidates *out,
    struct optimfs_error *err);
void ofs_candidates_free(struct ofs_candidates *c);

/* Is dir, with these names in it, a checkpoint, judging by names and first
 * bytes? 1, 0, -1. */
int ofs_detect_is_checkpoint(const struct ofs_dir *dir,
    const struct ofs_names *names, struct optimfs_error *err);
/* Is it the name of a directory for one of the models of verl or SkyRL? */
bool ofs_detect_is_role(const char *name);
/* Is it a directory of verl with several models, each in its own directory, and
 * otherwise only the state of the data loader and of the trainer? */
bool ofs_detect_is_roles(const struct ofs_dir *dir,
    const struct ofs_names *names);
/* Is it a file that a trainer writes beside its checkpoints, and none itself:
 * its arguments, or that state beside directories of models in dir? */
bool ofs_detect_is_no_step(const struct ofs_dir *dir, const char *name);
/* Does the name have an extension that only checkpoints use? */
bool ofs_detect_has_extension(const char *name);

#endif
