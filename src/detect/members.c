/* members.c - a checkpoint in several directories, or beside others */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "detect/candidates.h"
#include "detect/detect.h"
#include "detect/inventory.h"
#include "format/probe.h"

/* Model and optimizer may be checkpoints of their own, in directories whose
 * names say which part each is. Then they are one checkpoint, with the files
 * beside them. Any other checkpoint in a subdirectory is not a part of the one
 * in the files beside it, and nothing says which of them is meant: then the user
 * is asked. docs/formats/trainers.md, "Directories of parts" */

/* How far below the entries of a directory checkpoints are looked for: farther
 * where no file says that it is the model, but may be a data loader's. */
#define DEPTH          1
#define DEPTH_NO_MODEL 2
#define NAME_MAX_SHOWN 8

static const struct member {
	const char *name;
	enum ofs_role role;
	const char *prefix;
} members[] = {
	{ "model", OFS_ROLE_MODEL, "model" },
	{ "weights", OFS_ROLE_MODEL, "model" },
	{ "model_weights", OFS_ROLE_MODEL, "model" },
	{ "model_state", OFS_ROLE_MODEL, "model" },
	{ "modeling", OFS_ROLE_MODEL, "model" }, /* ColossalAI */
	{ "optim", OFS_ROLE_OPTIM, "optim" },
	{ "optimizer", OFS_ROLE_OPTIM, "optimizer" },
	{ "optim_state", OFS_ROLE_OPTIM, "optim" },
	{ "optimizer_state", OFS_ROLE_OPTIM, "optimizer" },
	{ "lr_scheduler", OFS_ROLE_OTHER, "lr_scheduler" },
	{ "scheduler", OFS_ROLE_OTHER, "scheduler" },
	{ "dataloader", OFS_ROLE_OTHER, "dataloader" },
	{ "train_state", OFS_ROLE_OTHER, "train_state" },
	{ "extra", OFS_ROLE_OTHER, "extra" },
	{ "extra_state", OFS_ROLE_OTHER, "extra_state" },
	{ "rng", OFS_ROLE_OTHER, "rng" },
	{ "loader", OFS_ROLE_OTHER, "loader" },
	{ "ema", OFS_ROLE_OTHER, "ema" },
};

/* Directories beside a model that others have in no checkpoint. */
static const struct beside {
	const char *pattern; /* of fnmatch(3) */
	enum ofs_left_kind kind;
	const char *why;
} besides[] = {
	{ "original", OFS_LEFT_COPY,
	    "the weights as they were converted from" },
	{ "metal", OFS_LEFT_COPY, "the weights for another program" },
	{ "onnx", OFS_LEFT_COPY, "the weights for another program" },
	{ "openvino", OFS_LEFT_COPY, "the weights for another program" },
	{ "sharded", OFS_LEFT_COPY, "the shards that were merged" },
	{ "hf_ckpt", OFS_LEFT_COPY, "the weights as they were exported" },
	{ "consolidated", OFS_LEFT_COPY, "the weights as they were merged" },
	{ "[0-9]_*", OFS_LEFT_UNREAD, "a module behind the model" },
};

/* Puts prefix before the paths of all parts; "": nothing. */
static int prepend(struct ofs_parts *parts, const char *prefix,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < parts->n; i++) {
		struct ofs_part *p = &parts->part[i];
		char *copy;

		if (p->prefix[0] != NULL && strcmp(p->prefix[0], prefix) == 0)
			continue;
		if (p->prefix[OFS_PART_PREFIX - 1] != NULL)
			return optimfs_fail(err, E2BIG,
			    "OFS624 %.200s: too many directories", p->rel);
		copy = strdup(prefix);
		if (copy == NULL)
			return ofs_no_memory(err);
		memmove(p->prefix + 1, p->prefix,
		    (OFS_PART_PREFIX - 1) * sizeof(*p->prefix));
		p->prefix[0] = copy;
	}
	return 0;
}

/* Does the name of a file say that it is a part of the optimizer? */
static bool has_optimizer(const struct ofs_parts *parts)
{
	for (size_t i = 0; i < parts->n; i++)
		if (parts->part[i].prefix[0] != NULL &&
		    strcmp(parts->part[i].prefix[0], "optimizer") == 0)
			return true;
	return false;
}

/* The files of a directory, if one of them, or its only one, is what the name of
 * the directory says: 1; 0. Several files with other names may be the pieces of
 * ranks, in a format that is not known. */
static int parts_of_files(const struct ofs_dir *dir,
    const struct ofs_names *names, enum ofs_role role, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	if (ofs_detect_files(dir, names, NULL, parts, err) == -1 ||
	    ofs_detect_copies(dir, parts, err) == -1)
		return -1;
	return parts->n == 1 ||
	    (parts->n > 1 &&
		(role == OFS_ROLE_OTHER || ofs_detect_has_role(parts, role) ||
		    (role == OFS_ROLE_OPTIM && has_optimizer(parts))));
}

