/* keys.c - keys of a DCP index -> paths and entries */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "format/dcp/dcp.h"

static struct ofs_str key_name(const struct ofs_dcp_index *index, uint32_t pair)
{
	return ofs_pk_str(index->doc,
	    ofs_pk_key(index->doc, index->keys, pair));
}

static uint32_t component(struct ofs_dcp *d, const struct ofs_pickle *doc,
    uint32_t node, struct optimfs_error *err)
{
	struct ofs_dcp_seen *seen = &d->strs[node % OFS_DCP_SEEN];
	struct ofs_str s;
	char digits[24];
	uint32_t c;
	int64_t i;

	/* the keys of a parameter and its states share their nodes */
	if (seen->doc == doc && seen->node == node)
		return seen->index;
	if (ofs_pk_int(doc, node, &i)) {
		c = ofs_catalog_str(d->cat, digits,
		    (size_t)snprintf(digits, sizeof(digits), "%" PRId64, i),
		    err);
		return c | OFS_PATH_INDEX;
	}
	s = ofs_pk_str(doc, node);
	c = ofs_catalog_str(d->cat, s.p, s.len, err);
	if (c != OFS_NONE)
		*seen = (struct ofs_dcp_seen){ doc, node, c };
	return c;
}

/* Is node a tuple of keys and list indexes whose text is key? */
static bool is_path(const struct ofs_pickle *doc, uint32_t node)
{
	uint32_t n;
	int64_t i;

	if (ofs_pk_kind(doc, node) != OFS_PK_TUPLE &&
	    ofs_pk_kind(doc, node) != OFS_PK_LIST)
		return false;
	n = ofs_pk_len(doc, node);
	for (uint32_t k = 0; k < n; k++) {
		uint32_t c = ofs_pk_item(doc, node, k);

		if (ofs_pk_kind(doc, c) != OFS_PK_STR &&
		    !ofs_pk_int(doc, c, &i))
			return false;
	}
	return n > 0 && n <= OFS_DCP_PATH_MAX;
}

/* The path of a key. */
struct key_path {
	uint32_t key, n; /* number of the key; of components */
	uint32_t c[OFS_PART_PREFIX + OFS_DCP_PATH_MAX];
};

/* Find the components of a key's path: the tuple in planner_data, which
 * distinguishes a dot in a name from one between names. pair is its item there;
 * without one (OFS_NONE) the key is one component. */
static int find_path(struct ofs_dcp *d, uint32_t number, uint32_t pair,
    struct key_path *to, struct optimfs_error *err)
{
	struct ofs_dcp_key *key = &d->key[number];
	const struct ofs_dcp_index *index = &d->index[key->index];
	struct ofs_str name = key_name(index, key->pair);
	uint32_t *c = to->c, n = d->nprefix;
	uint32_t node = ofs_pk_val(index->doc, index->planner, pair);

	memcpy(c, d->prefix, n * sizeof(c[0]));
	if (node != OFS_NONE && !is_path(index->doc, node)) {
		if (ofs_catalog_note(d->cat, OFS_NOTE_WARNING, EUCLEAN, err,
			"OFS618 planner_data of '%.*s' is not a path",
			OFS_STR_ARGS(name, 200)) == -1)
			return -1;
		node = OFS_NONE;
	}
	if (node == OFS_NONE) {
		c[n++] = ofs_catalog_str(d->cat, name.p, name.len, err);
		key->structural = index->planner == OFS_NONE;
	} else {
		for (uint32_t i = 0; i < ofs_pk_len(index->doc, node);
		     i++, n++) {
			c[n] = component(d, index->doc,
			    ofs_pk_item(index->doc, node, i), err);
			if (c[n] == OFS_NONE)
				return -1;
		}
		key->structural =
		    ofs_dcp_structural(d->cat, c + d->nprefix, n - d->nprefix);
	}
	to->key = number;
	to->n = n;
	ofs_catalog_path_prefetch(d->cat, c, n);
	return 0;
}

/* Set the path of a key, unless there is none (no components). */
static int set_path(struct ofs_dcp *d, const struct key_path *path,
    struct optimfs_error *err)
{
	uint32_t *to = &d->key[path->key].path;

	if (path->n == 0)
		return 0;
	*to = ofs_catalog_path(d->cat, path->c, path->n, err);
	return *to == OFS_NONE ? -1 : 0;
}

uint32_t ofs_dcp_node(const struct ofs_dcp *d, const struct ofs_dcp_key *key)
{
	const struct ofs_dcp_index *index = &d->index[key->index];

	return ofs_pk_val(index->doc, index->keys, key->pair);
}

