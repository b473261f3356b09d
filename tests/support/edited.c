/* edited.c - edits of a checkpoint, and a check that it has exactly them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/edited.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/sys.h"
#include "fs/commit.h"
#include "plan/cast.h"
#include "support/listing.h"
#include "support/staged.h"
#include "support/truth.h"
#include "tap.h"

static void run(const char *fmt, const char *a, const char *b)
{
	char command[1024];

	snprintf(command, sizeof(command), "%s '%s' '%s'", fmt, a, b);
	if (system(command) != 0)
		bail_out("%s", command);
}

static struct optimfs *open_was(struct edited *e, const char *path)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs = optimfs_open(path, &e->options, &err);

	if (fs == NULL)
		bail_out("%s: %s", path, err.text);
	return fs;
}

static struct optimfs *open_it(struct edited *e)
{
	return open_was(e, e->path);
}

void edited_init(struct edited *e, const char *name,
    const struct optimfs_options *options)
{
	static int number;
	const char *slash = strrchr(name, '/');

	memset(e, 0, sizeof(*e));
	if (options != NULL)
		e->options = *options;
	snprintf(e->dir, sizeof(e->dir), "/tmp/optimfs-edited-%d-%d",
	    (int)getpid(), number++);
	snprintf(e->path, sizeof(e->path), "%s/%s", e->dir,
	    slash == NULL ? name : slash + 1);
	if (mkdir(e->dir, 0700) == -1)
		bail_out("%s: %s", e->dir, strerror(errno));
	run("cp -r", data_path(name), e->dir);
	run("chmod -R u+w", e->dir, e->dir);
	e->fs = open_it(e);
	e->was = open_was(e, data_path(name));
}

void edited_fini(struct edited *e)
{
	for (size_t i = 0; i < e->changes.n; i++) {
		ofs_ranges_fini(&e->changes.v[i].written);
		if (e->changes.v[i].staged.read != NULL)
			close(staged_fd(&e->changes.v[i].staged));
	}
	free(e->changes.v);
	ofs_arena_fini(&e->changes.arena);
	for (size_t i = 0; i < e->nwant; i++) {
		free(e->want[i].path);
		free(e->want[i].bytes);
	}
	free(e->want);
	optimfs_close(e->fs);
	optimfs_close(e->was);
	run("rm -rf", e->dir, e->dir);
}

/* The bytes of a node's file, malloc'ed; NULL: unreadable. */
static uint8_t *content(struct optimfs *fs, uint64_t node, size_t *len)
{
	struct optimfs_error err = { 0 };
	struct optimfs_file *f;
	uint8_t *buf;

	if (optimfs_file_open(fs, node, &f, &err) == -1)
		return NULL;
	*len = (size_t)optimfs_file_size(f);
	buf = malloc(*len + 1);
	if (optimfs_file_read(f, buf, *len, 0, &err) != (ssize_t)*len) {
		free(buf);
		buf = NULL;
	}
	optimfs_file_close(f);
	return buf;
}

static void expect(struct edited *e, const char *path, const void *bytes,
    size_t len)
{
	struct edited_want *w;

	if (e->nwant == e->want_cap) {
		e->want_cap = e->want_cap == 0 ? 16 : e->want_cap * 2;
		e->want = reallocarray(e->want, e->want_cap, sizeof(*e->want));
	}
	w = &e->want[e->nwant++];
	*w = (struct edited_want){ .path = strdup(path), .len = len };
	if (bytes != NULL) {
		w->bytes = malloc(len + 1);
		memcpy(w->bytes, bytes, len);
	}
}

/* Adds a change. path must not contain escapes. */
static struct ofs_change *add(struct edited *e, const char *path,
    enum ofs_change_kind kind)
{
	struct ofs_arena *a = &e->changes.arena;
	const char **key = ofs_arena_alloc(a, 16 * sizeof(*key));
	char *copy = ofs_arena_strndup(a, path, strlen(path)), *save = NULL;
	struct ofs_change *ch;

