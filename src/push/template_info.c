/* template_info.c - what a new checkpoint will be, in its stage */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/io.h"
#include "base/memory.h"
#include "journal/publish.h"
#include "journal/stage.h"
#include "journal/stage_path.h"
#include "push/template.h"
#include "store/http/open.h"

/* Lines of text:
 *
 *     optimfs-template 3
 *     layout dcp@16
 *     like PATH
 *     OPTION VALUE               how it was opened
 *     follow yes                 also
 *     identity HEX               of its files
 *     end */
#define HEAD "optimfs-template 3\n"
#define TMP  OFS_TEMPLATE_INFO ".tmp"

static const struct {
	const char *name;
	size_t at;
	bool path;  /* of a file or directory */
	bool mount; /* or as the mount says */
} options[] = {
	{ "type", offsetof(struct optimfs_options, type), false, false },
	{ "optim_key", offsetof(struct optimfs_options, optim_key), false,
	    false },
	{ "model_key", offsetof(struct optimfs_options, model_key), false,
	    false },
	{ "ids", offsetof(struct optimfs_options, ids), true, false },
	{ "units", offsetof(struct optimfs_options, units), true, false },
	{ "subtree", offsetof(struct optimfs_options, subtree), false, false },
	{ "join", offsetof(struct optimfs_options, join), true, false },
	{ "base", offsetof(struct optimfs_options, base), true, false },
	{ "fill", offsetof(struct optimfs_options, fill), false, true },
};
#define NOPTIONS (sizeof(options) / sizeof(*options))

static const char **option_of(struct optimfs_options *o, size_t i)
{
	return (const char **)(void *)((char *)o + options[i].at);
}

void ofs_template_fini(struct ofs_template *t)
{
	for (size_t i = 0; i < NOPTIONS; i++)
		free(t->option[i]);
	free(t->like);
	free(t->identity);
	*t = (struct ofs_template){ 0 };
}

/* A word that is not the path of a file stays as it is. */
static char *absolute(const char *value, bool path, struct optimfs_error *err)
{
	char *real = path ? realpath(value, NULL) : NULL;

	if (strchr(value, '\n') != NULL) {
		free(real);
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS833 a template cannot keep a path with a line break: "
		    "rename it");
		return NULL;
	}
	if (real == NULL)
		real = strdup(value);
	if (real == NULL)
		ofs_no_memory(err);
	return real;
}

static bool agrees(const struct ofs_template *t, size_t i, const char *given)
{
	char *value;
	bool same;

	if (given == NULL || (options[i].mount && t->option[i] == NULL))
		return true;
	if (t->option[i] == NULL)
		return false;
	value = absolute(given, options[i].path, NULL);
	same = value != NULL && strcmp(value, t->option[i]) == 0;
	free(value);
	return same;
}

int ofs_template_options(const struct ofs_template *t,
    struct optimfs_options *o, struct optimfs_error *err)
{
	for (size_t i = 0; i < NOPTIONS; i++) {
		const char **at = option_of(o, i);
		const char *was = t->option[i];

		if (!agrees(t, i, *at))
			return optimfs_fail(err, EINVAL,
			    "OFS836 %s=%.80s: optimfs mkfs was given %s%s%.80s, "
			    "which decides the names in this mount: leave "
			    "this option out, or make the template again",
			    options[i].name, *at,
			    was == NULL ? "none" : options[i].name,
			    was == NULL ? "" : "=", was == NULL ? "" : was);
		if (was != NULL)
			*at = was;
	}
	o->follow = o->follow || t->follow;
	return 0;
}

/* Equal for the same files, in whatever order they are read. Of those on a server
 * the time may be known more or less exactly. */
static char *identity_of(const struct ofs_catalog *cat, bool local,
    struct optimfs_error *err)
{
	uint64_t sum = 0;
	char *text;

