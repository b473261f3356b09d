/* view_table.c - the views that are known by number */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/view_table.h"

#include <string.h>

#include "fs/view_impl.h"

#define GIVEN_MAX (OFS_VIEW_NUMBERS / OFS_VIEW_SLOTS)

void ofs_view_table_init(struct ofs_view_table *t)
{
	pthread_mutex_init(&t->lock, NULL);
}

void ofs_view_table_fini(struct ofs_view_table *t)
{
	pthread_mutex_destroy(&t->lock);
}

bool ofs_view_table_follow(struct ofs_view_table *t, struct ofs_view_table *now)
{
	bool left = true;

	pthread_mutex_lock(&now->lock);
	for (uint32_t i = 0; i < OFS_VIEW_SLOTS; i++) {
		const struct ofs_view_slot *s = &now->slot[i];

		t->slot[i].given = s->given + (s->view != NULL);
		left &= t->slot[i].given < GIVEN_MAX;
	}
	pthread_mutex_unlock(&now->lock);
	if (!left)
		memset(t->slot, 0, sizeof(t->slot));
	return left;
}

bool ofs_view_table_past(struct ofs_view_table *t, uint32_t number)
{
	bool past;

	pthread_mutex_lock(&t->lock);
	past = number / OFS_VIEW_SLOTS < t->slot[number % OFS_VIEW_SLOTS].given;
	pthread_mutex_unlock(&t->lock);
	return past;
}

/* The lock is held. */
static struct ofs_view_dir *pin(struct ofs_view_table *t,
    struct ofs_view_dir *v)
{
	v->pins++;
	v->used = ++t->clock;
	return v;
}

struct ofs_view_dir *ofs_view_table_get(struct ofs_view_table *t,
    uint32_t number)
{
	struct ofs_view_dir *v;

	pthread_mutex_lock(&t->lock);
	v = t->slot[number % OFS_VIEW_SLOTS].view;
	v = v == NULL || v->number != number ? NULL : pin(t, v);
	pthread_mutex_unlock(&t->lock);
	return v;
}

struct ofs_view_dir *ofs_view_table_find(struct ofs_view_table *t,
    const struct ofs_layout *layout, uint64_t generation)
{
	struct ofs_view_dir *found = NULL;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < OFS_VIEW_SLOTS && found == NULL; i++) {
		struct ofs_view_dir *v = t->slot[i].view;

		if (v != NULL && !v->retired && v->generation == generation &&
		    ofs_layout_same(&v->layout, layout))
			found = pin(t, v);
	}
	pthread_mutex_unlock(&t->lock);
	return found;
}

void ofs_view_table_put(struct ofs_view_table *t, struct ofs_view_dir *v)
{
	pthread_mutex_lock(&t->lock);
	v->pins--;
	pthread_mutex_unlock(&t->lock);
}

bool ofs_view_table_add(struct ofs_view_table *t, struct ofs_view_dir *v)
{
	struct ofs_view_slot *s = t->slot;
	uint32_t i = 0;

	pthread_mutex_lock(&t->lock);
	while (i < OFS_VIEW_SLOTS &&
	    (s[i].view != NULL || s[i].given == GIVEN_MAX))
		i++;
	if (i < OFS_VIEW_SLOTS) {
		v->number = s[i].given * OFS_VIEW_SLOTS + i;
		s[i].view = pin(t, v);
	}
	pthread_mutex_unlock(&t->lock);
	return i < OFS_VIEW_SLOTS;
}

static bool has_names(struct ofs_view_dir *v)
{
	return atomic_load(&v->names) != NULL;
}

/* Is a to be dropped rather than b? */
static bool less_used(struct ofs_view_dir *a, struct ofs_view_dir *b)
{
	if (b == NULL || has_names(a) != has_names(b))
		return b == NULL || has_names(b);
	return a->used < b->used;
}

struct ofs_view_dir *ofs_view_table_drop(struct ofs_view_table *t, bool named)
{
	struct ofs_view_slot *oldest = NULL;
	struct ofs_view_dir *v;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < OFS_VIEW_SLOTS; i++) {
		v = t->slot[i].view;
		if (v != NULL && v->pins == 0 && v->users == 0 &&
		    (!named || has_names(v)) &&
		    less_used(v, oldest == NULL ? NULL : oldest->view))
			oldest = &t->slot[i];
	}
	v = NULL;
	if (oldest != NULL) {
		v = oldest->view;
		oldest->view = NULL;
		oldest->given++;
	}
	pthread_mutex_unlock(&t->lock);
	return v;
}

void ofs_view_table_retire(struct ofs_view_table *t)
{
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < OFS_VIEW_SLOTS; i++)
		if (t->slot[i].view != NULL)
			t->slot[i].view->retired = true;
	pthread_mutex_unlock(&t->lock);
}
