/* bucket.c - writes a view below an address of S3 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "reshard/bucket.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/json.h"
#include "base/json_write.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/str.h"
#include "store/http/bucket.h"
#include "store/http/open.h"

/* A bucket has no rename. But a file is in it only when its upload is completed, so
 * all are uploaded first, and then completed, the index last: who lists before
 * that sees no checkpoint, and who lists after it all of one. So a layout needs an
 * index, or one file.
 *
 * A note beside the address (store/http/bucket.h) says who writes what there, and
 * by which uploads: the next run asks the server which parts of these it has. It
 * is removed at the end. Who finds another's note takes over: he writes his own,
 * which the other one looks for before he completes anything. Uploads to another
 * layout are aborted, those to the same one are continued.
 *
 * An object is that of an earlier run if the note says so, or if the server does
 * not know its upload any more, and it has the size: then it is what the upload
 * was completed to, unless that was aborted and somebody else has put this here.
 *
 * A note that is written when all uploads have begun can be missing after a kill.
 * What is left then are uploads without parts, which cost nothing. */

_Static_assert(OFS_ENGINE_PART >= OFS_BUCKET_LEAST,
    "S3 takes no part as short as this");

struct bucket {
	struct ofs_reshard *r;
	struct ofs_bucket *b;
	const char *address;
	struct ofs_bucket_upload
	    *u; /* by the number of the file in the engine */
	char (*name)[OFS_FILE_NAME];
	uint32_t n, last;
	char run[33];
};

/* Layouts. */

/* What programs look for first. */
static bool is_index(const char *name)
{
	static const char *const names[] = { ".metadata", "latest",
		"latest_universal" };
	struct ofs_str s = ofs_str_of(name);

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return ofs_str_ends(s, ".index.json");
}

/* The number of the file that comes last; n: there is none. */
static uint32_t find_last(const struct ofs_reshard *r)
{
	char name[OFS_FILE_NAME];

	for (uint32_t i = 0; i < r->engine.n; i++) {
		ofs_view_path(r->snap,
		    (struct ofs_at){ r->view.space, r->engine.file[i].index },
		    name);
		if (is_index(name))
			return i;
	}
	return r->engine.n == 1 ? 0 : r->engine.n;
}

int ofs_reshard_bucket_check(const struct ofs_reshard *r,
    struct optimfs_error *err)
{
	if (ofs_view_layout(r->snap, r->view)->zstd != 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS930 files of compressed items cannot be uploaded in "
		    "parts: leave out zstd");
	if (find_last(r) == r->engine.n)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS930 the %u files of %s have no index that could come "
		    "last, so that a bucket would have half of them: use dcp, "
		    "or safetensors,hf, or only=model",
		    r->engine.n, r->name);
	for (uint32_t i = 0; i < r->engine.n; i++)
		if (r->engine.file[i].nparts > OFS_BUCKET_PARTS)
			return optimfs_fail(err, EFBIG,
			    "OFS930 a file of %" PRIu64
			    " bytes has more parts than a bucket takes: use "
			    "more files, dcp@16",
			    r->engine.file[i].size);
	return 0;
}

static int name_files(struct bucket *k, struct optimfs_error *err)
{
	struct ofs_reshard *r = k->r;

	k->n = r->engine.n;
	k->last = find_last(r);
	k->u = ofs_alloc(k->n, sizeof(*k->u), err);
	k->name = ofs_alloc(k->n, sizeof(*k->name), err);
	if (k->u == NULL || k->name == NULL)
		return -1;
	for (uint32_t i = 0; i < k->n; i++) {
		struct ofs_engine_file *f = &r->engine.file[i];

		ofs_view_path(r->snap,
		    (struct ofs_at){ r->view.space, f->index }, k->name[i]);
		k->u[i].name = k->name[i];
		k->u[i].nparts = f->nparts;
		k->u[i].part = ofs_alloc(f->nparts, sizeof(*k->u[i].part), err);
		if (k->u[i].part == NULL)
			return -1;
	}
	return 0;
}

/* What is there. */

struct there {
	struct ofs_keys names;
	struct ofs_http_version *is; /* by the numbers of names */
	uint32_t cap;
};

static int take_name(void *ctx, const char *name,
    const struct ofs_http_version *is, struct optimfs_error *err)
{
	struct there *t = ctx;
	uint32_t n = t->names.n, i;

	if (ofs_grow(t->is, n, t->cap, err) == -1)
		return -1;
	i = ofs_keys_copy(&t->names, name, strlen(name), err);
	if (i == n)
		t->is[i] = *is;
	return i == OFS_NONE ? -1 : 0;
}