	if (e->changes.n == e->cap) {
		e->cap = e->cap == 0 ? 16 : e->cap * 2;
		e->changes.v = reallocarray(e->changes.v, e->cap, sizeof(*ch));
	}
	ch = &e->changes.v[e->changes.n++];
	*ch = (struct ofs_change){ .kind = kind,
		.entry = OFS_NONE,
		.from = OFS_NONE,
		.key = key };
	ch->path = ofs_arena_strndup(a, path, strlen(path));
	for (char *s = strtok_r(copy, "/", &save); s != NULL;
	     s = strtok_r(NULL, "/", &save))
		key[ch->nkeys++] = s;
	return ch;
}

static uint32_t entry_of(struct edited *e, const char *path)
{
	uint64_t node = listing_node(e->fs, path);

	return e->fs->now->tree.node[(uint32_t)node - 1].entry;
}

void edited_text(struct edited *e, const char *path, const char *text,
    const char *after)
{
	struct ofs_change *ch = add(e, path, OFS_CHANGE_VALUE);

	ch->entry = entry_of(e, path);
	ch->text = text;
	ch->ntext = strlen(text);
	after = after == NULL ? text : after;
	expect(e, path, after, strlen(after));
}

static int stage_file(void)
{
	FILE *f = tmpfile();
	int fd = f == NULL ? -1 : dup(fileno(f));

	if (fd == -1)
		bail_out("temporary file: %s", strerror(errno));
	fclose(f);
	return fd;
}

void edited_bytes(struct edited *e, const char *path, uint64_t off,
    uint64_t end)
{
	struct ofs_change *ch = add(e, path, OFS_CHANGE_DATA);
	const struct ofs_tensor *t;
	struct optimfs_error err;
	uint8_t *bytes;
	size_t len;

	ch->entry = entry_of(e, path);
	t = &e->fs->now->cat->tensors[e->fs->now->cat->entries[ch->entry].ref];
	ch->dtype = t->dtype;
	ch->ndim = t->ndim;
	ch->shape = ofs_tensor_shape(e->fs->now->cat, t);
	bytes = content(e->fs, listing_node(e->fs, path), &len);
	if (bytes == NULL)
		bail_out("%s cannot be read", path);
	if (end == 0)
		end = len;
	for (uint64_t i = off; i < end; i++)
		bytes[i] =
		    t->dtype == OFS_BOOL ? !bytes[i] : (uint8_t)(bytes[i] + 1);
	ch->size = len;
	ch->staged = staged_in(stage_file());
	if (pwrite(staged_fd(&ch->staged), bytes + off, end - off, (off_t)off) !=
		(ssize_t)(end - off) ||
	    ofs_ranges_add(&ch->written, off, end, &err) == -1)
		bail_out("%s cannot be staged", path);
	expect(e, path, bytes, len);
	free(bytes);
}

static const struct edited_want *wanted(const struct edited *e,
    const char *path);

void edited_follows(struct edited *e, const char *path, const char *from)
{
	const struct edited_want *w = wanted(e, from);
	const struct ofs_tensor *t =
	    &e->fs->now->cat
		 ->tensors[e->fs->now->cat->entries[entry_of(e, path)].ref];
	uint64_t n = w->len / 4, len = n * ofs_dtype_size(t->dtype);
	uint8_t *bytes = malloc(len + 1);

	ofs_cast(OFS_FLOAT32, w->bytes, t->dtype, bytes, n);
	expect(e, path, bytes, len);
	free(bytes);
}

void edited_remove(struct edited *e, const char *path)
{
	struct ofs_change *ch = add(e, path, OFS_CHANGE_REMOVE);

	ch->entry = entry_of(e, path);
	expect(e, path, NULL, 0);
}

