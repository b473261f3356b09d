/* template_info.c - the description of a template, in its stage */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "journal/stage.h"
#include "journal/stage_path.h"
#include "push/template.h"

/* Lines of text:
 *
 *     optimfs-template 2
 *     layout dcp@16
 *     given PATH                 a file of the tree that the layout fills in
 *     derived PATH               a file derived from its parameter in model/
 *     own HASH PATH              a text of the layout; HASH is of the source's
 *     end */
#define HEAD "optimfs-template 2\n"
#define TMP  OFS_TEMPLATE_INFO ".tmp"

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

static void put_own(FILE *f, const struct ofs_template_own *own)
{
	if (own->provided || own->derived)
		fprintf(f, "%s %s\n", own->provided ? "given" : "derived",
		    own->path);
	else
		fprintf(f, "own %016" PRIx64 " %s\n", own->hash, own->path);
}

int ofs_template_save(const struct ofs_template *s, int stage,
    struct optimfs_error *err)
{
	FILE *f = open_at(stage, TMP, O_WRONLY | O_CREAT | O_TRUNC);
	bool bad;

	if (f == NULL)
		return failed(err);
	fprintf(f, HEAD "layout %s\n", s->layout);
	for (uint32_t i = 0; i < s->nown; i++)
		put_own(f, &s->own[i]);
	fputs("end\n", f);
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

static int add_own(struct ofs_template *s, const char *line,
    struct optimfs_error *err)
{
	struct ofs_template_own v = { .provided = line[0] == 'g',
		.derived = line[0] == 'd' };
	int at = 0;

	if (v.provided || v.derived)
		at = (int)strcspn(line, " ") + 1;
	else if (sscanf(line, "own %16" SCNx64 " %n", &v.hash, &at) != 1 ||
	    at == 0)
		return malformed("no name", err);
	if (ofs_grow(s->own, s->nown, s->own_cap, err) == -1)
		return -1;
	v.path = strndup(line + at, strcspn(line + at, "\n"));
	if (v.path == NULL)
		return ofs_no_memory(err);
	s->own[s->nown++] = v;
	return 0;
}

/* Returns 1 after the last line. */
static int take_line(struct ofs_template *s, const char *line, uint64_t number,
    struct optimfs_error *err)
{
	if (number == 1 && strcmp(line, HEAD) == 0)
		return 0;
	if (number == 2 && strncmp(line, "layout ", 7) == 0 &&
	    strlen(line + 7) < sizeof(s->layout)) {
		strcpy(s->layout, line + 7);
		s->layout[strcspn(s->layout, "\n")] = '\0';
		return 0;
	}
	if (number > 2 &&
	    (strncmp(line, "given ", 6) == 0 ||
		strncmp(line, "derived ", 8) == 0 ||
		strncmp(line, "own ", 4) == 0))
		return add_own(s, line, err);
	if (number > 2 && strcmp(line, "end\n") == 0)
		return 1;
	return malformed("no line of it", err);
}

int ofs_template_load(int stage, struct ofs_template *s,
    struct optimfs_error *err)
{
	FILE *f = open_at(stage, OFS_TEMPLATE_INFO, O_RDONLY);
	uint64_t number = 0;
	char *line = NULL;
	size_t cap = 0;
	int ret = 0;

	*s = (struct ofs_template){ 0 };
	if (f == NULL)
		return failed(err);
	while (ret == 0 && getline(&line, &cap, f) != -1)
		ret = take_line(s, line, ++number, err);
	if (ret == 0)
		ret = malformed("it has no end", err);
	fclose(f);
	free(line);
	if (ret == 1)
		return 0;
	ofs_template_fini(s);
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

/* A stage that is not ours has no template for us. */
static int look(const char *dir, char **place)
{
	*place = ofs_stage_place(dir, NULL);
	return *place == NULL ? -1 : ofs_stage_look(*place, NULL);
}

int ofs_template_find(const char *dir, char **path, struct optimfs_error *err)
{
	char *place;
	int stage = look(dir, &place), ret = 0;

	*path = NULL;
	if ((has(stage, OFS_TEMPLATE_INFO) || has(stage, OFS_TEMPLATE_DONE)) &&
	    ofs_dir_empty(dir) == 1)
		ret =
		    asprintf(path, "%s/%s", place, OFS_TEMPLATE) == -1 ? -1 : 1;
	if (stage != -1)
		close(stage);
	free(place);
	if (ret != -1)
		return ret;
	*path = NULL;
	return ofs_no_memory(err);
}

bool ofs_template_done(const char *dir)
{
	char *place;
	int stage = look(dir, &place);
	bool done = has(stage, OFS_TEMPLATE_DONE);

	if (stage != -1)
		close(stage);
	free(place);
	return done;
}
