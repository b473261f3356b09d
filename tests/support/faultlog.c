/* faultlog.c - system calls of a victim, checked for a safe order */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "faultlog.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tap.h"

#define LINE 16384

/* The last two components of a path, with # for numbers. */
static void shorten(const char *path, char *out, size_t size)
{
	const char *from = path + strlen(path);
	size_t n = 0;

	for (int i = 0; i < 2 && from > path; i++)
		for (from--; from > path && *from != '/'; from--)
			;
	while (*from != '\0' && *from != '\n' && n + 1 < size) {
		bool digit = isdigit((unsigned char)*from);

		out[n++] = digit ? '#' : *from;
		do
			from++;
		while (digit && isdigit((unsigned char)*from));
	}
	out[n] = '\0';
}

static void add_call(struct fault_calls *calls, const char *line)
{
	struct fault_call c;
	int n = 0;

	if (sscanf(line, "%ld\t%c\t%23s\t%n", &c.at, &c.class, c.name, &n) != 3)
		return;
	shorten(line + n, c.object, sizeof(c.object));
	if (calls->n == calls->cap) {
		calls->cap = calls->cap == 0 ? 1024 : calls->cap * 2;
		calls->v =
		    reallocarray(calls->v, calls->cap, sizeof(*calls->v));
		if (calls->v == NULL)
			bail_out("memory");
	}
	calls->v[calls->n++] = c;
}

static FILE *open_trace(const char *path)
{
	FILE *f = fopen(path, "r");

	if (f == NULL)
		bail_out("%s: %s", path, strerror(errno));
	return f;
}

void faultlog_read(const char *trace, struct fault_calls *calls)
{
	char line[LINE];
	FILE *f = open_trace(trace);

	*calls = (struct fault_calls){ 0 };
	while (fgets(line, sizeof(line), f) != NULL)
		add_call(calls, line);
	fclose(f);
}

/* The file system after the calls of the trace so far. */
struct entry {
	unsigned long dir, ino;
	char name[256];
	bool stage; /* in the stage, not the checkpoint */
};

struct inode {
	unsigned long ino;
	bool dirty; /* has bytes or names that are not synced */
};

struct faultlog {
	struct entry entry[4096];
	struct inode inode[4096];
	size_t n, ninodes;
	unsigned long top;
	bool published; /* published by a rename that is not durable yet */
	unsigned renames, wrong;
	char line[LINE]; /* the current line */
};

static bool require(struct faultlog *m, bool so, const char *what)
{
	if (so)
		return true;
	m->wrong++;
	diag("order: %s: %.*s", what, (int)strcspn(m->line, "\n"), m->line);
	return false;
}

static struct inode *inode(struct faultlog *m, unsigned long ino)
{
	for (size_t i = 0; i < m->ninodes; i++)
		if (m->inode[i].ino == ino)
			return &m->inode[i];
	if (m->ninodes == sizeof(m->inode) / sizeof(*m->inode))
		bail_out("the trace has too many files");
	m->inode[m->ninodes] = (struct inode){ .ino = ino };
	return &m->inode[m->ninodes++];
}

static struct entry *find(struct faultlog *m, unsigned long dir,
    const char *name)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->entry[i].dir == dir &&
		    strcmp(m->entry[i].name, name) == 0)
			return &m->entry[i];
	return NULL;
}

/* Is this .NAME.optimfs, or in it? */
static bool is_stage(const struct faultlog *m, unsigned long dir,
    const char *name)
{
	size_t n = strlen(name);

	if (name[0] == '.' && n > 8 && strcmp(name + n - 8, ".optimfs") == 0)
		return true;
	for (size_t i = 0; i < m->n; i++)
		if (m->entry[i].ino == dir && m->entry[i].stage)
			return true;
	return false;
}

