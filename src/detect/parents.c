/* parents.c - directories that contain checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "detect/candidates.h"
#include "detect/detect.h"
#include "format/probe.h"

/* DEPTH is how far below a directory's entries the only checkpoint is looked
 * for, SHOWN_DEPTH how far those that a message names, NAME_MAX_SHOWN how many
 * it names. FILES_MAX files are examined for another program's format. */
#define DEPTH          1
#define SHOWN_DEPTH    4
#define FILES_MAX      8
#define NAME_MAX_SHOWN 8

/* The number at the end of a name; -1: none. */
static long long number_of(const char *name)
{
	size_t n = strlen(name), i = n;

	while (i > 0 && isdigit((unsigned char)name[i - 1]))
		i--;
	return i == n || n - i > 18 ? -1 : atoll(name + i);
}

/* Finding the latest checkpoint. */

/* The target of the symbolic link "latest", or the text of a file: a plain
 * name, malloc'ed in *name; NULL: neither. */
static int read_link(const struct ofs_dir *dir, char **name,
    struct optimfs_error *err)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir->fd, "latest", target, sizeof(target) - 1);

	*name = NULL;
	if (n <= 0)
		return 0;
	while (n > 1 && target[n - 1] == '/')
		n--;
	target[n] = '\0';
	*name = strdup(ofs_path_last(target));
	return *name == NULL ? ofs_no_memory(err) : 0;
}

/* Megatron and verl write only the number. */
static int step_name(const struct ofs_dir *dir, char **name,
    struct optimfs_error *err)
{
	long long step = number_of(*name);
	char verl[64], *padded;

	if (step == -1 || !isdigit((unsigned char)(*name)[0]))
		return 0;
	snprintf(verl, sizeof(verl), "global_step_%lld", step);
	padded = ofs_probe_is_dir(dir, verl) ? strdup(verl) : NULL;
	if (padded == NULL && asprintf(&padded, "iter_%07lld", step) == -1)
		return ofs_no_memory(err);
	free(*name);
	*name = padded;
	return 0;
}

static const char tracker[] = "latest_checkpointed_iteration.txt";

static int find_latest(const struct ofs_dir *dir, const struct ofs_names *names,
    char **name, struct optimfs_error *err)
{
	*name = NULL;
	if (ofs_probe_has(names, tracker))
		return ofs_probe_tracker(dir, tracker, name, err) == -1
		    ? -1
		    : step_name(dir, name, err);
	if (!ofs_probe_has(names, "latest"))
		return 0;
	if (ofs_probe_is_file(dir, "latest"))
		return ofs_probe_tracker(dir, "latest", name, err);
	return read_link(dir, name, err);
}

int ofs_detect_named(const struct ofs_dir *dir, const char *rel, char **name,
    struct optimfs_error *err)
{
	char *only = (char *)(uintptr_t)rel;
	const struct ofs_names names = { .name = &only, .n = 1 };

	return find_latest(dir, &names, name, err);
}

/* Recognising unsupported formats, for messages. */

/* Are all of them, or those of the latest one, called mp_rank_TT or
 * mp_rank_TT_PPP, as by Megatron-LM before distributed checkpoints? */
static bool is_legacy(const struct ofs_candidates *found, const char *latest)
{
	size_t n = latest == NULL ? 0 : strlen(latest), ranks = 0;

	for (size_t i = 0; i < found->n; i++) {
		const char *base = ofs_path_last(found->v[i].path);

		if (n > 0 &&
		    (strncmp(found->v[i].path, latest, n) != 0 ||
			found->v[i].path[n] != '/'))
			continue;
		if (strncmp(base, "mp_rank_", 8) != 0 ||
		    !isdigit((unsigned char)base[8]))
			return false;
		ranks++;
	}
	return ranks > 0;
}

/* Does a list have NAME.NUMBER, the part of a rank? */
static bool has_slice(const struct ofs_names *names, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < names->n; i++)
		if (strncmp(names->name[i], name, n) == 0 &&
		    isdigit((unsigned char)names->name[i][n]))
			return true;
	return false;
}

/* Is there tmp/PARAMETER/0/fp32.00, which ds_to_universal.py creates first and
 * removes at its end? 1, 0; -1: ENOMEM. */
static int is_unfinished(const struct ofs_dir *dir, struct optimfs_error *err)
{
	struct ofs_names params = { 0 }, slices = { 0 };
	int ret = ofs_probe_names(dir, "tmp", &params, err);
	char path[PATH_MAX];
	bool yes = false;

	for (size_t i = 0; i < params.n && i < FILES_MAX && !yes && ret == 1;
	     i++) {
		snprintf(path, sizeof(path), "tmp/%s/0", params.name[i]);
		ret = ofs_probe_names(dir, path, &slices, err);
		if (ret == 0) {
			ret = 1;
			continue;
		}
		yes = ret == 1 && has_slice(&slices, "fp32.");
		ofs_names_free(&slices);
	}
	ofs_names_free(&params);
	return ret == -1 ? -1 : yes;
}