/* Is this the name of the key? For struct ofs_map. */
static bool same_name(const void *ctx, uint32_t key, const void *want, size_t n)
{
	const struct ofs_dcp *d = ctx;
	const struct ofs_dcp_index *index = &d->index[d->key[key].index];
	struct ofs_str s = ofs_pk_str(index->doc,
	    ofs_pk_key(index->doc, index->keys, d->key[key].pair));

	return s.len == n && memcmp(s.p, want, n) == 0;
}

/* Values that are not tensors. */

/* Make an item unreadable. If it has no file, its object is the index. */
static int spoil(struct ofs_dcp *d, const struct ofs_dcp_index *index,
    struct ofs_item *item, struct ofs_str name, int code, const char *text,
    struct optimfs_error *err)
{
	if (item->at.object == OFS_NONE)
		item->at = (struct ofs_extent){ .object = index->object };
	item->error = ofs_dcp_problem(d, name, code, text, err);
	return item->error == OFS_NONE ? -1 : 0;
}

static int read_item(struct ofs_dcp *d, const struct ofs_dcp_key *key,
    struct ofs_str name, struct ofs_item *item, struct optimfs_error *err)
{
	struct ofs_dcp_index *index = &d->index[key->index];
	uint32_t node = ofs_pk_key(index->doc, index->keys, key->pair);
	struct ofs_dcp_place place;
	struct optimfs_error why;

	if (!ofs_dcp_index_find(index, node, OFS_NONE, &place))
		return spoil(d, index, item, name, EIO,
		    "OFS613 the index does not say where it is stored", err);
	if (ofs_dcp_extent(d, index->doc, &place, &item->at, &why, err) == -1)
		return -1;
	return why.code == 0
	    ? 0
	    : spoil(d, index, item, name, why.code, why.text, err);
}

/* Values with structure are read at mount up to limits; beyond them they stay
 * single files. */
static bool may_expand(const struct ofs_dcp *d, const struct ofs_item *item)
{
	const struct ofs_object *o;

	if (item->error != OFS_NONE || d->npending >= OFS_DCP_EXPAND_ITEMS ||
	    item->at.len > OFS_DCP_EXPAND_ITEM ||
	    d->pending_bytes + item->at.len > OFS_DCP_EXPAND_BYTES)
		return false;
	o = &d->cat->objects[item->at.object];
	return !o->missing && !o->refused;
}

/* "optim.param_groups.0." of the key of such a list; empty: it is none. */
static struct ofs_str group_of_list(struct ofs_str name, const char *list)
{
	struct ofs_str stem = name;

	if (!ofs_str_ends(name, list))
		return (struct ofs_str){ "", 0 };
	stem.len -= (uint32_t)strlen(list);
	name = stem;
	while (stem.len > 0 && isdigit((unsigned char)stem.p[stem.len - 1]))
		stem.len--;
	return stem.len < name.len && ofs_str_ends(stem, "param_groups.")
	    ? name
	    : (struct ofs_str){ "", 0 };
}

/* Is it a list that gives the parameters of a numbered group their names, or
 * the IDs that have them (naming/ids_groups.c)? */
static bool names_ids(const struct ofs_dcp *d, struct ofs_str name)
{
	struct ofs_str group = group_of_list(name, ".params");
	char names[300];
	int n;

	if (group.len == 0)
		return group_of_list(name, ".param_names").len > 0;
	n = snprintf(names, sizeof(names), "%.*s.param_names",
	    OFS_STR_ARGS(group, 250));
	return ofs_map_find(&d->by_name, ofs_map_hash(names, (size_t)n),
		   same_name, d, names, (size_t)n) != UINT32_MAX;
}

static int add_item(struct ofs_dcp *d, const struct ofs_dcp_key *key,
    struct ofs_str name, struct optimfs_error *err)
{
	bool read = key->structural || names_ids(d, name);
	struct ofs_item item = { .at.object = OFS_NONE, .error = OFS_NONE };

	if (key->next != OFS_NONE)
		d->nrepeated++;
	if (read_item(d, key, name, &item, err) == -1)
		return -1;
	if (!read || !may_expand(d, &item))
		return ofs_catalog_add(d->cat, key->path, OFS_ENTRY_ITEM,
		    ofs_catalog_item(d->cat, &item, err), OFS_KEY_FREE, err);
	if (ofs_grow(d->pending, d->npending, d->pending_cap, err) == -1)
		return -1;
	d->pending_bytes += item.at.len;
	d->pending[d->npending++] = (struct ofs_dcp_pending){ item, key->path };
	return 0;
}

