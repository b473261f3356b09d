/* replay.c - restore the staged changes of an earlier mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/xxh3.h"
#include "overlay/overlay_impl.h"

/* Bytes that were not synced before a power failure: valid only if their
 * checksum matches. */
struct doubt {
	uint64_t off, len, hash;
};

struct replayed {
	struct ofs_overlay_file *file;
	uint64_t id;
	struct doubt *doubt;
	size_t ndoubts, cap;
};

struct replay {
	struct ofs_overlay *o;
	struct replayed *v;
	size_t n, cap;
};

static int bad(const struct ofs_record *r, struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN,
	    "OFS810 %s: the journal does not belong to this checkpoint "
	    "(record of type %u)",
	    r->a, r->type);
}

static struct replayed *find_id(const struct replay *p, uint64_t id)
{
	for (size_t i = p->n; i > 0; i--)
		if (p->v[i - 1].id == id)
			return &p->v[i - 1];
	return NULL;
}

/* Splits a path into directory and name. */
static bool split(const struct ofs_overlay *o, const char *path, uint32_t *dir,
    const char **name)
{
	const char *slash = strrchr(path, '/');
	char *up;

	*name = slash == NULL ? path : slash + 1;
	*dir = 0;
	if (slash == NULL)
		return **name != '\0';
	up = strndup(path, (size_t)(slash - path));
	*dir = up == NULL ? OFS_NONE : ofs_overlay_resolve(o, up);
	free(up);
	return *dir != OFS_NONE && ofs_overlay_is_dir(o, *dir) &&
	    **name != '\0';
}

static struct ofs_overlay_file *file_at(struct ofs_overlay *o,
    const struct ofs_record *r, struct optimfs_error *err)
{
	uint32_t index = ofs_overlay_resolve(o, r->a);

	if (index == OFS_NONE || ofs_overlay_is_dir(o, index)) {
		bad(r, err);
		return NULL;
	}
	return ofs_overlay_file_touch(o, index, err);
}

/* What was written to a renamed file may be that of another one now. */
static void follow(const struct replay *p, const char *path)
{
	uint32_t index = ofs_overlay_resolve(p->o, path);
	struct ofs_overlay_file *f =
	    index == OFS_NONE ? NULL : ofs_overlay_file(p->o, index);
	struct replayed *v = NULL;

	if (f != NULL && f->id != 0)
		v = find_id(p, f->id);
	if (v != NULL)
		v->file = f;
}

static int replay_name(struct replay *p, const struct ofs_record *r,
    struct optimfs_error *err)
{
	const char *name, *newname;
	uint32_t dir, to, index;
	char *there;
	int ret;

	if (!split(p->o, r->a, &dir, &name))
		return bad(r, err);
	if (r->type == OFS_REC_REMOVE) {
		index = ofs_overlay_find(p->o, dir, name);
		if (index == OFS_NONE)
			return bad(r, err);
		return ofs_overlay_remove(p->o, dir, name,
		    ofs_overlay_is_dir(p->o, index), err);
	}
	if (r->type != OFS_REC_RENAME)
		return ofs_overlay_make(p->o, dir, name,
		    r->type == OFS_REC_MKDIR, &index, err);
	there = strndup(r->b, r->nb);
	if (there == NULL)
		return ofs_no_memory(err);
	ret = split(p->o, there, &to, &newname)
	    ? ofs_overlay_rename(p->o, dir, name, to, newname, true, err)
	    : bad(r, err);
	if (ret == 0)
		follow(p, there);
	free(there);
	return ret;
}

static int replay_data(struct replay *p, const struct ofs_record *r,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f;

	if (r->a[0] == '\0')
		return 0; /* it was removed while open */
	f = file_at(p->o, r, err);
	if (f == NULL)
		return -1;
	if (ofs_grow(p->v, p->n, p->cap, err) == -1)
		return -1;
	p->v[p->n++] = (struct replayed){ .file = f, .id = r->num[0] };
	f->id = r->num[0];
	if (f->id > p->o->last_id)
		p->o->last_id = f->id;
	return 0;
}

static int add_doubt(struct replayed *v, const struct ofs_record *r,
    struct optimfs_error *err)
{
	if (ofs_grow(v->doubt, v->ndoubts, v->cap, err) == -1)
		return -1;
	v->doubt[v->ndoubts++] =
	    (struct doubt){ r->num[1], r->num[2], r->num[3] };
	return 0;
}