/* The parts of the directory of a member, as a format of its own or as files: 1;
 * 0: none. */
static int parts_of(const struct ofs_dir *dir, const struct member *m,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	const struct ofs_format *format;
	struct ofs_names names;
	struct ofs_dir sub;
	int ret = ofs_probe_open(dir, m->name, &sub, &names, err);

	if (ret != 1)
		return ret;
	ret = ofs_detect_dir(&sub, &names, &format, err);
	if (ret == 1)
		ret = ofs_detect_add(&sub, format, parts, err) == -1 ? -1 : 1;
	else if (ret == 0)
		ret = parts_of_files(&sub, &names, m->role, parts, err);
	if (ret == 1 && ofs_parts_move(parts, m->name, err) == -1)
		ret = -1;
	ofs_names_free(&names);
	ofs_dir_close(&sub);
	return ret;
}

/* Adds a member to got: 1; 0: it is not there, or known already. */
static int add_member(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct member *m, const struct ofs_parts *have, struct ofs_parts *got,
    struct optimfs_error *err)
{
	struct ofs_parts parts = { 0 };
	int ret;

	if (!ofs_probe_has(names, m->name) || ofs_parts_cover(have, m->name) ||
	    (m->role != OFS_ROLE_OTHER &&
		(ofs_detect_has_role(have, m->role) ||
		    ofs_detect_has_role(got, m->role))))
		return 0;
	ret = parts_of(dir, m, &parts, err);
	if (ret == 1 && prepend(&parts, m->prefix, err) == -1)
		ret = -1;
	if (ret == 1 && ofs_parts_join(got, &parts, err) == -1)
		ret = -1;
	ofs_parts_free(&parts);
	return ret;
}

int ofs_detect_members(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_parts got = { 0 };
	int n = parts->n > 0, ret = 0;

	for (size_t i = 0;
	     i < sizeof(members) / sizeof(members[0]) && ret != -1; i++) {
		ret = add_member(dir, names, &members[i], parts, &got, err);
		n += ret == 1;
	}
	/* one directory alone is opened as itself */
	ret = ret == -1 ? -1 : got.n > 0 && n > 1;
	if (ret == 1 && ofs_parts_join(parts, &got, err) == -1)
		ret = -1;
	ofs_parts_free(&got);
	return ret;
}

int ofs_detect_prefix(struct ofs_parts *parts, const char *rel,
    struct optimfs_error *err)
{
	const char *name = ofs_path_last(rel);

	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
		if (strcmp(members[i].name, name) == 0)
			return prepend(parts, members[i].prefix, err);
	return 0;
}

/* Adapters of PEFT beside the files of the Trainer: the one called default is a
 * file among these, each other one is in a directory with its name. */

static const char *const adapter_files[][2] = {
	{ "adapter_model.safetensors", "safetensors" },
	{ "adapter_model.bin", "torch" },
};

/* The path of a file in the directory of an adapter. */
static char *in_adapter(const char *name, const char *file, char path[600])
{
	snprintf(path, 600, "%.255s/%s", name, file);
	return path;
}

/* Is it one, and no checkpoint of its own? */
static bool is_adapter(const struct ofs_dir *dir, const char *name)
{
	char path[600];

	return ofs_probe_is_file(dir,
		   in_adapter(name, "adapter_config.json", path)) &&
	    !ofs_probe_is_file(dir,
		in_adapter(name, "trainer_state.json", path));
}

static int add_adapter(const struct ofs_dir *dir, const char *name,
    const char *prefix, struct ofs_parts *parts, struct optimfs_error *err)
{
	size_t n = parts->n,
	       kinds = sizeof(adapter_files) / sizeof(*adapter_files);
	char path[600];

	for (size_t i = 0; i < kinds && parts->n == n; i++)
		if (ofs_detect_lone(dir,
			in_adapter(name, adapter_files[i][0], path),
			adapter_files[i][1], prefix, parts, err) == -1)
			return -1;
	return parts->n == n || prefix != name
	    ? 0
	    : ofs_parts_note(parts, err,
		  "OFS685 %.200s/ is an adapter beside the model or others: it "
		  "is shown below extra/, not as the model",
		  name);
}