static int add_unknown(struct ofs_dcp *d, const struct ofs_dcp_key *key,
    struct ofs_str name, struct optimfs_error *err)
{
	const struct ofs_dcp_index *index = &d->index[key->index];
	struct ofs_item item = { .at.object = OFS_NONE };
	char text[200];

	snprintf(text, sizeof(text),
	    "OFS625 neither a tensor nor a value in the index, but %s",
	    ofs_pk_kind_name(index->doc, ofs_dcp_node(d, key)));
	if (spoil(d, index, &item, name, EUCLEAN, text, err) == -1)
		return -1;
	return ofs_catalog_add(d->cat, key->path, OFS_ENTRY_ITEM,
	    ofs_catalog_item(d->cat, &item, err), OFS_KEY_FREE, err);
}

static int add_key(struct ofs_dcp *d, struct ofs_dcp_key *key,
    struct optimfs_error *err)
{
	const struct ofs_dcp_index *index = &d->index[key->index];
	const struct ofs_pickle *doc = index->doc;
	uint32_t node = ofs_dcp_node(d, key);
	struct ofs_str name = key_name(index, key->pair);
	uint32_t field[OFS_PK_FIELDS];

	ofs_pk_read_fields(doc, node, &d->tensor, field);
	if (field[OFS_DCP_CHUNKS] != OFS_NONE) {
		if (ofs_dcp_add_tensor(d, key, name, field, err) == -1)
			return -1;
		key->explained = d->cat->ntensors > 0 &&
		    d->cat->tensors[d->cat->ntensors - 1].error != OFS_NONE;
		return 0;
	}
	key->explained = key->next != OFS_NONE;
	if (ofs_pk_is(doc, node, NULL, "BytesStorageMetadata"))
		return add_item(d, key, name, err);
	return add_unknown(d, key, name, err);
}

/* The keys of all indexes, by name. */

static int collect_key(struct ofs_dcp *d, uint32_t index, uint32_t pair,
    uint32_t hash, struct optimfs_error *err)
{
	const struct ofs_dcp_index *at = &d->index[index];
	uint32_t node = ofs_pk_key(at->doc, at->keys, pair), first, me;
	struct ofs_str s = ofs_pk_str(at->doc, node);

	if (ofs_pk_kind(at->doc, node) != OFS_PK_STR)
		return ofs_pk_unexpected(at->doc, node, err, "OFS442", "str",
		    "a key of state_dict_metadata");
	me = d->nkeys;
	d->key[me] = (struct ofs_dcp_key){
		.index = index,
		.pair = pair,
		.next = OFS_NONE,
		.last = me,
		.path = OFS_NONE,
	};
	first = ofs_map_find(&d->by_name, hash, same_name, d, s.p, s.len);
	if (first == UINT32_MAX) {
		if (!ofs_map_add(&d->by_name, hash, me))
			return ofs_no_memory(err);
		d->nkeys++;
		return 0;
	}
	if (d->key[d->key[first].last].index == index)
		return optimfs_fail(err, EUCLEAN,
		    "OFS428 duplicate key '%.*s' in state_dict_metadata "
		    "(Python keeps the last: ambiguous)",
		    OFS_STR_ARGS(s, 200));
	d->key[d->key[first].last].next = me;
	d->key[first].last = me;
	d->key[me].last = OFS_NONE;
	d->nkeys++;
	return 0;
}

/* The first key with this name, a node of index; UINT32_MAX. guess is tried
 * first, because most dictionaries have the same order. */
static uint32_t find_key(const struct ofs_dcp *d, uint32_t index, uint32_t node,
    uint32_t guess)
{
	const struct ofs_dcp_index *at = &d->index[index];
	struct ofs_str s;

	if (guess < d->nkeys && d->key[guess].index == index &&
	    d->key[guess].last != OFS_NONE &&
	    ofs_pk_key(at->doc, at->keys, d->key[guess].pair) == node)
		return guess;
	s = ofs_pk_str(at->doc, node);
	return ofs_map_find(&d->by_name, ofs_map_hash(s.p, s.len), same_name, d,
	    s.p, s.len);
}

static uint32_t nplanned(const struct ofs_dcp_index *index)
{
	return index->planner == OFS_NONE
	    ? 0
	    : ofs_pk_len(index->doc, index->planner);
}