static int replay_write(struct replayed *v, const struct ofs_record *r,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = v->file;
	uint64_t end = r->num[1] + r->num[2];

	if (end < r->num[1] || end > INT64_MAX)
		return bad(r, err);
	if (ofs_ranges_add(&f->written, r->num[1], end, err) == -1)
		return -1;
	if (end > f->size)
		f->size = end;
	return add_doubt(v, r, err);
}

static int replay_size(struct replayed *v, uint64_t size,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = v->file;

	if (size > f->size &&
	    ofs_ranges_add(&f->written, f->size, size, err) == -1)
		return -1;
	ofs_ranges_cut(&f->written, size);
	f->size = size;
	if (f->base > size)
		f->base = size;
	return 0;
}

static int replay_bytes(struct replay *p, const struct ofs_record *r,
    struct optimfs_error *err)
{
	struct replayed *v = find_id(p, r->num[0]);

	if (v == NULL || v->file->id != v->id)
		return 0; /* its file was removed */
	if (r->type == OFS_REC_WRITE)
		return replay_write(v, r, err);
	if (r->type == OFS_REC_SIZE)
		return replay_size(v, r->num[1], err);
	v->ndoubts = 0;
	return 0;
}

static int replay_text(struct replay *p, const struct ofs_record *r,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f;

	if (r->a[0] == '\0')
		return 0;
	f = file_at(p->o, r, err);
	if (f == NULL)
		return -1;
	if (!f->text)
		return bad(r, err);
	return ofs_overlay_text_set(p->o, f, ofs_overlay_resolve(p->o, r->a),
	    r->b, r->nb, err);
}

static int replay_attr(struct replay *p, const struct ofs_record *r,
    struct optimfs_error *err)
{
	uint32_t index = ofs_overlay_resolve(p->o, r->a);
	const char *name = r->b, *value = memchr(name, '\0', r->nb);
	size_t n;

	if (index == OFS_NONE || value == NULL)
		return bad(r, err);
	value++;
	n = r->nb - (size_t)(value - name);
	return ofs_overlay_set_attr(p->o, index, name, value, n, err);
}

static int replay_one(void *ctx, const struct ofs_record *r,
    struct optimfs_error *err)
{
	struct replay *p = ctx;
	uint32_t index;

	switch (r->type) {
	case OFS_REC_MKDIR:
	case OFS_REC_CREATE:
	case OFS_REC_REMOVE:
	case OFS_REC_RENAME:
		return replay_name(p, r, err);
	case OFS_REC_DATA:
		return replay_data(p, r, err);
	case OFS_REC_WRITE:
	case OFS_REC_SIZE:
	case OFS_REC_SYNC:
		return replay_bytes(p, r, err);
	case OFS_REC_TEXT:
		return replay_text(p, r, err);
	case OFS_REC_ATTR:
		return replay_attr(p, r, err);
	case OFS_REC_TIME:
		index = ofs_overlay_resolve(p->o, r->a);
		if (index == OFS_NONE)
			return bad(r, err);
		return ofs_overlay_set_mtime(p->o, index, (int64_t)r->num[0],
		    err);
	default:
		return bad(r, err);
	}
}

/* Are the bytes of this record in the file? Ranges that a later record wrote
 * are checked with that record. */
static bool is_there(struct ofs_overlay_file *f, const struct doubt *d,
    uint8_t *buf, size_t cap)
{
	XXH3_state_t *state = XXH3_createState();
	uint64_t done = 0;
	bool same = state != NULL && XXH3_64bits_reset(state) == XXH_OK;

	while (same && done < d->len) {
		size_t n = d->len - done < cap ? d->len - done : cap;

		same = ofs_pread_all(f->fd, buf, n, d->off + done, NULL) == 0 &&
		    XXH3_64bits_update(state, buf, n) == XXH_OK;
		done += n;
	}
	same = same && XXH3_64bits_digest(state) == d->hash;
	XXH3_freeState(state);
	return same;
}

/* Adds [off, end) except for the ranges of newer records to lost. */
static int doubt_range(struct ofs_overlay_file *f, const struct doubt *d,
    const struct ofs_ranges *newer, struct optimfs_error *err)
{
	uint64_t at = d->off, end = d->off + d->len;
	int ret = 0;

	for (size_t i = ofs_ranges_find(newer, at);
	     i < newer->n && newer->v[i].off < end && ret == 0; i++) {
		ret = ofs_ranges_add(&f->lost, at, newer->v[i].off, err);
		at = newer->v[i].end;
	}
	return ret == -1 ? -1 : ofs_ranges_add(&f->lost, at, end, err);
}

