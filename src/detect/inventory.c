/* inventory.c - what a directory holds besides the files that were read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/inventory.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/keys.h"
#include "base/memory.h"
#include "base/str.h"
#include "detect/candidates.h"
#include "detect/detect.h"
#include "detect/registry.h"
#include "format/probe.h"

/* The files of a checkpoint are those that its catalog refers to, and the ones
 * that say how to read them: an index, the name of the latest checkpoint, the
 * number of ranks. Everything else gets a line. A directory that holds none of
 * the checkpoint's files is one line, whatever is in it: the directories of a
 * long run would fill the screen otherwise. */

#define DEPTH 1 /* of the search for checkpoints in an unknown directory */

/* Names that say what a file is, without reading it. A pattern is that of
 * fnmatch(3), and one with "/" at its end is of directories. The first row that
 * matches counts. */
#define PART      (-1) /* it tells how to read the others */
#define TEMPORARY "its name is that of a temporary file"
#define RSYNC     "a copy by rsync"
static const struct row {
	const char *pattern;
	int kind; /* enum ofs_left_kind, or PART */
	const char *why;
} rows[] = {
	{ "metadata.json", PART, NULL },
	{ "fsdp_config.json", PART, NULL },
	{ "ckpt_contents.json", PART, NULL },
	{ "latest", PART, NULL },
	{ "latest_universal", PART, NULL },
	{ "latest_checkpointed_iteration.txt", PART, NULL },
	{ ".azDownload-*", OFS_LEFT_UNFINISHED, "a download by azcopy" },
	{ "*_.gstmp", OFS_LEFT_UNFINISHED, "a download by gcloud" },
	{ "*.partial", OFS_LEFT_UNFINISHED, "a part of a download" },
	{ "*.part", OFS_LEFT_UNFINISHED, "a part of a download" },
	{ "*.incomplete", OFS_LEFT_UNFINISHED, "a part of a download" },
	{ "*.aria2", OFS_LEFT_UNFINISHED, "a part of a download" },
	{ "*.crdownload", OFS_LEFT_UNFINISHED, "a part of a download" },
	{ "*-TEMPORARY", OFS_LEFT_UNFINISHED, TEMPORARY },
	{ "*.tmp", OFS_LEFT_UNFINISHED, TEMPORARY },
	{ "*.tmp.*", OFS_LEFT_UNFINISHED, TEMPORARY },
	{ ".tmp*", OFS_LEFT_UNFINISHED, TEMPORARY },
	{ "tmp_*", OFS_LEFT_UNFINISHED, TEMPORARY },
	{ "tmp-*", OFS_LEFT_UNFINISHED, TEMPORARY },
	{ ".~tmp~/", OFS_LEFT_UNFINISHED, RSYNC },
	{ ".rsync-partial/", OFS_LEFT_UNFINISHED, RSYNC },
	{ "*-unfinished", OFS_LEFT_UNREAD, "of a save that has not finished" },
	{ "._*", OFS_LEFT_FOREIGN, "of macOS" },
	{ ".DS_Store", OFS_LEFT_FOREIGN, "of macOS" },
	{ ".nfs*", OFS_LEFT_FOREIGN, "of NFS: a removed file that is open" },
	{ "Thumbs.db", OFS_LEFT_FOREIGN, "of Windows" },
	{ "desktop.ini", OFS_LEFT_FOREIGN, "of Windows" },
	{ "*tfevents*", OFS_LEFT_FOREIGN, "of TensorBoard" },
	{ "*.lock", OFS_LEFT_FOREIGN, "a lock" },
	{ "*~", OFS_LEFT_FOREIGN, "of an editor" },
	{ ".*.sw?", OFS_LEFT_FOREIGN, "of an editor" },
	{ ".git*", OFS_LEFT_FOREIGN, "of Git" },
	{ ".git/", OFS_LEFT_FOREIGN, "of Git" },
	{ ".cache/", OFS_LEFT_FOREIGN, "of a download" },
	{ "wandb/", OFS_LEFT_FOREIGN, "of Weights & Biases" },
	{ "__pycache__/", OFS_LEFT_FOREIGN, "of Python" },
	{ "*.log", OFS_LEFT_FOREIGN, "a log" },
	{ "*.out", OFS_LEFT_FOREIGN, "a log" },
	{ "*.err", OFS_LEFT_FOREIGN, "a log" },
	{ "*.md", OFS_LEFT_UNREAD, "text" },
	{ "*.txt", OFS_LEFT_UNREAD, "text" },
	{ "LICENSE*", OFS_LEFT_UNREAD, "text" },
	{ "*.py", OFS_LEFT_UNREAD, "a program" },
	{ "*.sh", OFS_LEFT_UNREAD, "a program" },
	{ "*.json", OFS_LEFT_UNREAD, "settings" },
	{ "*.jsonl", OFS_LEFT_UNREAD, "settings" },
	{ "*.yaml", OFS_LEFT_UNREAD, "settings" },
	{ "*.yml", OFS_LEFT_UNREAD, "settings" },
	{ "*.toml", OFS_LEFT_UNREAD, "settings" },
	{ "*.jinja", OFS_LEFT_UNREAD, "settings" },
	{ "tokenizer*", OFS_LEFT_UNREAD, "the tokenizer" },
};