/* Prefetch what the path of pair will look up: its last component. */
static void prefetch_path(const struct ofs_dcp *d,
    const struct ofs_dcp_index *at, uint32_t pair)
{
	uint32_t path = ofs_pk_val(at->doc, at->planner, pair);
	struct ofs_str last = ofs_pk_str(at->doc,
	    ofs_pk_item(at->doc, path, ofs_pk_len(at->doc, path) - 1));

	ofs_catalog_prefetch(d->cat, last.p, last.len);
}

static void swap(struct key_path **a, struct key_path **b)
{
	struct key_path *c = *a;

	*a = *b;
	*b = c;
}

/* Set the paths of the keys in planner_data, and append them to order, which
 * has n. */
static int plan(struct ofs_dcp *d, uint32_t index, uint32_t *order, uint32_t *n,
    struct optimfs_error *err)
{
	const struct ofs_dcp_index *at = &d->index[index];
	/* A path is looked up when the next one is known, because its prefetch
	 * takes as long. */
	struct key_path path[2] = { { .n = 0 } }, *last = &path[0],
			*this = &path[1];
	uint32_t key = UINT32_MAX;

	for (uint32_t pair = 0; pair < nplanned(at); pair++) {
		uint32_t node = ofs_pk_key(at->doc, at->planner, pair);

		prefetch_path(d, at, pair + 1);
		key = find_key(d, index, node, key + 1);
		if (key == UINT32_MAX) {
			d->nstray++;
			continue;
		}
		order[(*n)++] = key;
		/* of a repeated key keep the first */
		if (d->key[key].index != index ||
		    d->key[key].path != OFS_NONE ||
		    (last->n > 0 && last->key == key) ||
		    ofs_pk_kind(at->doc, node) != OFS_PK_STR)
			continue;
		if (find_path(d, key, pair, this, err) == -1 ||
		    set_path(d, last, err) == -1)
			return -1;
		swap(&last, &this);
	}
	return set_path(d, last, err);
}

/* Add a key unless it was added. */
static int add_once(struct ofs_dcp *d, uint32_t key, struct optimfs_error *err)
{
	if (d->key[key].last == OFS_NONE)
		return 0;
	d->key[key].last = OFS_NONE;
	return add_key(d, &d->key[key], err);
}

/* Prefetch what add_key will look up: the item of the first chunk. */
static void prefetch_item(const struct ofs_dcp *d,
    const struct ofs_dcp_key *key)
{
	const struct ofs_dcp_index *at = &d->index[key->index];
	uint32_t chunks;

	if (at->in_order)
		return;
	chunks = ofs_pk_attr(at->doc, ofs_dcp_node(d, key), "chunks");
	ofs_dcp_index_prefetch(at, ofs_pk_key(at->doc, at->keys, key->pair),
	    ofs_pk_attr(at->doc, ofs_pk_item(at->doc, chunks, 0), "offsets"));
}

static int collect_keys(struct ofs_dcp *d, uint32_t index,
    struct optimfs_error *err)
{
	const struct ofs_dcp_index *at = &d->index[index];
	uint32_t n = ofs_pk_len(at->doc, at->keys), hash, next;
	struct ofs_str name = key_name(at, 0);

	if (!ofs_map_reserve(&d->by_name, d->nkeys + n))
		return ofs_no_memory(err);
	if (ofs_reserve(d->key, (uint64_t)d->nkeys + n, d->key_cap, err) == -1)
		return -1;
	if (ofs_catalog_expect(d->cat, n, at->nitems, err) == -1)
		return -1;
	next = ofs_map_hash(name.p, name.len);
	for (uint32_t pair = 0; pair < n; pair++) {
		hash = next;
		name = key_name(at, pair + 1); /* empty behind the last */
		next = ofs_map_hash(name.p, name.len);
		ofs_map_prefetch(&d->by_name, next);
		if (collect_key(d, index, pair, hash, err) == -1)
			return -1;
	}
	return 0;
}

/* The items of all indexes are read by a thread while the keys get their paths.
 * Each takes a tenth of a mount, and both only read the graph. */
struct items {
	struct ofs_dcp *d;
	struct optimfs_error err;
	int ret;
};

static void *read_items(void *arg)
{
	struct items *work = arg;

	for (uint32_t i = 0; i < work->d->nindex && work->ret == 0; i++) {
		struct ofs_dcp_index *index = &work->d->index[i];

		work->ret = ofs_dcp_index_items(index, &work->err);
		if (work->ret == -1)
			optimfs_fail_in(&work->err, "%s",
			    work->d->cat->objects[index->object].path);
	}
	return NULL;
}

