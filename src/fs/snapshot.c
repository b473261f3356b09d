/* snapshot.c - one state of a checkpoint, between two commits */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/step.h"
#include "fs/fs.h"
#include "fs/view.h"
#include "rewrite/new_value.h"
#include "store/local.h"

/* A snapshot is freed with its last reference. There is one for the current
 * snapshot, one for each call that is under way (of a read-only file system,
 * calls need none), and one for each open file. A commit installs the next
 * snapshot, and drops the first of these. What keeps the old one, with its
 * catalog, tree, overlay and descriptors, is then a file that was opened before
 * the commit and is neither read again, which moves it to the next snapshot,
 * nor closed. None of them is being written: a commit refuses that. */

/* Default times and access, for files without an object. */
static void source_defaults(struct ofs_snapshot *snap)
{
	const struct ofs_catalog *cat = snap->cat;
	struct stat st;

	snap->access.now = cat->access;
	snap->mtime_ns = INT64_MIN;
	for (uint32_t i = 0; i < cat->nobjects; i++)
		if (!cat->objects[i].missing &&
		    cat->objects[i].mtime_ns > snap->mtime_ns)
			snap->mtime_ns = cat->objects[i].mtime_ns;
	if (snap->mtime_ns != INT64_MIN)
		return;
	snap->mtime_ns = 0;
	if (cat->dir.fd != -1 && fstat(cat->dir.fd, &st) == 0)
		snap->mtime_ns = ofs_time_ns(&st.st_mtim);
}

bool ofs_note_is_loss(const struct ofs_note *n)
{
	return n->kind == OFS_NOTE_MISSING && n->code != 0 &&
	    n->code != ENODATA;
}

/* For the option strict: fails at the first entry that cannot be read, lost
 * state, or warning with an errno. */
static int refuse_damage(const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < cat->nnotes; i++) {
		const struct ofs_note *n = &cat->notes[i];

		if (n->kind == OFS_NOTE_ERROR || ofs_note_is_loss(n) ||
		    (n->kind == OFS_NOTE_WARNING && n->code != 0))
			return optimfs_fail_as(err,
			    n->code == 0 ? EUCLEAN : n->code, "%s", n->text);
	}
	return 0;
}

static int build(struct ofs_snapshot *snap, struct optimfs_error *err)
{
	struct ofs_transport *t;

	if (snap->fs->options.strict && refuse_damage(snap->cat, err) == -1)
		return -1;
	if (ofs_step(snap->cat->dir.watch, "building the tree", 0, 0, err) ==
	    -1)
		return -1;
	snap->cat->dir.watch = NULL; /* the opening ends here */
	if (ofs_tree_build(&snap->tree, snap->cat, err) == -1)
		return -1;
	t = ofs_transport_of(snap->cat, snap->fs->options.cache, err);
	if (ofs_reader_init(&snap->reader, snap->cat, t, err) == -1)
		return -1;
	source_defaults(snap);
	if (ofs_indexes_init(snap, err) == -1 ||
	    ofs_texts_init(snap, err) == -1)
		return -1;
	if (ofs_views_init(snap, err) == -1 || ofs_spaces_init(snap, err) == -1)
		return -1;
	return 0;
}

static struct ofs_blob *base_text(void *ctx, uint32_t node,
    struct optimfs_error *err)
{
	return ofs_entry_text_base(ctx, node, err);
}

/* What a file shows may be written to it, even if it only names a value that
 * cannot be made from text: nothing changes. */
static bool is_shown(struct ofs_snapshot *snap, uint32_t node, const char *text,
    size_t n)
{
	struct ofs_blob *now = ofs_entry_text_base(snap, node, NULL);
	bool same = now != NULL && now->len == n &&
	    (n == 0 || memcmp(now->bytes, text, n) == 0);

	ofs_blob_unref(now);
	return same;
}

/* May the text replace that of a node? canonical (may be NULL) gets its usual
 * form; element (may be NULL) the bytes of a tensor's element. */
static int text_fits(void *ctx, uint32_t node, const char *text, size_t n,
    struct ofs_buf *canonical, uint8_t element[16], struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ctx;
	uint32_t entry = snap->tree.node[node].entry;
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&snap->tree, snap->cat, node);
	struct optimfs_error why = { 0 };
	struct ofs_entry_new new;
	char shown[80];
	int ret = 0;

	if (ofs_entry_new(&snap->reader, entry, text, n, &new, &why) == -1) {
		if (why.code != EOPNOTSUPP || !is_shown(snap, node, text, n))
			return optimfs_fail_with(err, &why);
		if (canonical != NULL)
			ofs_buf_put(canonical, text, n);
		return 0;
	}
	if (t != NULL && element != NULL)
		memcpy(element, new.element, sizeof(new.element));
	if (t != NULL && canonical != NULL) {
		ofs_buf_put(canonical, shown,
		    ofs_dtype_print(t->dtype, new.element, shown));
		ofs_buf_putc(canonical, '\n');
	} else if (canonical != NULL) {
		ret = ofs_value_text(snap, node, new.doc,
		    ofs_pickle_root(new.doc), canonical, err);
	}
	ofs_pickle_free(new.doc);
	return ret;
}

static void shut(void *ctx)
{
	ofs_set_replacing(((struct ofs_snapshot *)ctx)->fs, true);
}

static void log_error(void *ctx, const struct optimfs_error *why)
{
	optimfs_log_error(((struct ofs_snapshot *)ctx)->fs, why);
}

struct ofs_overlay_base ofs_snapshot_base(struct ofs_snapshot *snap)
{
	static const struct ofs_overlay_reader reader = {
		.text = base_text,
		.fits = text_fits,
		.shut = shut,
		.log = log_error,
	};

	return (struct ofs_overlay_base){
		.cat = snap->cat,
		.tree = &snap->tree,
		.first = snap->tree.n + OFS_NSTATIC,
		.reader = &reader,
		.ctx = snap,
	};
}

struct ofs_snapshot *ofs_snapshot_new(struct optimfs *fs,
    struct ofs_catalog *cat, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = calloc(1, sizeof(*snap));

	if (snap == NULL) {
		ofs_catalog_free(cat);
		ofs_no_memory(err);
		return NULL;
	}
	snap->fs = fs;
	atomic_init(&snap->refs, 1);
	snap->cat = cat;
	pthread_mutex_init(&snap->texts.lock, NULL);
	pthread_mutex_init(&snap->access.lock, NULL);
	for (size_t i = 0; i < OFS_NSTATIC; i++)
		ofs_lines_init(&snap->lines[i], ofs_static_nodes[i].lines);
	if (build(snap, err) == 0)
		return snap;
	ofs_snapshot_unref(snap);
	return NULL;
}

struct ofs_snapshot *ofs_snapshot_ref(struct ofs_snapshot *snap)
{
	atomic_fetch_add(&snap->refs, 1);
	return snap;
}

void ofs_snapshot_unref(struct ofs_snapshot *snap)
{
	if (snap == NULL || atomic_fetch_sub(&snap->refs, 1) != 1)
		return;
	ofs_overlay_free(snap->overlay);
	ofs_views_fini(snap);
	ofs_spaces_fini(snap);
	ofs_texts_fini(snap);
	ofs_reader_fini(&snap->reader);
	ofs_tree_fini(&snap->tree);
	ofs_catalog_free(snap->cat);
	for (size_t i = 0; i < OFS_NSTATIC; i++)
		ofs_lines_fini(&snap->lines[i]);
	pthread_mutex_destroy(&snap->access.lock);
	free(snap);
}