int ofs_detect_adapters(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	bool more = ofs_detect_has_role(parts, OFS_ROLE_MODEL) ||
	    ofs_detect_has_role(parts, OFS_ROLE_ADAPTER);
	size_t n = 0;

	if (!ofs_probe_is_file(dir, "trainer_state.json"))
		return 0;
	for (size_t i = 0; i < names->n; i++)
		n += is_adapter(dir, names->name[i]);
	more = more || n > 1;
	for (size_t i = 0; i < names->n && n > 0; i++)
		if (is_adapter(dir, names->name[i]) &&
		    !ofs_parts_cover(parts, names->name[i]) &&
		    add_adapter(dir, names->name[i],
			more ? names->name[i] : "model", parts, err) == -1)
			return -1;
	return 0;
}

/* Checkpoints that belong to no part. */

/* Leaves a candidate out that is no reason to ask: true. */
static int leave(struct ofs_parts *parts, const struct ofs_candidate *c,
    struct optimfs_error *err)
{
	const char *foreign;
	char top[256];
	int ret;

	snprintf(top, sizeof(top), "%.*s", (int)strcspn(c->path, "/"), c->path);
	for (size_t i = 0; i < sizeof(besides) / sizeof(besides[0]); i++)
		if (fnmatch(besides[i].pattern, top, 0) == 0 &&
		    (besides[i].kind != OFS_LEFT_COPY ||
			ofs_detect_has_role(parts, OFS_ROLE_MODEL)))
			return ofs_parts_leave(parts, top, besides[i].kind,
				   besides[i].why, err) == -1
			    ? -1
			    : 1;
	foreign = ofs_foreign_dir(top);
	if (foreign != NULL)
		return ofs_parts_leave(parts, top, OFS_LEFT_FOREIGN, foreign,
			   err) == -1
		    ? -1
		    : 1;
	if (c->unfinished == NULL)
		return 0;
	ret = ofs_parts_note(parts, err, "OFS688 %.200s/ is left out: %s",
	    c->path, c->unfinished);
	if (ret == 0)
		ret = ofs_parts_leave(parts, c->path, OFS_LEFT_UNFINISHED,
		    c->unfinished, err);
	return ret == -1 ? -1 : 1;
}

static int ask(const struct ofs_dir *dir, const struct ofs_candidates *c,
    const bool *open, const struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++)
		if (open[i] && n++ < NAME_MAX_SHOWN)
			ofs_buf_printf(&b, "%s%s", n == 1 ? " " : ", ",
			    c->v[i].path);
	if (n > NAME_MAX_SHOWN)
		ofs_buf_printf(&b, " and %zu more", n - NAME_MAX_SHOWN);
	for (size_t i = 0; i < parts->n && i < NAME_MAX_SHOWN; i++)
		ofs_buf_printf(&b, "%s%s", i == 0 ? "; or a file: " : ", ",
		    parts->part[i].rel);
	ofs_buf_putc(&b, '\0');
	if (b.bad)
		ofs_no_memory(err);
	else
		optimfs_fail(err, ENOENT,
		    "OFS681 %s holds checkpoints beside files, give one of:%s",
		    dir->path, (char *)b.data);
	ofs_buf_fini(&b);
	return -1;
}

/* A directory that is a checkpoint itself is what the user named. */
static int leave_all(const struct ofs_candidates *c, const bool *open,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	for (size_t i = 0; i < c->n; i++)
		if (open[i] &&
		    (ofs_parts_note(parts, err,
			 "OFS686 %.200s/ is a checkpoint of its own in the "
			 "directory of this one, and left out",
			 c->v[i].path) == -1 ||
			ofs_parts_leave(parts, c->v[i].path,
			    OFS_LEFT_CHECKPOINT, "a checkpoint of its own",
			    err) == -1))
			return -1;
	return 0;
}

int ofs_detect_others(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	bool complete = parts->n > 0 && parts->part[0].rel[0] == '\0';
	int depth = complete                             ? 0
	    : ofs_detect_has_role(parts, OFS_ROLE_MODEL) ? DEPTH
							 : DEPTH_NO_MODEL;
	struct ofs_candidates c;
	bool *open, any = false;
	int ret = 0;

	if (ofs_candidates_find(dir, names, depth, &c, err) == -1)
		return -1;
	open = calloc(c.n + 1, sizeof(*open));
	if (open == NULL)
		ret = ofs_no_memory(err);
	for (size_t i = 0; i < c.n && ret != -1; i++) {
		if (ofs_parts_left(parts, c.v[i].path) ||
		    (!complete && ofs_parts_cover(parts, c.v[i].path)))
			continue;
		ret = leave(parts, &c.v[i], err);
		open[i] = ret == 0;
		any = any || open[i];
	}
	if (ret != -1 && any)
		ret = complete ? leave_all(&c, open, parts, err)
			       : ask(dir, &c, open, parts, err);
	else if (ret == 1)
		ret = 0;
	free(open);
	ofs_candidates_free(&c);
	return ret;
}