static void enter(struct faultlog *m, unsigned long dir, const char *name,
    unsigned long ino)
{
	struct entry *e = find(m, dir, name);

	if (e == NULL && m->n == sizeof(m->entry) / sizeof(*m->entry))
		bail_out("the trace has too many names");
	e = e == NULL ? &m->entry[m->n++] : e;
	*e = (struct entry){
		.dir = dir, .ino = ino, .stage = is_stage(m, dir, name)
	};
	snprintf(e->name, sizeof(e->name), "%s", name);
}

static void leave(struct faultlog *m, struct entry *e)
{
	*e = m->entry[--m->n];
}

/* Does the inode have a name in the checkpoint? */
static bool is_public(const struct faultlog *m, unsigned long ino)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->entry[i].ino == ino && !m->entry[i].stage)
			return true;
	return false;
}

/* Is all of it, and everything below it, synced? */
static bool is_safe(struct faultlog *m, unsigned long ino)
{
	unsigned long stack[256] = { ino };

	for (size_t n = 1; n > 0;) {
		unsigned long at = stack[--n];

		if (inode(m, at)->dirty)
			return false;
		for (size_t i = 0; i < m->n; i++)
			if (m->entry[i].dir == at && n < 256)
				stack[n++] = m->entry[i].ino;
	}
	return true;
}

/* Is everything in the checkpoint, or in the stage, synced, and the directory
 * that contains both? */
static bool side_is_safe(struct faultlog *m, bool stage)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->entry[i].stage == stage &&
		    inode(m, m->entry[i].ino)->dirty)
			return false;
	return !inode(m, m->top)->dirty;
}

/* Recomputes stage for all entries: a rename moves a whole subtree. */
static void update_sides(struct faultlog *m)
{
	bool changed = true;

	for (size_t i = 0; i < m->n; i++)
		m->entry[i].stage = false;
	while (changed) {
		changed = false;
		for (size_t i = 0; i < m->n; i++)
			if (!m->entry[i].stage &&
			    is_stage(m, m->entry[i].dir, m->entry[i].name))
				changed = m->entry[i].stage = true;
	}
}

static void load(struct faultlog *m, const char *dir, unsigned long up)
{
	char path[4096];
	struct dirent *e;
	struct stat st;
	DIR *d = opendir(dir);

	if (d == NULL)
		bail_out("%s: %s", dir, strerror(errno));
	while ((e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (lstat(path, &st) == -1)
			bail_out("%s: %s", path, strerror(errno));
		enter(m, up, e->d_name, (unsigned long)st.st_ino);
		if (S_ISDIR(st.st_mode))
			load(m, path, (unsigned long)st.st_ino);
	}
	closedir(d);
}

static bool has_name(const struct faultlog *m, unsigned long ino)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->entry[i].ino == ino)
			return true;
	return false;
}

static void on_create(struct faultlog *m, const char *rest)
{
	unsigned long dir, ino;
	char name[256];

	if (sscanf(rest, "%lu\t%lu\t%255[^\n]", &dir, &ino, name) != 3)
		return;
	if (!has_name(m, ino)) /* inode numbers are reused */
		inode(m, ino)->dirty = false;
	enter(m, dir, name, ino);
	inode(m, dir)->dirty = true;
}

static void on_write(struct faultlog *m, const char *rest, bool empty)
{
	unsigned long ino = strtoul(rest, NULL, 10);

	require(m, !is_public(m, ino), "a file of the checkpoint is written");
	require(m, !empty || !m->published,
	    "a file is emptied before the publishing rename is durable");
	inode(m, ino)->dirty = true;
}

static void on_fsync(struct faultlog *m, const char *rest)
{
	unsigned long ino = strtoul(rest, NULL, 10);

	inode(m, ino)->dirty = false;
	if (m->published && side_is_safe(m, false))
		m->published = false;
}

static void on_unlink(struct faultlog *m, const char *rest)
{
	unsigned long dir;
	struct entry *e;
	char name[256];

	if (sscanf(rest, "%lu\t%255[^\n]", &dir, name) != 2)
		return;
	e = find(m, dir, name);
	require(m, !m->published || strcmp(name, "lock") == 0,
	    "a file is removed before the publishing rename is durable");
	/* the removal of the stage need not be durable */
	if (e == NULL || dir != m->top || !e->stage)
		inode(m, dir)->dirty = true;
	if (e != NULL)
		leave(m, e);
}