static int look(struct bucket *k, struct there *t, struct optimfs_error *err)
{
	*t = (struct there){ .is = NULL };
	return ofs_bucket_list(k->b, take_name, t, err);
}

static void there_fini(struct there *t)
{
	ofs_keys_fini(&t->names);
	free(t->is);
}

static const struct ofs_http_version *find_there(const struct there *t,
    const char *name)
{
	uint32_t i = ofs_keys_find(&t->names, name, strlen(name));

	return i == OFS_NONE ? NULL : &t->is[i];
}

static int exists(const struct bucket *k, const char *name,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EEXIST, "%s already exists (%.100s)",
	    k->address, name);
}

/* The note. */

struct note {
	char run[33];
	uint64_t source, files, part;
	char layout[OFS_FILE_NAME];
	struct ofs_names name, id; /* of uploads */
};

static void note_fini(struct note *n)
{
	ofs_names_free(&n->name);
	ofs_names_free(&n->id);
}

static int write_note(struct bucket *k, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	struct ofs_json_writer w = { .b = &b, .gap = " " };
	char text[20];
	int ret;

	ofs_json_open(&w, NULL, '{');
	ofs_json_put_string(&w, "what",
	    "an unfinished optimfs reshard: the same command continues it");
	ofs_json_put_string(&w, "run", k->run);
	snprintf(text, sizeof(text), "%" PRIx64, k->r->source);
	ofs_json_put_string(&w, "source", text);
	snprintf(text, sizeof(text), "%" PRIx64, k->r->files);
	ofs_json_put_string(&w, "files", text);
	ofs_json_put_string(&w, "layout", k->r->name);
	ofs_json_put_u64(&w, "part", OFS_ENGINE_PART);
	ofs_json_open(&w, "uploads", '[');
	for (uint32_t i = 0; i < k->n; i++) {
		ofs_json_open(&w, NULL, '[');
		ofs_json_put_string(&w, NULL, k->u[i].name);
		ofs_json_put_string(&w, NULL,
		    k->u[i].id == NULL ? "" : k->u[i].id);
		ofs_json_close(&w, ']');
	}
	ofs_json_close(&w, ']');
	ofs_json_close(&w, '}');
	ret = b.bad ? ofs_no_memory(err) : ofs_bucket_note_put(k->b, &b, err);
	ofs_buf_fini(&b);
	return ret;
}

static int take_upload(struct ofs_json *j, struct note *n,
    struct optimfs_error *err)
{
	if (ofs_json_next(j, err) != OFS_JSON_STRING ||
	    ofs_names_add(&n->name, j->str.p, j->str.len, err) == -1 ||
	    ofs_json_next(j, err) != OFS_JSON_STRING ||
	    ofs_names_add(&n->id, j->str.p, j->str.len, err) == -1 ||
	    ofs_json_next(j, err) != OFS_JSON_ARRAY_END)
		return -1;
	return 0;
}

static int take_member(struct ofs_json *j, const char *key, struct note *n,
    struct optimfs_error *err)
{
	enum ofs_json_token t = ofs_json_next(j, err);
	char text[OFS_FILE_NAME] = "";

	if (t == OFS_JSON_STRING)
		snprintf(text, sizeof(text), "%.*s",
		    OFS_STR_ARGS(j->str, OFS_FILE_NAME - 1));
	if (strcmp(key, "uploads") == 0 && t == OFS_JSON_ARRAY) {
		while ((t = ofs_json_next(j, err)) == OFS_JSON_ARRAY)
			if (take_upload(j, n, err) == -1)
				return -1;
		return t == OFS_JSON_ARRAY_END ? 0 : -1;
	}
	if (strcmp(key, "run") == 0)
		snprintf(n->run, sizeof(n->run), "%.32s", text);
	else if (strcmp(key, "source") == 0)
		n->source = strtoull(text, NULL, 16);
	else if (strcmp(key, "files") == 0)
		n->files = strtoull(text, NULL, 16);
	else if (strcmp(key, "layout") == 0)
		strcpy(n->layout, text);
	else if (strcmp(key, "part") == 0 && t == OFS_JSON_NUMBER && j->is_int)
		n->part = (uint64_t)j->integer;
	else
		return ofs_json_skip(j, t, err);
	return 0;
}

static int parse_note(const struct ofs_buf *text, struct note *n,
    struct optimfs_error *err)
{
	enum ofs_json_token t;
	struct ofs_json j;
	char key[16];
	int ret = 0;