	for (uint32_t i = 0; i < cat->nobjects; i++) {
		const struct ofs_object *o = &cat->objects[i];
		const uint64_t v[] = { XXH3_64bits(o->path, strlen(o->path)),
			o->size, local ? (uint64_t)o->mtime_ns : 0 };

		sum += XXH3_64bits(v, sizeof(v));
	}
	if (asprintf(&text, "%016" PRIx64, sum) != -1)
		return text;
	ofs_no_memory(err);
	return NULL;
}

int ofs_template_same(const struct ofs_template *t,
    const struct ofs_catalog *like, struct optimfs_error *err)
{
	char *now = t->identity == NULL
	    ? NULL
	    : identity_of(like, !ofs_http_is_address(t->like), err);
	bool same;

	if (now == NULL)
		return t->identity == NULL ? 0 : -1;
	same = strcmp(now, t->identity) == 0;
	free(now);
	if (same)
		return 0;
	return optimfs_fail(err, ESTALE,
	    "OFS837 its files have changed since optimfs mkfs, so that names "
	    "and values would be those of another checkpoint: put the old "
	    "files back, with their times, or make the template again");
}

int ofs_template_of(const struct optimfs *like, const char *layout,
    struct ofs_template *t, struct optimfs_error *err)
{
	struct optimfs_options o = like->options;

	if (like->now->cat->computed != NULL ||
	    (like->real == NULL && !ofs_http_is_address(like->source)))
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS833 %s is %s that a mount could read again: make it "
		    "like a checkpoint with the same names and shapes",
		    like->source,
		    like->now->cat->computed != NULL ? "computed, not a file"
			: like->options.group != NULL
			? "in the directories of several ranks, not one"
			: "no directory or file");
	t->follow = o.follow;
	strcpy(t->layout, layout); /* the view has this name */
	t->like = absolute(like->real != NULL ? like->real : like->source,
	    false, err);
	for (size_t i = 0; i < NOPTIONS && t->like != NULL; i++) {
		const char *value = *option_of(&o, i);

		if (value == NULL)
			continue;
		t->option[i] = absolute(value, options[i].path, err);
		if (t->option[i] == NULL)
			return -1;
	}
	if (t->like != NULL)
		t->identity = identity_of(like->now->cat,
		    !ofs_http_is_address(t->like), err);
	return t->identity == NULL ? -1 : 0;
}

static FILE *open_at(int dir, const char *name, int flags)
{
	int fd = ofs_stage_open_file(dir, name, flags, 0600);
	FILE *f = fd == -1
	    ? NULL
	    : fdopen(fd, (flags & O_ACCMODE) == O_RDONLY ? "r" : "w");

	if (f == NULL && fd != -1)
		close(fd);
	return f;
}

static int failed(struct optimfs_error *err)
{
	return optimfs_fail(err, errno, "OFS801 %s: %m", OFS_TEMPLATE_INFO);
}

int ofs_template_save(const struct ofs_template *t, int stage,
    struct optimfs_error *err)
{
	FILE *f = open_at(stage, TMP, O_WRONLY | O_CREAT | O_TRUNC);
	bool bad;

	if (f == NULL)
		return failed(err);
	fprintf(f, HEAD "layout %s\nlike %s\n", t->layout, t->like);
	for (size_t i = 0; i < NOPTIONS; i++)
		if (t->option[i] != NULL)
			fprintf(f, "%s %s\n", options[i].name, t->option[i]);
	if (t->follow)
		fputs("follow yes\n", f);
	fprintf(f, "identity %s\nend\n", t->identity);
	bad = fflush(f) != 0 || ferror(f) || fsync(fileno(f)) == -1;
	bad = (bad ? failed(err) : 0) == -1;
	if (fclose(f) != 0 && !bad)
		bad = failed(err) == -1;
	if (!bad && renameat(stage, TMP, stage, OFS_TEMPLATE_INFO) == -1)
		bad = failed(err) == -1;
	if (bad) {
		unlinkat(stage, TMP, 0);
		return -1;
	}
	return fsync(stage) == -1 ? failed(err) : 0;
}