/* Names of directories that a save renames at its end. */
static const char *const temporary[] = { "tmp-*", "tmp_*", "*.tmp", "*-tmp",
	"*_tmp", ".tmp*", "*.tmp-*", "*.incomplete", "*.partial", ".*.optimfs",
	NULL };

static const char *const kinds[] = {
	[OFS_LEFT_FOREIGN] = "foreign",
	[OFS_LEFT_UNREAD] = "not read",
	[OFS_LEFT_COPY] = "copy",
	[OFS_LEFT_CHECKPOINT] = "checkpoint",
	[OFS_LEFT_OLDER] = "older job",
	[OFS_LEFT_UNFINISHED] = "unfinished",
};

const char *ofs_left_kind_name(enum ofs_left_kind kind)
{
	return kinds[kind];
}

/* rsync writes to ".NAME.XXXXXX": six random letters and digits. AppleDouble
 * files, "._NAME", may end in a word of six small letters. */
static bool is_of_rsync(const char *name)
{
	static const char alphabet[] =
	    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	const char *end = strrchr(name, '.');

	return name[0] == '.' && end > name + 1 && strlen(end) == 7 &&
	    strspn(end + 1, alphabet) == 6 &&
	    strcspn(end + 1, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") < 6;
}

static const struct row *row_of(const char *name, bool is_dir)
{
	static const struct row rsync = { "", OFS_LEFT_UNFINISHED, RSYNC };
	char pattern[64];

	if (!is_dir && is_of_rsync(name))
		return &rsync;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t n = strlen(rows[i].pattern);
		bool dir = rows[i].pattern[n - 1] == '/';

		snprintf(pattern, sizeof(pattern), "%.*s", (int)(n - dir),
		    rows[i].pattern);
		if (dir == is_dir && fnmatch(pattern, name, 0) == 0)
			return &rows[i];
	}
	return NULL;
}

/* NeMo 1 and 2 (UNFINISHED_CHECKPOINT_SUFFIX of nemo/lightning/pytorch/callbacks/
 * model_checkpoint.py); the name of a file is without .ckpt and -EMA. */
bool ofs_is_marked(const struct ofs_dir *dir, const char *name)
{
	static const char *const ends[] = { ".ckpt", "-EMA" };
	struct ofs_str stem = ofs_str_of(name);
	char marker[NAME_MAX + 1];

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (ofs_str_ends(stem, ends[i]))
			stem.len -= (uint32_t)strlen(ends[i]);
	return snprintf(marker, sizeof(marker), "%.*s-unfinished",
		   OFS_STR_ARGS(stem, NAME_MAX)) < (int)sizeof(marker) &&
	    ofs_probe_is_file(dir, marker);
}

const char *ofs_unfinished_file(const char *name)
{
	const struct row *row = row_of(ofs_path_last(name), false);

	return row != NULL && row->kind == OFS_LEFT_UNFINISHED ? row->why
							       : NULL;
}

const char *ofs_foreign_dir(const char *name)
{
	const struct row *row = row_of(name, true);

	return row != NULL && row->kind == OFS_LEFT_FOREIGN ? row->why : NULL;
}