/* Set the paths of all keys. order gets the keys that are in planner_data. */
static int read_keys(struct ofs_dcp *d, uint32_t **order, uint32_t *n,
    struct optimfs_error *err)
{
	struct key_path path;
	size_t max = 0;

	for (uint32_t i = 0; i < d->nindex; i++) {
		if (collect_keys(d, i, err) == -1)
			return -1;
		max += nplanned(&d->index[i]);
	}
	*order = malloc((max + 1) * sizeof(**order));
	if (*order == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < d->nindex; i++)
		if (plan(d, i, *order, n, err) == -1)
			return -1;
	for (uint32_t i = 0; i < d->nkeys; i++)
		if (d->key[i].last != OFS_NONE && d->key[i].path == OFS_NONE &&
		    (find_path(d, i, OFS_NONE, &path, err) == -1 ||
			set_path(d, &path, err) == -1))
			return -1;
	return 0;
}

static int read_both(struct ofs_dcp *d, uint32_t **order, uint32_t *n,
    struct optimfs_error *err)
{
	struct items work = { .d = d };
	pthread_t thread;
	bool beside = pthread_create(&thread, NULL, read_items, &work) == 0;
	int ret;

	if (!beside)
		read_items(&work);
	ret = read_keys(d, order, n, err);
	if (beside)
		pthread_join(thread, NULL);
	if (work.ret == -1)
		return optimfs_fail_with(err, &work.err);
	return ret;
}

/* planner_data has the order of the state dict, unless ranks had different
 * keys; the order of state_dict_metadata depends on how the tensors were
 * distributed over ranks (docs/formats/dcp.md). It is kept for what is shown
 * in the order of entries; names for IDs need more than that. */
int ofs_dcp_add_keys(struct ofs_dcp *d, struct optimfs_error *err)
{
	uint32_t *order = NULL, n = 0;
	int ret = read_both(d, &order, &n, err);

	for (uint32_t i = 0; i < n && ret == 0; i++) {
		if (i % OFS_STEP_EVERY == 0)
			ret = ofs_step(d->cat->dir.watch, "adding tensors", i,
			    n, err);
		if (i + 1 < n)
			prefetch_item(d, &d->key[order[i + 1]]);
		if (ret == 0)
			ret = add_once(d, order[i], err);
	}
	free(order);
	for (uint32_t i = 0; i < d->nkeys && ret == 0; i++)
		ret = add_once(d, i, err);
	return ret;
}

/* Does another note explain why items of this name are not used? */
static bool is_explained(const struct ofs_dcp *d, uint32_t index, uint32_t node)
{
	uint32_t key = find_key(d, index, node, UINT32_MAX);

	return key != UINT32_MAX && d->key[key].explained;
}

int ofs_dcp_check_unused(struct ofs_dcp *d, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < d->nindex; i++) {
		const struct ofs_dcp_index *index = &d->index[i];

		for (uint32_t k = 0; k < index->nitems; k++)
			if (!index->item[k].used &&
			    !is_explained(d, i, index->item[k].fqn) &&
			    ofs_catalog_note(d->cat, OFS_NOTE_WARNING, EUCLEAN,
				err,
				"OFS613 storage_data has an item of '%.*s' "
				"that no tensor or value uses",
				OFS_STR_ARGS(ofs_pk_str(index->doc,
						 index->item[k].fqn),
				    200)) == -1)
				return -1;
	}
	return 0;
}

static int check_strays(struct ofs_dcp *d, uint32_t index,
    struct optimfs_error *err)
{
	const struct ofs_dcp_index *at = &d->index[index];

	for (uint32_t pair = 0; pair < nplanned(at); pair++) {
		uint32_t node = ofs_pk_key(at->doc, at->planner, pair);

		if (find_key(d, index, node, UINT32_MAX) == UINT32_MAX &&
		    ofs_catalog_note(d->cat, OFS_NOTE_WARNING, EUCLEAN, err,
			"OFS618 planner_data names '%.*s', which the "
			"checkpoint lacks",
			OFS_STR_ARGS(ofs_pk_str(at->doc, node), 200)) == -1)
			return -1;
	}
	return 0;
}

int ofs_dcp_check_planner(struct ofs_dcp *d, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < d->nindex; i++) {
		if (d->index[i].odd_planner &&
		    ofs_catalog_note(d->cat, OFS_NOTE_WARNING, EUCLEAN, err,
			"OFS618 planner_data is not a dictionary: ignored") ==
			-1)
			return -1;
		if (d->nstray > 0 && check_strays(d, i, err) == -1)
			return -1;
	}
	return 0;
}