	ofs_json_init(&j, text->data, (uint32_t)text->len);
	if (ofs_json_next(&j, err) != OFS_JSON_OBJECT)
		ret = -1;
	while (ret == 0 && (t = ofs_json_next(&j, err)) == OFS_JSON_KEY) {
		snprintf(key, sizeof(key), "%.*s", OFS_STR_ARGS(j.str, 15));
		ret = take_member(&j, key, n, err);
	}
	if (ret == 0 && t != OFS_JSON_OBJECT_END)
		ret = -1;
	ofs_json_fini(&j);
	return ret == 0 && n->run[0] != '\0' ? 0 : -1;
}

/* 0: there is none; 1. */
static int read_note(struct bucket *k, struct note *n,
    struct optimfs_error *err)
{
	struct ofs_buf text = { 0 };
	struct optimfs_error why;
	int ret;

	*n = (struct note){ .run = "" };
	ret = ofs_bucket_note_get(k->b, &text, err);
	if (ret == 1 && parse_note(&text, n, &why) == -1) {
		note_fini(n);
		ret = optimfs_fail(err, EEXIST,
		    "OFS774 %s is something other than an unfinished reshard: "
		    "remove it if nothing needs it",
		    ofs_bucket_note_name(k->b));
	}
	ofs_buf_fini(&text);
	return ret;
}

/* Losing to another run, and giving up. */

static int check_note(struct bucket *k, struct optimfs_error *err)
{
	struct note n;
	int ret = read_note(k, &n, err);

	if (ret == 1 && strcmp(n.run, k->run) == 0)
		ret = 0;
	else if (ret != -1)
		ret = optimfs_fail(err, EBUSY,
		    "OFS931 %s: another reshard writes there now, or its note "
		    "was removed: nothing was completed",
		    k->address);
	note_fini(&n);
	return ret;
}

static bool has_upload(const struct note *n, const char *id)
{
	for (size_t i = 0; i < n->id.n; i++)
		if (strcmp(n->id.name[i], id) == 0)
			return true;
	return false;
}

/* Aborts the uploads that the run of the note does not use. */
static void abort_others(struct bucket *k, const struct note *n)
{
	for (uint32_t i = 0; i < k->n; i++)
		if (k->u[i].id != NULL && has_upload(n, k->u[i].id))
			k->u[i].done = true;
	(void)ofs_bucket_abort(k->b, k->u, k->n, NULL);
}

/* Keeps what a later run can continue from. */
static void leave(struct bucket *k)
{
	struct optimfs_error why;
	struct note n;
	int noted = read_note(k, &n, &why);
	bool ours = noted == 1 && strcmp(n.run, k->run) == 0;

	if (noted != -1 && !ours)
		abort_others(k, &n);
	else if (atomic_load(&k->r->noted)) {
		if (k->r->how->kept != NULL)
			k->r->how->kept(k->r->how->ctx,
			    ofs_bucket_note_name(k->b));
	} else if (ours && ofs_bucket_abort(k->b, k->u, k->n, NULL) == 0)
		(void)ofs_bucket_note_remove(k->b, NULL);
	note_fini(&n);
}

/* Beginning. */

