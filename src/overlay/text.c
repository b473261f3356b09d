/* text.c - writing texts: drafts and accepted texts */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/memory.h"
#include "overlay/overlay_impl.h"

/* A draft is visible to its writer. It may be truncated and invalid until it is
 * closed; then it must be valid. */

static struct ofs_blob *blob_of(const void *p, size_t n,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	ofs_buf_put(&b, p, n);
	return ofs_blob_of(&b, err);
}

/* The bytes of an added file. */
static struct ofs_blob *made_text(struct ofs_overlay *o,
    struct ofs_overlay_file *f, struct optimfs_error *err)
{
	struct ofs_blob *blob;

	if (f->size > OFS_TEXT_MAX) {
		optimfs_fail(err, E2BIG, "OFS806 a text of more than %u bytes",
		    OFS_TEXT_MAX);
		return NULL;
	}
	if (f->size > 0 && ofs_overlay_file_fd(o, f, err) == -1)
		return NULL;
	blob = ofs_blob_new(f->size, err);
	if (blob == NULL)
		return NULL;
	if (ofs_pread_all(f->fd, blob->bytes, f->size, 0, err) == -1) {
		ofs_blob_unref(blob);
		return NULL;
	}
	return blob;
}

struct ofs_blob *ofs_overlay_text_now(struct ofs_overlay *o,
    struct ofs_overlay_file *f, struct optimfs_error *err)
{
	if (f->entry == OFS_NONE)
		return made_text(o, f, err);
	if (f->has_draft)
		return blob_of(f->draft.data, f->draft.len, err);
	if (f->accepted != NULL)
		return ofs_blob_ref(f->accepted);
	return o->reader->text(o->reader_ctx, f->index, err);
}

/* Starts a draft. */
static int begin_draft(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	struct ofs_blob *now;

	if (f->has_draft)
		return 0;
	now = ofs_overlay_text_now(o, f, err);
	if (now == NULL)
		return -1;
	f->draft.len = 0;
	f->draft.bad = false;
	ofs_buf_put(&f->draft, now->bytes, now->len);
	ofs_blob_unref(now);
	if (f->draft.bad)
		return ofs_no_memory(err);
	f->has_draft = f->touched = true;
	return 0;
}

static int too_long(struct optimfs_error *err)
{
	return optimfs_fail(err, EFBIG, "OFS813 a text of more than %u bytes",
	    OFS_TEXT_MAX);
}

static int fill_to(struct ofs_overlay_file *f, uint64_t size,
    struct optimfs_error *err)
{
	if (size > OFS_TEXT_MAX)
		return too_long(err);
	while (f->draft.len < size && !f->draft.bad)
		ofs_buf_putc(&f->draft, '\0');
	return f->draft.bad ? ofs_no_memory(err) : 0;
}

/* Are all brackets outside of strings closed? */
static bool is_whole(const uint8_t *p, size_t n)
{
	bool quoted = false;
	int depth = 0;

	for (size_t i = 0; i < n; i++) {
		if (quoted && p[i] == '\\')
			i++;
		else if (p[i] == '"')
			quoted = !quoted;
		else if (!quoted && (p[i] == '[' || p[i] == '{'))
			depth++;
		else if (!quoted && (p[i] == ']' || p[i] == '}'))
			depth--;
	}
	return depth == 0;
}

/* Is the draft the text of the checkpoint whose names the new one has? Of an
 * object of an unknown class, no other is accepted. */
static bool is_original(const struct ofs_overlay *o,
    const struct ofs_overlay_file *f)
{
	struct ofs_blob *base;
	bool same;

	if (o->hidden == NULL ||
	    o->cat->entries[f->entry].kind == OFS_ENTRY_TENSOR)
		return false;
	base = o->reader->text(o->reader_ctx, f->index, NULL);
	same = base != NULL && base->len == f->draft.len &&
	    (base->len == 0 ||
		memcmp(base->bytes, f->draft.data, base->len) == 0);
	ofs_blob_unref(base);
	return same;
}

/* A text of one line is checked when its newline is written, because few
 * programs check the result of close. */
static int check_early(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	const uint8_t *p = f->draft.data;
	size_t n = f->draft.len;

	if (n == 0 || p[n - 1] != '\n' || memchr(p, '\n', n - 1) != NULL ||
	    ofs_tree_is_params(o->tree, f->index) || !is_whole(p, n) ||
	    is_original(o, f))
		return 0;
	return ofs_overlay_text_check(o, f->index, (const char *)p, n, NULL,
	    NULL, err);
}