static int malformed(const char *why, struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN, "OFS831 %s", why);
}

/* The value of a line that begins with name; NULL: it begins otherwise. */
static const char *value_of(const char *line, const char *name)
{
	size_t n = strlen(name);

	return strncmp(line, name, n) == 0 && line[n] == ' ' ? line + n + 1
							     : NULL;
}

static int keep(char **to, const char *value, struct optimfs_error *err)
{
	if (*to != NULL)
		return malformed("twice the same", err);
	*to = strdup(value);
	return *to == NULL ? ofs_no_memory(err) : 0;
}

/* A line without its end. Returns 1 after the last one. */
static int take_line(struct ofs_template *t, const char *line, uint64_t number,
    struct optimfs_error *err)
{
	const char *value;

	if (number == 1)
		return strcmp(line, "optimfs-template 3") == 0
		    ? 0
		    : malformed("of another version", err);
	value = value_of(line, "layout");
	if (number == 2 && value != NULL && strlen(value) < sizeof(t->layout)) {
		strcpy(t->layout, value);
		return 0;
	}
	value = value_of(line, "like");
	if (number == 3 && value != NULL)
		return keep(&t->like, value, err);
	for (size_t i = 0; i < NOPTIONS && number > 3; i++) {
		value = value_of(line, options[i].name);
		if (value != NULL)
			return keep(&t->option[i], value, err);
	}
	value = value_of(line, "identity");
	if (number > 3 && value != NULL)
		return keep(&t->identity, value, err);
	if (number > 3 && strcmp(line, "follow yes") == 0) {
		t->follow = true;
		return 0;
	}
	if (number > 3 && strcmp(line, "end") == 0)
		return 1;
	return malformed("no line of it", err);
}

int ofs_template_load(int stage, struct ofs_template *t,
    struct optimfs_error *err)
{
	FILE *f = open_at(stage, OFS_TEMPLATE_INFO, O_RDONLY);
	uint64_t number = 0;
	char *line = NULL;
	size_t cap = 0;
	int ret = 0;

	*t = (struct ofs_template){ 0 };
	if (f == NULL && errno == ENOENT)
		f = open_at(stage, OFS_TEMPLATE_DONE, O_RDONLY);
	if (f == NULL)
		return failed(err);
	while (ret == 0 && getline(&line, &cap, f) != -1) {
		line[strcspn(line, "\n")] = '\0';
		ret = take_line(t, line, ++number, err);
	}
	if (ret == 0)
		ret = malformed("it has no end", err);
	fclose(f);
	free(line);
	if (ret == 1)
		return 0;
	ofs_template_fini(t);
	if (err != NULL && err->code == EUCLEAN)
		return optimfs_fail_in(err, "%s, line %" PRIu64,
		    OFS_TEMPLATE_INFO, number);
	return -1;
}

static bool has(int stage, const char *name)
{
	return stage != -1 &&
	    faccessat(stage, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The stage beside dir, if there is one and it is ours; else -1. */
static int look(const char *dir)
{
	char *place = ofs_stage_place(dir, NULL);
	int stage = place == NULL ? -1 : ofs_stage_look(place, NULL);

	free(place);
	return stage;
}

bool ofs_template_find(const char *dir, struct ofs_template *t)
{
	int stage = look(dir);
	bool found =
	    (has(stage, OFS_TEMPLATE_INFO) || has(stage, OFS_TEMPLATE_DONE)) &&
	    ofs_dir_empty(dir) == 1;

	if (found && t != NULL)
		(void)ofs_template_load(stage, t, NULL);
	if (stage != -1)
		close(stage);
	return found;
}

bool ofs_template_done(const char *dir)
{
	int stage = look(dir);
	bool done = has(stage, OFS_TEMPLATE_DONE);

	if (stage != -1)
		close(stage);
	return done;
}