static int make_run(char run[33], struct optimfs_error *err)
{
	uint8_t bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return optimfs_fail(err, errno, "no random bytes: %m");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(run + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* From here on this run has the note, if no other one began at the same time. */
static int begin_run(struct bucket *k, struct optimfs_error *err)
{
	if (make_run(k->run, err) == -1)
		return -1;
	if (ofs_bucket_begin(k->b, k->u, k->n, err) == 0 &&
	    write_note(k, err) == 0 && check_note(k, err) == 0)
		return 0;
	leave(k);
	return -1;
}

static int mark_done(struct bucket *k, uint32_t i, struct optimfs_error *err)
{
	struct ofs_engine_file *f = &k->r->engine.file[i];

	f->done = ofs_alloc((size_t)f->nparts / 8 + 1, 1, err);
	if (f->done == NULL)
		return -1;
	for (uint32_t p = 0; p < f->nparts; p++)
		if (k->u[i].done || k->u[i].part[p][0] != '\0') {
			f->done[p / 8] |= (uint8_t)(1u << p % 8);
			atomic_store(&k->r->noted, true);
		}
	return 0;
}

/* 1: the server still has the upload; u gets its parts. 0: it does not. */
static int find_parts(struct bucket *k, struct ofs_bucket_upload *u,
    uint64_t size, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };

	if (ofs_bucket_find_parts(k->b, u, OFS_ENGINE_PART, size, &why) == 0)
		return 1;
	return why.code == ENOENT ? 0 : optimfs_fail_with(err, &why);
}

/* Is an object there that of the upload? 1; 0; -1. */
static int is_of_upload(struct bucket *k, const char *name, char *id,
    struct optimfs_error *err)
{
	struct ofs_bucket_upload u = { .name = name, .id = id };
	int open;

	if (id[0] == '\0') /* the run that wrote the note has found it */
		return 1;
	open = find_parts(k, &u, 0, err);
	return open == -1 ? -1 : !open;
}

/* What earlier runs have of a file; is: what is there. */
static int find_file(struct bucket *k, uint32_t i, const struct note *n,
    const struct ofs_http_version *is, struct optimfs_error *err)
{
	struct ofs_bucket_upload *u = &k->u[i];
	uint64_t size = k->r->engine.file[i].size;
	bool noted = i < n->name.n && strcmp(n->name.name[i], u->name) == 0;
	int ret;

	if (is != NULL) {
		ret = noted ? is_of_upload(k, u->name, n->id.name[i], err) : 0;
		if (ret == 1 && is->size == size) {
			u->done = true;
			return 0;
		}
		return ret == -1 ? -1 : exists(k, u->name, err);
	}
	if (!noted || n->id.name[i][0] == '\0')
		return 0;
	u->id = strdup(n->id.name[i]);
	if (u->id == NULL)
		return ofs_no_memory(err);
	ret = find_parts(k, u, size, err);
	if (ret == 0) {
		free(u->id);
		u->id = NULL;
	}
	return ret == -1 ? -1 : 0;
}

static struct ofs_bucket_upload *find_upload(const struct bucket *k,
    const char *name)
{
	for (uint32_t i = 0; i < k->n; i++)
		if (strcmp(k->u[i].name, name) == 0)
			return &k->u[i];
	return NULL;
}

/* Goes on where the run ended that left the note. */
static int resume(struct bucket *k, const struct note *n, const struct there *t,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < t->names.n; i++)
		if (find_upload(k, t->names.v[i].p) == NULL)
			return exists(k, t->names.v[i].p, err);
	for (uint32_t i = 0; i < k->n; i++)
		if (find_file(k, i, n, find_there(t, k->u[i].name), err) ==
			-1 ||
		    mark_done(k, i, err) == -1)
			return -1;
	return begin_run(k, err);
}

/* Are all objects there those of the run that left the note? EEXIST. */
static int check_objects(struct bucket *k, const struct note *n,
    const struct there *t, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < t->names.n; i++) {
		const char *name = t->names.v[i].p;
		int ret = 0;

		for (size_t f = 0; f < n->name.n && ret == 0; f++)
			if (strcmp(n->name.name[f], name) == 0)
				ret = is_of_upload(k, name, n->id.name[f], err);
		if (ret != 1)
			return ret == -1 ? -1 : exists(k, name, err);
	}
	return 0;
}

/* Removes what an earlier run of something else has left; but if it was complete,
 * only the note. */
static int drop(struct bucket *k, const struct note *n, const struct there *t,
    const char *why, struct optimfs_error *err)
{
	struct ofs_bucket_upload *u = ofs_alloc(n->name.n + 1, sizeof(*u), err);
	int ret = u == NULL ? -1 : check_objects(k, n, t, err);

	if (ret == 0 && t->names.n > 0 && t->names.n == n->name.n) {
		(void)ofs_bucket_note_remove(k->b, NULL);
		ret = exists(k, t->names.v[0].p, err);
	}
	for (size_t i = 0; ret == 0 && i < n->name.n; i++) {
		u[i].name = n->name.name[i];
		u[i].id = n->id.name[i];
		u[i].done = n->id.name[i][0] == '\0';
	}
	if (ret == 0) {
		ofs_reshard_say_dropped(k->r, ofs_bucket_note_name(k->b), why);
		ret = ofs_bucket_abort(k->b, u, n->name.n, err);
	}
	for (uint32_t i = 0; ret == 0 && i < t->names.n; i++)
		ret = ofs_bucket_remove(k->b, t->names.v[i].p, err);
	free(u);
	return ret == 0 ? begin_run(k, err) : -1;
}

static int start(struct bucket *k, struct optimfs_error *err)
{
	struct there t;
	struct note n;
	const char *why;
	int ret = read_note(k, &n, err), noted = ret;

	if (ret == -1)
		return -1;
	ret = look(k, &t, err);
	if (ret == 0 && noted == 0)
		ret = t.names.n > 0 ? exists(k, t.names.v[0].p, err)
				    : begin_run(k, err);
	else if (ret == 0 &&
	    (why = ofs_reshard_differs(k->r, n.source, n.layout, n.files,
		 n.part)) != NULL)
		ret = drop(k, &n, &t, why, err);
	else if (ret == 0)
		ret = resume(k, &n, &t, err);
	there_fini(&t);
	note_fini(&n);
	return ret;
}