int ofs_overlay_text_write(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err)
{
	if (off > OFS_TEXT_MAX || n > OFS_TEXT_MAX - off)
		return too_long(err);
	if (begin_draft(o, f, err) == -1 || fill_to(f, off + n, err) == -1)
		return -1;
	if (n > 0)
		memcpy(f->draft.data + off, buf, n);
	f->touched = true;
	return check_early(o, f, err);
}

int ofs_overlay_text_resize(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t size, struct optimfs_error *err)
{
	if (size > OFS_TEXT_MAX)
		return too_long(err);
	if (size == 0) {
		f->draft.len = 0;
		f->draft.bad = false;
		f->has_draft = true;
		f->touched = false;
		return 0;
	}
	if (begin_draft(o, f, err) == -1 || fill_to(f, size, err) == -1)
		return -1;
	f->draft.len = size;
	f->touched = true;
	return 0;
}

static int record_text(struct ofs_overlay *o, uint32_t index,
    const struct ofs_blob *text, struct optimfs_error *err)
{
	char *path = ofs_overlay_path(o, index, NULL, err);
	struct ofs_record r = { .type = OFS_REC_TEXT,
		.a = path == NULL ? "" : path,
		.b = text->bytes,
		.nb = text->len };
	int ret = ofs_overlay_record(o, &r, err);

	free(path);
	return ret;
}

int ofs_overlay_text_accept(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint32_t index, struct optimfs_error *err)
{
	struct ofs_overlay_node *v = ofs_overlay_node(o, index);
	struct ofs_buf canonical = { 0 };
	uint8_t element[16] = { 0 };
	struct ofs_blob *text = NULL;

	if (!f->has_draft)
		return 0;
	if (is_original(o, f))
		text = o->reader->text(o->reader_ctx, f->index, err);
	else if (ofs_overlay_text_check(o, f->index,
		     (const char *)f->draft.data, f->draft.len, &canonical,
		     element, err) == 0)
		text = ofs_blob_of(&canonical, err);
	ofs_buf_fini(&canonical);
	if (text == NULL)
		return -1;
	if (record_text(o, index, text, err) == -1) {
		ofs_blob_unref(text);
		return -1;
	}
	ofs_blob_unref(f->accepted);
	f->accepted = text;
	f->by = index;
	if (v != NULL) {
		ofs_blob_unref(v->accepted);
		v->accepted = ofs_blob_ref(text);
	}
	memcpy(f->element, element, sizeof(element));
	f->has_draft = f->touched = f->unwritten = false;
	ofs_overlay_changed(o,
	    ofs_entry_tensor(o->cat, &o->cat->entries[f->entry]) == NULL);
	return 0;
}

int ofs_overlay_text_set(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint32_t index, const void *text, uint64_t n, struct optimfs_error *err)
{
	if (ofs_overlay_text_resize(o, f, 0, err) == 0 &&
	    ofs_overlay_text_write(o, f, text, n, 0, err) == 0 &&
	    ofs_overlay_text_accept(o, f, index, err) == 0)
		return 0;
	f->has_draft = f->touched = false;
	return -1;
}

int ofs_overlay_text_take(struct ofs_overlay *o, struct ofs_overlay_file *from,
    struct ofs_overlay_file *to, uint32_t index, struct optimfs_error *err)
{
	struct ofs_blob *text;
	int ret;

	pthread_rwlock_wrlock(&from->lock);
	text = ofs_overlay_text_now(o, from, err);
	pthread_rwlock_unlock(&from->lock);
	if (text == NULL)
		return -1;
	pthread_rwlock_wrlock(&to->lock);
	ret = ofs_overlay_text_set(o, to, index, text->bytes, text->len, err);
	pthread_rwlock_unlock(&to->lock);
	ofs_blob_unref(text);
	return ret;
}

struct ofs_blob *ofs_overlay_accepted(struct ofs_overlay *o, uint32_t node)
{
	struct ofs_blob *text = NULL;
	struct ofs_overlay_file *f;

	if (atomic_load(&o->changed) == 0)
		return NULL;
	pthread_rwlock_rdlock(&o->names);
	f = ofs_overlay_file(o, node);
	if (f != NULL && f->text) {
		pthread_rwlock_rdlock(&f->lock);
		if (f->accepted != NULL)
			text = ofs_blob_ref(f->accepted);
		pthread_rwlock_unlock(&f->lock);
	}
	pthread_rwlock_unlock(&o->names);
	return text;
}