/* Checks a rename from the stage into the checkpoint. */
static void check_publish(struct faultlog *m, const struct entry *from,
    bool replaces, bool is_dir)
{
	struct entry *record;

	require(m, is_safe(m, from->ino),
	    "a file is published before it is durable");
	if (!replaces && !is_dir)
		return;
	require(m, side_is_safe(m, false),
	    "a rename publishes before the names it needs are durable");
	for (size_t i = 0; i < m->n; i++) {
		record = &m->entry[i];
		if (strcmp(record->name, "publish") == 0 && record->stage)
			require(m,
			    !inode(m, record->ino)->dirty &&
				!inode(m, record->dir)->dirty,
			    "a rename publishes before its record is durable");
	}
	m->renames++;
	m->published = true;
}

static bool has_children(const struct faultlog *m, unsigned long ino)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->entry[i].dir == ino)
			return true;
	return false;
}

static void on_rename(struct faultlog *m, const char *rest)
{
	unsigned long from, to;
	char a[256], b[256];
	struct entry *x, *y, old;
	unsigned flags;

	if (sscanf(rest, "%lu\t%lu\t%u\t%255[^\t]\t%255[^\n]", &from, &to,
		&flags, a, b) != 5)
		return;
	x = find(m, from, a);
	y = find(m, to, b);
	if (!require(m, x != NULL, "a file is renamed from an unknown name"))
		return;
	if (x->stage && !is_stage(m, to, b))
		check_publish(m, x, y != NULL, has_children(m, x->ino));
	old = *x;
	if ((flags & 2) != 0 && y != NULL) {
		x->ino = y->ino;
		y->ino = old.ino;
	} else {
		leave(m, x);
		enter(m, to, b, old.ino);
	}
	update_sides(m);
	inode(m, from)->dirty = true;
	inode(m, to)->dirty = true;
}

static void on_mark(struct faultlog *m, const char *mark)
{
	if (strncmp(mark, "staged", 6) == 0)
		require(m, side_is_safe(m, true),
		    "staged changes are not durable");
	if (strncmp(mark, "done", 4) == 0)
		require(m, !m->published && side_is_safe(m, false),
		    "the published checkpoint is not durable");
}

static void look(struct faultlog *m)
{
	static const struct {
		const char *what;
		void (*on)(struct faultlog *m, const char *rest);
	} events[] = {
		{ "create\t", on_create },
		{ "fsync\t", on_fsync },
		{ "unlink\t", on_unlink },
		{ "rename\t", on_rename },
		{ "mark\t", on_mark },
	};
	const char *line = m->line + 2;

	if (strncmp(m->line, "=\t", 2) != 0)
		return;
	if (strncmp(line, "write\t", 6) == 0 ||
	    strncmp(line, "empty\t", 6) == 0)
		on_write(m, line + 6, line[0] == 'e');
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		size_t n = strlen(events[i].what);

		if (strncmp(line, events[i].what, n) == 0)
			events[i].on(m, line + n);
	}
}

/* Records the names below dir, before the first call. */
struct faultlog *faultlog_begin(const char *dir)
{
	struct faultlog *m = calloc(1, sizeof(*m));
	struct stat st;

	if (m == NULL || stat(dir, &st) == -1)
		bail_out("%s: %s", dir, strerror(errno));
	m->top = (unsigned long)st.st_ino;
	load(m, dir, m->top);
	update_sides(m);
	return m;
}

unsigned faultlog_end(struct faultlog *m, const char *trace, unsigned *renames)
{
	FILE *f = open_trace(trace);
	unsigned wrong;

	while (fgets(m->line, sizeof(m->line), f) != NULL)
		look(m);
	fclose(f);
	*renames = m->renames;
	wrong = m->wrong;
	free(m);
	return wrong;
}