/* Uploading. */

static int put(void *ctx, const struct ofs_engine_file *f, uint32_t part,
    const void *bytes, uint64_t n, struct optimfs_error *err)
{
	struct bucket *k = ctx;

	if (ofs_bucket_put_part(k->b, &k->u[f - k->r->engine.file], part, bytes,
		n, err) == -1)
		return -1;
	atomic_store(&k->r->noted, true);
	return 0;
}

static int upload(struct bucket *k, struct optimfs_error *err)
{
	const struct ofs_engine_target target = { put, k };
	struct ofs_engine *e = &k->r->engine;
	uint64_t done = 0;
	int ret;

	for (uint32_t i = 0; i < e->n; i++)
		done += ofs_engine_written(&e->file[i]);
	atomic_store(&e->done, done);
	ofs_reshard_say_resumed(k->r, ofs_bucket_note_name(k->b));
	e->target = &target;
	ret = ofs_engine_run(e, err);
	e->target = NULL;
	return ret;
}

/* Ending. */

/* Is what was uploaded there, and nothing else? */
static int verify(struct bucket *k, bool last, struct optimfs_error *err)
{
	struct there t;
	int ret = look(k, &t, err);

	for (uint32_t i = 0; ret == 0 && i < k->n; i++) {
		const struct ofs_bucket_upload *u = &k->u[i];
		const struct ofs_http_version *is = find_there(&t, u->name);

		if (i == k->last && !last)
			continue;
		if (is == NULL || is->size != k->r->engine.file[i].size ||
		    (u->tag[0] != '\0' && is->etag[0] != '\0' &&
			strcmp(u->tag, is->etag) != 0))
			ret = optimfs_fail(err, EIO,
			    "OFS931 %s/%.200s is not what was written there",
			    k->address, u->name);
	}
	there_fini(&t);
	return ret;
}

/* What has appeared since is replaced by nothing, unless a run that was taken over
 * has completed it. */
static int check_place(struct bucket *k, struct optimfs_error *err)
{
	struct there t;
	int ret = look(k, &t, err);

	for (uint32_t i = 0; ret == 0 && i < t.names.n; i++) {
		const char *name = t.names.v[i].p;
		struct ofs_bucket_upload *u = find_upload(k, name);

		if (u != NULL && u->done)
			continue;
		ret = u == NULL ? 0 : is_of_upload(k, name, u->id, err);
		if (ret == 1)
			u->done = true;
		ret = ret == 0 ? exists(k, name, err) : ret == 1 ? 0 : -1;
	}
	there_fini(&t);
	return ret;
}

static int complete(struct bucket *k, struct optimfs_error *err)
{
	struct ofs_bucket_upload *last = &k->u[k->last];

	if (check_place(k, err) == -1 || check_note(k, err) == -1 ||
	    ofs_bucket_complete(k->b, k->u, k->last, err) == -1 ||
	    ofs_bucket_complete(k->b, last + 1, k->n - k->last - 1, err) ==
		-1 ||
	    verify(k, false, err) == -1 ||
	    ofs_bucket_complete(k->b, last, 1, err) == -1)
		return -1;
	return verify(k, true, err);
}

static int write_all(struct bucket *k, struct optimfs_error *err)
{
	struct optimfs_error why;

	if (name_files(k, err) == -1 || start(k, err) == -1)
		return -1;
	if (upload(k, err) == -1 || complete(k, err) == -1) {
		leave(k);
		return -1;
	}
	if (ofs_bucket_note_remove(k->b, &why) == -1 &&
	    k->r->how->watch.say != NULL)
		k->r->how->watch.say(k->r->how->watch.ctx, why.text);
	return 0;
}

int ofs_reshard_bucket(struct ofs_reshard *r, const char *address,
    struct optimfs_error *err)
{
	struct bucket k = { .r = r, .address = address };
	int ret;

	k.b = ofs_bucket_open(address,
	    ofs_http_timeout(r->snap->fs->options.timeout), err);
	ret = k.b == NULL ? -1 : write_all(&k, err);
	for (uint32_t i = 0; k.u != NULL && i < k.n; i++) {
		free(k.u[i].id);
		free(k.u[i].part);
	}
	free(k.u);
	free(k.name);
	ofs_bucket_close(k.b);
	return ret;
}