const char *ofs_unfinished(const char *name, const struct ofs_names *names)
{
	bool shards = false, index = false;

	for (size_t i = 0; temporary[i] != NULL; i++)
		if (fnmatch(temporary[i], name, 0) == 0)
			return "its name is that of a temporary directory";
	for (size_t i = 0; i < names->n; i++) {
		shards = shards || ofs_format_is_shard(names->name[i]);
		index = index || ofs_format_is_index(names->name[i]);
	}
	return shards && !index ? "it has data files, but no index yet" : NULL;
}

/* What is left. */

struct walk {
	const struct ofs_catalog *cat;
	struct ofs_inventory *out;
	struct ofs_keys dirs; /* that hold files of the checkpoint */
};

static int add_item(struct walk *w, const char *path, bool is_dir,
    enum ofs_left_kind kind, const char *why, struct optimfs_error *err)
{
	struct ofs_inventory *inv = w->out;
	struct ofs_inventory_item *item;

	if (ofs_grow(inv->item, inv->n, inv->cap, err) == -1)
		return -1;
	item = &inv->item[inv->n];
	item->kind = kind;
	item->why = strdup(why);
	if (asprintf(&item->path, "%s%s", path, is_dir ? "/" : "") == -1)
		item->path = NULL;
	if (item->path == NULL || item->why == NULL) {
		free(item->path);
		free(item->why);
		return ofs_no_memory(err);
	}
	inv->n++;
	return 0;
}

/* Adds all directories above path. */
static int add_dirs(struct walk *w, const char *path, struct optimfs_error *err)
{
	for (size_t i = 0; path[i] != '\0'; i++)
		if (path[i] == '/' &&
		    ofs_keys_add(&w->dirs, (struct ofs_str){ path, i }, err) ==
			OFS_NONE)
			return -1;
	return 0;
}

static int collect_dirs(struct walk *w, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < w->cat->nobjects; i++)
		if (add_dirs(w, w->cat->objects[i].path, err) == -1)
			return -1;
	for (uint32_t i = 0; i < w->cat->nlefts; i++)
		if (add_dirs(w, w->cat->lefts[i].path, err) == -1)
			return -1;
	return 0;
}

static const struct ofs_left *chosen(const struct ofs_catalog *cat,
    const char *path)
{
	for (uint32_t i = 0; i < cat->nlefts; i++)
		if (strcmp(cat->lefts[i].path, path) == 0)
			return &cat->lefts[i];
	return NULL;
}

/* A directory without a file of the checkpoint. */
static int judge_dir(struct walk *w, const char *path,
    struct optimfs_error *err)
{
	const char *name = ofs_path_last(path), *why;
	const struct row *row = row_of(name, true);
	struct ofs_candidates below = { 0 };
	struct ofs_names names;
	struct ofs_dir sub;
	struct optimfs_error failed = { 0 };
	int ret = ofs_probe_open(&w->cat->dir, path, &sub, &names, &failed);

	if (failed.code == ENOMEM)
		return optimfs_fail_with(err, &failed);
	if (ret != 1)
		return add_item(w, path, true, OFS_LEFT_UNREAD,
		    "a directory that cannot be listed", err);
	why = ofs_unfinished(name, &names);
	if (row != NULL) {
		ret = add_item(w, path, true, (enum ofs_left_kind)row->kind,
		    row->why, err);
	} else if (why != NULL) {
		ret = add_item(w, path, true, OFS_LEFT_UNFINISHED, why, err);
	} else {
		ret = ofs_detect_is_checkpoint(&sub, &names, err);
		if (ret == 0)
			ret = ofs_candidates_find(&sub, &names, DEPTH, &below,
			    err);
		if (ret != -1)
			ret = ret == 1 || below.n > 0
			    ? add_item(w, path, true, OFS_LEFT_CHECKPOINT,
				  ret == 1 ? "a checkpoint of its own"
					   : "it holds checkpoints",
				  err)
			    : add_item(w, path, true, OFS_LEFT_UNREAD,
				  "no checkpoint", err);
	}
	ofs_candidates_free(&below);
	ofs_names_free(&names);
	ofs_dir_close(&sub);
	return ret;
}