void edited_rename(struct edited *e, const char *from, const char *to)
{
	uint32_t entry = entry_of(e, from);
	const struct ofs_entry *x = &e->fs->now->cat->entries[entry];
	struct ofs_change *ch;
	size_t len;
	uint8_t *bytes = content(e->fs, listing_node(e->fs, from), &len);

	edited_remove(e, from);
	ch = add(e, to, OFS_CHANGE_ADD);
	ch->from = entry;
	if (x->kind == OFS_ENTRY_TENSOR) {
		const struct ofs_tensor *t = &e->fs->now->cat->tensors[x->ref];

		ch->dtype = t->dtype;
		ch->ndim = t->ndim;
		ch->shape = ofs_tensor_shape(e->fs->now->cat, t);
		ch->size = len;
	}
	expect(e, to, bytes, len);
	free(bytes);
}

void edited_add_text(struct edited *e, const char *path, const char *text,
    const char *after)
{
	struct ofs_change *ch = add(e, path, OFS_CHANGE_ADD);

	ch->text = text;
	ch->ntext = strlen(text);
	after = after == NULL ? text : after;
	expect(e, path, after, strlen(after));
}

void edited_add(struct edited *e, const char *path, enum ofs_dtype dtype,
    const uint64_t *shape, unsigned ndim)
{
	struct ofs_change *ch = add(e, path, OFS_CHANGE_ADD);
	uint64_t n = ofs_dtype_size(dtype);
	struct optimfs_error err;
	uint8_t *bytes;

	for (unsigned d = 0; d < ndim; d++)
		n *= shape[d];
	ch->dtype = (uint8_t)dtype;
	ch->ndim = (uint8_t)ndim;
	ch->shape = shape;
	ch->size = n;
	ch->staged = staged_in(stage_file());
	bytes = malloc(n + 1);
	for (uint64_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(i * 7 + 1);
	if (pwrite(staged_fd(&ch->staged), bytes, n, 0) != (ssize_t)n ||
	    ofs_ranges_add(&ch->written, 0, n, &err) == -1)
		bail_out("%s cannot be staged", path);
	expect(e, path, bytes, n);
	free(bytes);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct ofs_change *)a)->path,
	    ((const struct ofs_change *)b)->path);
}

int edited_commit(struct edited *e, struct optimfs_error *err)
{
	char stage[200];
	int fd, ret;

	snprintf(stage, sizeof(stage), "%s/stage", e->dir);
	mkdir(stage, 0700);
	fd = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		bail_out("%s: %s", stage, strerror(errno));
	qsort(e->changes.v, e->changes.n, sizeof(*e->changes.v), by_path);
	ret = ofs_fs_commit_changes(e->fs, &e->changes, fd, NULL, NULL, err);
	close(fd);
	return ret;
}

static const struct edited_want *wanted(const struct edited *e,
    const char *path)
{
	for (size_t i = e->nwant; i-- > 0;)
		if (strcmp(e->want[i].path, path) == 0)
			return &e->want[i];
	return NULL;
}

static bool compare(const char *path, const uint8_t *got, size_t ngot,
    const uint8_t *want, size_t nwant)
{
	static int said;
	size_t i = 0;

	if (got == NULL || want == NULL) {
		if (got == want)
			return true;
		if (said++ < 12)
			diag("%s %s", path,
			    got == NULL ? "cannot be read" : "exists");
		return false;
	}
	if (ngot == nwant && memcmp(got, want, ngot) == 0)
		return true;
	if (said++ > 12)
		return false;
	while (i < ngot && i < nwant && got[i] == want[i])
		i++;
	diag("%s: %zu bytes, want %zu, differs at %zu", path, ngot, nwant, i);
	if (ngot < 100 && nwant < 100)
		diag("got '%.*s', want '%.*s'", (int)ngot, (const char *)got,
		    (int)nwant, (const char *)want);
	return false;
}

