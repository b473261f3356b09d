/* view_table.h - the views that are known by number */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_VIEW_TABLE_H
#define OFS_FS_VIEW_TABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "layout/render.h"

/* A view takes a slot when its name is looked up. Anybody who reads a mount can
 * look up any number of names, so when all slots are taken, the view that was
 * unused for longest makes room. Its number is never used again, because the
 * kernel, and the caller of a lookup, may still know it: whoever uses it gets
 * ESTALE and looks the name up again. So a number is that of a slot and of how
 * often the slot was given away.
 *
 * A view stays while it is pinned (_get, _find) or has users (view_impl.h). All
 * functions may be called by any thread; _add, _drop and _retire only with the
 * lock of the users of all views. */
#define OFS_VIEW_SLOTS   1024u
#define OFS_VIEW_NUMBERS (1u << 28)

struct ofs_view_dir;
struct ofs_view_table {
	pthread_mutex_t lock; /* protects the members below */
	uint64_t clock;       /* uses so far */
	struct ofs_view_slot {
		struct ofs_view_dir *view; /* NULL: free */
		uint32_t given; /* how often the slot was given away */
	} slot[OFS_VIEW_SLOTS];
};

void ofs_view_table_init(struct ofs_view_table *t);
/* Frees nothing: the views are taken out with _drop before. */
void ofs_view_table_fini(struct ofs_view_table *t);
/* Numbers the views of t, which has none, differently from those of now. False:
 * there are no numbers left. */
bool ofs_view_table_follow(struct ofs_view_table *t,
    struct ofs_view_table *now);
/* Did a view have this number that is not here any more? */
bool ofs_view_table_past(struct ofs_view_table *t, uint32_t number);

/* The view with this number, or of this layout and generation, pinned; NULL:
 * there is none. */
struct ofs_view_dir *ofs_view_table_get(struct ofs_view_table *t,
    uint32_t number);
struct ofs_view_dir *ofs_view_table_find(struct ofs_view_table *t,
    const struct ofs_layout *layout, uint64_t generation);
void ofs_view_table_put(struct ofs_view_table *t, struct ofs_view_dir *v);

/* Gives v a number and pins it. False: no slot is free. */
bool ofs_view_table_add(struct ofs_view_table *t, struct ofs_view_dir *v);
/* Takes out the view that was unused for longest, first those whose files nobody
 * has looked up; named: only one that keeps names of files. It is the caller's
 * to free. NULL: all are in use. */
struct ofs_view_dir *ofs_view_table_drop(struct ofs_view_table *t, bool named);
/* From now on _find finds none of the views that are here. */
void ofs_view_table_retire(struct ofs_view_table *t);

#endif