/* The message. */

static void list(struct ofs_buf *b, const struct ofs_candidates *found,
    const char *latest)
{
	for (size_t i = 0; i < found->n && i < NAME_MAX_SHOWN; i++) {
		ofs_buf_puts(b, i == 0 ? " " : ", ");
		ofs_buf_puts(b, found->v[i].path);
		if (found->v[i].unfinished != NULL)
			ofs_buf_puts(b, " (not finished)");
		if (latest != NULL && strcmp(latest, found->v[i].path) == 0)
			ofs_buf_puts(b, " (latest)");
	}
	if (found->n > NAME_MAX_SHOWN)
		ofs_buf_printf(b, " and %zu more", found->n - NAME_MAX_SHOWN);
	ofs_buf_putc(b, '\0');
}

static int say_candidates(const struct ofs_dir *dir,
    const struct ofs_candidates *found, const char *latest,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	list(&b, found, latest);
	if (b.bad)
		ofs_no_memory(err);
	else if (is_legacy(found, latest))
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS641 %s: an old checkpoint of Megatron-LM by several "
		    "ranks: each file has its own pieces, and none says how "
		    "they were divided; Megatron converts it to torch_dist "
		    "(--ckpt-convert-format). To see the part of one rank, "
		    "give one of:%s",
		    dir->path, (char *)b.data);
	else if (latest != NULL && !ofs_probe_is_dir(dir, latest))
		optimfs_fail(err, EIO,
		    "OFS676 %s: latest names %s, which does not exist; "
		    "others:%s",
		    dir->path, latest,
		    found->n == 0 ? " none" : (char *)b.data);
	else
		optimfs_fail(err, ENOENT,
		    "OFS681 %s holds checkpoints, give one of:%s", dir->path,
		    (char *)b.data);
	ofs_buf_fini(&b);
	return -1;
}

/* The first file of a checkpoint, by its name, that is a symbolic link; NULL:
 * none is. */