/* Checks records from the newest to the oldest. A record that was partly
 * overwritten by newer ones cannot be checked by its checksum. have: size of
 * the data file; nothing is read beyond it. */
static int verify(struct replayed *v, uint64_t have, struct optimfs_error *err)
{
	struct ofs_overlay_file *f = v->file;
	struct ofs_ranges newer = { 0 };
	size_t cap = 1 << 20;
	uint8_t *buf = malloc(cap);
	int ret = buf == NULL ? ofs_no_memory(err) : 0;

	for (size_t i = v->ndoubts; i > 0 && ret == 0; i--) {
		const struct doubt *d = &v->doubt[i - 1];
		uint64_t end = d->off + d->len;

		if (end > f->size || ofs_ranges_cover(&newer, d->off, end))
			continue;
		if (end > have || !is_there(f, d, buf, cap)) {
			ret = doubt_range(f, d, &newer, err);
			optimfs_fail(&f->why, EIO,
			    "OFS817 bytes that were not synced before the "
			    "machine went down are lost: write the file again");
		}
		if (ret == 0)
			ret = ofs_ranges_add(&newer, d->off, end, err);
	}
	free(buf);
	ofs_ranges_fini(&newer);
	return ret;
}

/* The data file ends where the last written range does. If it is shorter, a hole
 * is missing at its end. If it is longer, its writer died before it removed what
 * a truncation had cut off, which would appear again when the file grows. */
static int settle(struct replay *p, bool rebooted, struct optimfs_error *err)
{
	for (size_t i = 0; i < p->n; i++) {
		struct replayed *v = &p->v[i];
		struct ofs_overlay_file *f = v->file;
		struct stat st;
		uint64_t need, have;

		if (f->dead || f->id != v->id)
			continue;
		if (ofs_overlay_file_adopt(p->o, f, v->id, err) == -1)
			return -1;
		need =
		    f->written.n == 0 ? 0 : f->written.v[f->written.n - 1].end;
		if (fstat(f->fd, &st) == -1)
			return optimfs_fail(err, errno, "OFS809 data: %m");
		have = (uint64_t)st.st_size;
		if (have != need && ftruncate(f->fd, (off_t)need) == -1)
			return optimfs_fail(err, errno, "OFS801 data: %m");
		if (rebooted && verify(v, have, err) == -1)
			return -1;
		/* there may be more files than descriptors */
		ofs_overlay_file_idle(p->o, f);
	}
	return 0;
}

int ofs_overlay_replay(struct ofs_overlay *o, struct optimfs_error *err)
{
	struct replay p = { .o = o };
	struct optimfs_error note;
	int ret;

	o->replaying = true;
	ret = ofs_stage_replay(o->stage, replay_one, &p, &o->found, err);
	if (ret == 0)
		ret = settle(&p, o->found.rebooted, err);
	o->replaying = false;
	for (size_t i = 0; i < p.n; i++)
		free(p.v[i].doubt);
	free(p.v);
	if (o->found.records > 0)
		ofs_overlay_changed(o, true);
	if (ret == 0 && o->found.dropped > 0) {
		optimfs_fail(&note, EIO,
		    "OFS810 the journal ended in the middle of a record: "
		    "%" PRIu64 " bytes of it were dropped",
		    o->found.dropped);
		o->reader->log(o->reader_ctx, &note);
	}
	return ret;
}

void ofs_overlay_recovered(const struct ofs_overlay *o, struct ofs_buf *out)
{
	struct ofs_overlay_status s;

	if (o->found.records == 0 && o->found.dropped == 0)
		return;
	ofs_overlay_status((struct ofs_overlay *)o, &s);
	ofs_buf_printf(out,
	    "continues with the changes of an earlier mount: %" PRIu64
	    " changed file%s\n",
	    s.files, s.files == 1 ? "" : "s");
	if (o->found.dropped > 0)
		ofs_buf_printf(out,
		    "OFS810 the journal ended in the middle of a record: "
		    "%" PRIu64 " bytes of it were dropped\n",
		    o->found.dropped);
	for (const struct ofs_overlay_file *f = o->files; f != NULL;
	     f = f->next) {
		char *path = f->lost.n == 0
		    ? NULL
		    : ofs_overlay_path(o, f->index, NULL, NULL);

		if (path != NULL)
			ofs_buf_printf(out, "%s: %s\n", path, f->why.text);
		free(path);
	}
}