/* Checks that each file is as expected or unchanged. */
static unsigned check_all(struct edited *e, struct optimfs *now, bool old)
{
	unsigned wrong = 0;
	char path[5000];

	for (uint32_t i = 0; i < now->now->tree.n; i++) {
		const struct edited_want *w;
		struct optimfs_attr attr;
		size_t ngot = 0, nwant = 0;
		uint8_t *got, *want = NULL;

		if (now->now->tree.node[i].entry == OFS_NONE)
			continue;
		ofs_tree_path(&now->now->tree, i, path, sizeof(path));
		got = content(now, ofs_node_of(OFS_SPACE_TREE, i), &ngot);
		w = old ? NULL : wanted(e, path);
		if (w == NULL &&
		    optimfs_resolve(e->was, path, &attr, NULL) == 0)
			want = content(e->was, attr.node, &nwant);
		else if (w == NULL)
			diag("%s is new", path);
		wrong += !compare(path, got, ngot, w == NULL ? want : w->bytes,
		    w == NULL ? nwant : w->len);
		free(got);
		free(want);
	}
	return wrong;
}

static unsigned check_there(struct edited *e, struct optimfs *now, bool old)
{
	unsigned wrong = 0;
	struct optimfs_attr attr;
	char path[5000];

	for (size_t i = 0; i < e->nwant && !old; i++) {
		const struct edited_want *w = wanted(e, e->want[i].path);
		bool there = optimfs_resolve(now, w->path, &attr, NULL) == 0;

		if (there == (w->bytes != NULL))
			continue;
		diag("%s is %s", w->path,
		    there ? "there, but should not be" : "not there");
		wrong++;
	}
	for (uint32_t i = 0; i < e->was->now->tree.n; i++) {
		if (e->was->now->tree.node[i].entry == OFS_NONE)
			continue;
		ofs_tree_path(&e->was->now->tree, i, path, sizeof(path));
		if ((!old && wanted(e, path) != NULL) ||
		    optimfs_resolve(now, path, &attr, NULL) == 0)
			continue;
		diag("%s is lost", path);
		wrong++;
	}
	return wrong;
}

unsigned edited_differs(struct edited *e, bool old)
{
	struct optimfs *now = open_it(e);
	unsigned wrong;

	wrong = check_all(e, now, old) + check_there(e, now, old);
	optimfs_close(now);
	return wrong;
}

static uint64_t problems(struct optimfs *fs)
{
	struct optimfs_error err = { 0 };
	uint64_t n = 0;

	if (optimfs_fsck(fs, true, NULL, NULL, &n, &err) == -1)
		bail_out("%s", err.text);
	return n;
}

int edited_fsck(struct edited *e)
{
	struct optimfs *now = open_it(e);
	int n = (int)problems(now) - (int)problems(e->was);

	optimfs_close(now);
	return n;
}

void edited_commits(struct edited *e, const char *name)
{
	struct optimfs_error err = { 0 };

	if (!is_int(edited_commit(e, &err), 0, "%s: the commit succeeds", name))
		diag("%s", err.text);
	is_int(edited_differs(e, false), 0,
	    "%s: the committed checkpoint has exactly the edits", name);
	is_int(edited_fsck(e), 0, "%s: fsck finds nothing after the commit",
	    name);
}

static _Atomic int calls; /* several threads write */
static int fail_at;

static int fault(const char *call)
{
	(void)call;
	return ++calls == fail_at ? ENOSPC : 0;
}

void edited_faults(const char *name, int step, void (*change)(struct edited *e))
{
	unsigned points = 0, wrong = 0;
	bool failed = true;

	for (fail_at = 1; failed; fail_at += step) {
		struct optimfs_error err = { 0 };
		struct edited e;
		int ret;

		edited_init(&e, name, NULL);
		change(&e);
		calls = 0;
		ofs_sys_fault = fault;
		ret = edited_commit(&e, &err);
		ofs_sys_fault = NULL;
		failed = calls >= fail_at;
		if (failed) {
			points++;
			if (edited_differs(&e, ret == -1) != 0 ||
			    (ret != 0 && err.code == 0)) {
				diag("call %d: %d %s", fail_at, ret, err.text);
				wrong++;
			}
		}
		edited_fini(&e);
	}
	ok(wrong == 0 && points > 3,
	    "%s: with one of %u calls failing it is the old or the new one",
	    name, points);
}