static const char *find_link(const struct ofs_dir *dir,
    const struct ofs_names *names)
{
	struct stat st;

	for (size_t i = 0; i < names->n; i++)
		if (ofs_detect_has_extension(names->name[i]) &&
		    fstatat(dir->fd, names->name[i], &st,
			AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISLNK(st.st_mode))
			return names->name[i];
	return NULL;
}

/* Is one of the first files of another program, or a compressed checkpoint? */
static bool say_foreign(const struct ofs_dir *dir,
    const struct ofs_names *names, struct optimfs_error *err)
{
	char stem[NAME_MAX + 1], *dot;

	err = OFS_SOME_ERROR(err);
	for (size_t i = 0; i < names->n && i < FILES_MAX; i++) {
		if (!ofs_detect_foreign(dir, names->name[i], err))
			continue;
		snprintf(stem, sizeof(stem), "%s", names->name[i]);
		dot = strrchr(stem, '.');
		if (dot != NULL && err->number != 668 &&
		    !ofs_detect_has_extension(stem))
			*dot = '\0';
		if (err->number == 668 || ofs_detect_has_extension(stem) ||
		    ofs_detect_has_extension(names->name[i]))
			return true;
	}
	return ofs_detect_foreign_below(dir, names, false, err);
}

static int say_link(const struct ofs_dir *dir, const char *link,
    struct optimfs_error *err)
{
	struct ofs_dir followed = *dir;
	struct stat st;

	followed.follow = true;
	if (!dir->follow && ofs_dir_stat(&followed, link, &st))
		return optimfs_fail(err, ENOENT,
		    "OFS680 %s: %s is a symbolic link, which is only followed "
		    "with -o follow",
		    dir->path, link);
	return optimfs_fail(err, ENOENT,
	    "OFS680 %s: %s is a symbolic link that leads out of the directory, "
	    "or to nothing: give the file that it points to, or make hard "
	    "links of all files (cp -rlL %s NEW)",
	    dir->path, link, dir->path);
}

static int say_nothing(const struct ofs_dir *dir, const struct ofs_names *names,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	int unfinished = is_unfinished(dir, err);
	const char *link = find_link(dir, names);

	if (unfinished == -1)
		return -1;
	if (unfinished == 1)
		return optimfs_fail(err, ENOENT,
		    "OFS680 %s: ds_to_universal.py did not finish: there is "
		    "only its temporary directory, tmp. Run ds_to_universal.py again, or use "
		    "the checkpoint that it converts (optimfs reshard --to "
		    "universal converts it, too)",
		    dir->path);
	if (link != NULL)
		return say_link(dir, link, err);
	if (say_foreign(dir, names, err))
		return -1;
	for (size_t i = 0; i < names->n && i < NAME_MAX_SHOWN; i++) {
		ofs_buf_puts(&b, i == 0 ? ": " : ", ");
		ofs_buf_puts(&b, names->name[i]);
	}
	ofs_buf_putc(&b, '\0');
	if (b.bad)
		ofs_no_memory(err);
	else if (names->n == 0)
		optimfs_fail(err, ENOENT,
		    "OFS680 %s is empty: give the directory of the checkpoint",
		    dir->path);
	else
		optimfs_fail(err, ENOENT,
		    "OFS680 %s: not a checkpoint: no .metadata, no file of "
		    "torch.save, safetensors or NumPy; give the directory "
		    "that has them. This one has %zu name%s%s%s",
		    dir->path, names->n, names->n == 1 ? "" : "s",
		    (char *)b.data, names->n > NAME_MAX_SHOWN ? " ..." : "");
	ofs_buf_fini(&b);
	return -1;
}

/* The candidate that latest names, or the only one in it; n: none. */
static size_t find_candidate(const struct ofs_candidates *found,
    const char *latest)
{
	size_t len = strlen(latest), only = found->n;

	for (size_t i = 0; i < found->n; i++) {
		if (strncmp(found->v[i].path, latest, len) != 0)
			continue;
		if (found->v[i].path[len] == '\0')
			return i;
		if (found->v[i].path[len] != '/')
			continue;
		if (only != found->n)
			return found->n;
		only = i;
	}
	return only;
}

/* The only candidate that is finished, or the only one; n: there are others. */
static size_t find_only(const struct ofs_candidates *found)
{
	size_t only = found->n;

	for (size_t i = 0; i < found->n; i++) {
		if (found->v[i].unfinished != NULL && found->n > 1)
			continue;
		if (only != found->n)
			return found->n;
		only = i;
	}
	return only;
}

/* The candidate to use without asking: the only one, unless another is named as
 * latest; or the one that Megatron itself would load. */
static size_t choose(const struct ofs_names *names,
    const struct ofs_candidates *found, const char *latest, bool *chosen)
{
	size_t only = find_only(found);

	*chosen = latest != NULL && ofs_probe_has(names, tracker);
	return latest != NULL && (only < found->n || *chosen)
	    ? find_candidate(found, latest)
	    : only;
}

/* Finds the candidates in dir, instead of those found before. */
static int find_again(const struct ofs_dir *dir, const struct ofs_names *names,
    int depth, struct ofs_candidates *found, struct optimfs_error *err)
{
	ofs_candidates_free(found);
	return ofs_candidates_find(dir, names, depth, found, err);
}

int ofs_detect_parent(const struct ofs_dir *dir, const struct ofs_names *names,
    char **only, bool *chosen, struct optimfs_error *err)
{
	struct ofs_candidates found = { 0 };
	char *latest = NULL;
	size_t i;
	int ret = -1;

	if (ofs_detect_foreign_dir(dir, names, false, err) ||
	    find_latest(dir, names, &latest, err) == -1 ||
	    find_again(dir, names, DEPTH, &found, err) == -1)
		goto out;
	i = choose(names, &found, latest, chosen);
	if (i < found.n) {
		*only = found.v[i].path;
		found.v[i].path = NULL;
		ret = 0;
	} else if (find_again(dir, names, SHOWN_DEPTH, &found, err) == -1) {
		goto out;
	} else if (ofs_detect_foreign_below(dir, names, true, err)) {
		goto out;
	} else if (found.n > 0 || latest != NULL) {
		say_candidates(dir, &found, latest, err);
	} else {
		say_nothing(dir, names, err);
	}
out:
	ofs_candidates_free(&found);
	free(latest);
	return ret;
}

/* The warning. */

/* Drops the candidates that the parts are of. */
static void drop_shown(struct ofs_candidates *c, const struct ofs_parts *parts)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++)
		if (ofs_parts_cover(parts, c->v[i].path))
			free(c->v[i].path);
		else
			c->v[n++] = c->v[i];
	c->n = n;
}

int ofs_detect_say_chosen(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err)
{
	struct ofs_candidates others;
	struct ofs_buf b = { 0 };
	int ret = 0;

	if (ofs_candidates_find(dir, names, DEPTH, &others, err) == -1)
		return -1;
	drop_shown(&others, parts);
	list(&b, &others, NULL);
	if (b.bad)
		ret = ofs_no_memory(err);
	else if (others.n > 0)
		ret = ofs_parts_note(parts, err,
		    "OFS669 this is %.200s, the latest of %zu checkpoints; "
		    "others:%s (give their paths, or -o run=yes)",
		    parts->part[0].rel, others.n + 1, (char *)b.data);
	ofs_buf_fini(&b);
	ofs_candidates_free(&others);
	return ret;
}