/* A file with an unknown name. */
static int judge_contents(struct walk *w, const char *path,
    const struct stat *st, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	const struct ofs_format *f;
	char text[96];

	if (S_ISLNK(st->st_mode))
		return add_item(w, path, false, OFS_LEFT_UNREAD,
		    "a symbolic link", err);
	if (!S_ISREG(st->st_mode))
		return add_item(w, path, false, OFS_LEFT_FOREIGN,
		    "not a regular file", err);
	if (st->st_size == 0)
		return add_item(w, path, false, OFS_LEFT_UNREAD, "empty", err);
	if (ofs_detect_foreign(&w->cat->dir, path, &why))
		return add_item(w, path, false, OFS_LEFT_FOREIGN,
		    ofs_detect_foreign_words(&why), err);
	f = ofs_detect_file(&w->cat->dir, path, &why);
	if (f == NULL)
		return add_item(w, path, false, OFS_LEFT_UNREAD,
		    "of no known format", err);
	snprintf(text, sizeof(text), "a file of format %s: give its path",
	    f->name);
	return add_item(w, path, false, OFS_LEFT_UNREAD, text, err);
}

static int judge_file(struct walk *w, const char *path, const struct stat *st,
    struct optimfs_error *err)
{
	const char *name = ofs_path_last(path);
	const struct row *row = row_of(name, false);

	if (ofs_format_is_index(name) || (row != NULL && row->kind == PART))
		return 0;
	return row != NULL ? add_item(w, path, false,
				 (enum ofs_left_kind)row->kind, row->why, err)
			   : judge_contents(w, path, st, err);
}

static int walk_dir(struct walk *w, const char *rel, struct optimfs_error *err);

static int walk_name(struct walk *w, const char *path,
    struct optimfs_error *err)
{
	const struct ofs_left *left = chosen(w->cat, path);
	struct stat st;
	bool is_dir;

	if (ofs_catalog_find_object(w->cat, path) != OFS_NONE)
		return 0;
	if (!ofs_dir_stat(&w->cat->dir, path, &st))
		return add_item(w, path, false, OFS_LEFT_UNREAD,
		    "a symbolic link", err);
	is_dir = S_ISDIR(st.st_mode);
	if (left != NULL)
		return add_item(w, path, is_dir, left->kind, left->why, err);
	if (!is_dir)
		return judge_file(w, path, &st, err);
	return ofs_keys_has(&w->dirs, ofs_str_of(path))
	    ? walk_dir(w, path, err)
	    : judge_dir(w, path, err);
}

static int walk_dir(struct walk *w, const char *rel, struct optimfs_error *err)
{
	struct ofs_names names = { 0 };
	struct ofs_dir sub;
	int ret = 0;

	if (rel[0] == '\0') {
		if (ofs_dir_list_all(&w->cat->dir, &names, err) == -1)
			return -1;
	} else {
		if (ofs_dir_open_sub(&w->cat->dir, rel, &sub, err) == -1)
			return -1;
		ret = ofs_dir_list_all(&sub, &names, err);
		ofs_dir_close(&sub);
	}
	for (size_t i = 0; i < names.n && ret == 0; i++) {
		char *path = ofs_path_join(rel, names.name[i]);

		ret =
		    path == NULL ? ofs_no_memory(err) : walk_name(w, path, err);
		free(path);
	}
	ofs_names_free(&names);
	return ret;
}

int ofs_inventory_left(const struct ofs_catalog *cat, struct ofs_inventory *out,
    struct optimfs_error *err)
{
	struct walk w = { .cat = cat, .out = out };
	int ret = 0;

	*out = (struct ofs_inventory){ 0 };
	if (collect_dirs(&w, err) == -1)
		ret = -1;
	else if (cat->joined[0] == NULL && !cat->lone)
		ret = walk_dir(&w, "", err);
	for (size_t i = 0; i < 2 && ret == 0; i++)
		if (cat->joined[i] != NULL && cat->joined[i][0] != '\0' &&
		    ofs_probe_is_dir(&cat->dir, cat->joined[i]))
			ret = walk_dir(&w, cat->joined[i], err);
	ofs_keys_fini(&w.dirs);
	if (ret == -1)
		ofs_inventory_free(out);
	return ret;
}

void ofs_inventory_free(struct ofs_inventory *inv)
{
	for (size_t i = 0; i < inv->n; i++) {
		free(inv->item[i].path);
		free(inv->item[i].why);
	}
	free(inv->item);
	*inv = (struct ofs_inventory){ 0 };
}
