/* model.c - the weights of a DeepSpeed checkpoint, and its other values */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/zero/zero.h"

static uint32_t root_of(const struct ofs_zero *z, uint32_t file)
{
	return ofs_pickle_root(z->model.file[file].doc);
}

/* The value of key in the first weight file that has it. */
static uint32_t first_with(const struct ofs_zero *z, const char *key,
    const struct ofs_pickle **doc)
{
	for (uint32_t i = 0; i < z->model.nfiles; i++) {
		uint32_t node =
		    ofs_pk_get(z->model.file[i].doc, root_of(z, i), key);

		*doc = z->model.file[i].doc;
		if (node != OFS_NONE && ofs_pk_kind(*doc, node) != OFS_PK_NONE)
			return node;
	}
	return OFS_NONE;
}

/* Only the first rank records which parameters have two names. */
static int read_names(struct ofs_zero *z, struct optimfs_error *err)
{
	const struct ofs_pickle *doc = NULL;
	uint32_t node = first_with(z, "shared_params", &doc);

	if (node != OFS_NONE &&
	    ofs_pk_names_init(&z->shared, doc, node, err) == -1)
		return -1;
	node = first_with(z, "module", &doc);
	return node == OFS_NONE ? 0
				: ofs_pk_names_init(&z->module, doc, node, err);
}

int ofs_zero_read_shapes(struct ofs_zero *z, struct optimfs_error *err)
{
	const struct ofs_pickle *doc = NULL;
	uint32_t node = first_with(z, "param_shapes", &doc);

	/* until 2022 they were in the optimizer's files */
	for (uint32_t i = 0; node == OFS_NONE && i < z->optim.nfiles; i++) {
		doc = z->optim.file[i].doc;
		node = ofs_pk_get(doc,
		    ofs_pk_get(doc, ofs_pickle_root(doc),
			"optimizer_state_dict"),
		    "param_shapes");
	}
	if (node == OFS_NONE)
		return 1;
	if (ofs_zero_shapes_read(&z->shapes, doc, node, err) == -1 ||
	    read_names(z, err) == -1)
		return -1;
	node = first_with(z, "frozen_param_shapes", &doc);
	return node == OFS_NONE
	    ? 0
	    : ofs_zero_shapes_read(&z->frozen, doc, node, err);
}

/* Collecting. */

/* The parameter that alias is another name of; "": none. */
static struct ofs_str owner_of(const struct ofs_zero *z, struct ofs_str alias)
{
	if (z->shared.names.n == 0)
		return (struct ofs_str){ "", 0 };
	return ofs_pk_str(z->shared.doc, ofs_pk_names_val(&z->shared, alias));
}

/* In stage 3 a rank's file has an empty tensor in place of a parameter. */
static bool is_empty(const struct ofs_pickle *doc, uint32_t node)
{
	struct ofs_torch_tensor t;

	return ofs_torch_tensor(doc, node, &t, NULL) == 1 && t.ndim == 1 &&
	    t.shape[0] == 0;
}

static bool is_elsewhere(const struct ofs_zero *z, struct ofs_str name)
{
	return ofs_zero_find(&z->shapes, name) != OFS_NONE ||
	    ofs_zero_find(&z->frozen, name) != OFS_NONE ||
	    owner_of(z, name).len > 0;
}

/* Collects an entry of the dict module. */
static int collect_weight(struct ofs_zero *z, uint32_t file, uint32_t key,
    uint32_t node, struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->model.file[file].doc;
	struct ofs_str s = ofs_pk_str(doc, key);
	uint32_t part[2];

	if (ofs_pk_kind(doc, key) != OFS_PK_STR)
		return ofs_pk_unexpected(doc, key, err, "OFS695", "str",
		    "a name in module");
	if (z->sharded && is_empty(doc, node) && is_elsewhere(z, s))
		return 0;
	part[0] = ofs_zero_word(z, "model", err);
	part[1] = ofs_catalog_str(z->cat, s.p, s.len, err);
	return ofs_zero_collect(z, &z->model, file, node, part, 2, err);
}

static int collect_module(struct ofs_zero *z, uint32_t file, uint32_t module,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->model.file[file].doc;

	for (uint32_t i = 0; i < ofs_pk_len(doc, module); i++)
		if (collect_weight(z, file, ofs_pk_key(doc, module, i),
			ofs_pk_val(doc, module, i), err) == -1)
			return -1;
	return 0;
}

/* Does key only describe the layout? */
static bool is_layout(const struct ofs_zero *z, const struct ofs_pickle *doc,
    struct ofs_str key, uint32_t node)
{
	static const char *const words[] = { "param_shapes",
		"frozen_param_shapes", "frozen_param_fragments" };

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (ofs_str_is(key, words[i]))
			return true;
	/* then the optimizer is in other files */
	return ofs_str_is(key, "optimizer") &&
	    (z->master != NULL || z->by_id ||
		ofs_pk_kind(doc, node) == OFS_PK_NONE);
}

static int collect_file(struct ofs_zero *z, uint32_t file,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->model.file[file].doc;
	uint32_t root = root_of(z, file);

	for (uint32_t i = 0; i < ofs_pk_len(doc, root); i++) {
		uint32_t key = ofs_pk_key(doc, root, i);
		uint32_t node = ofs_pk_val(doc, root, i), part;
		struct ofs_str s = ofs_pk_str(doc, key);

		if (ofs_pk_kind(doc, key) == OFS_PK_STR &&
		    ofs_str_is(s, "module")) {
			if (ofs_pk_kind(doc, node) == OFS_PK_DICT &&
			    collect_module(z, file, node, err) == -1)
				return -1;
			continue;
		}
		if (z->hidden || ofs_pk_kind(doc, key) != OFS_PK_STR ||
		    is_layout(z, doc, s, node))
			continue;
		part = ofs_catalog_str(z->cat, s.p, s.len, err);
		if (ofs_zero_collect(z, &z->model, file, node, &part, 1, err) ==
		    -1)
			return -1;
	}
	return 0;
}

int ofs_zero_model_collect(struct ofs_zero *z, struct optimfs_error *err)
{
	/* zero_to_fp32.py takes those of rank 0 */
	z->model.local_buffers = z->sharded;
	for (uint32_t i = 0; i < z->model.nfiles; i++) {
		const struct ofs_pickle *doc = z->model.file[i].doc;

		if (ofs_pk_kind(doc, root_of(z, i)) != OFS_PK_DICT)
			return ofs_pk_unexpected(doc, root_of(z, i), err,
			    "OFS695", "a dict", "%s", z->model.file[i].rel);
		if (!z->model.file[i].surplus && collect_file(z, i, err) == -1)
			return -1;
	}
	return 0;
}

/* Weights outside module. */

static uint32_t model_path(struct ofs_zero *z, struct ofs_str name,
    struct optimfs_error *err)
{
	uint32_t part[2] = { ofs_zero_word(z, "model", err),
		ofs_catalog_str(z->cat, name.p, name.len, err) };

	return ofs_zero_path(z, part, 2, err);
}

/* The dtype of the empty tensor in module. */
static uint8_t dtype_in_module(const struct ofs_zero *z, struct ofs_str name)
{
	struct ofs_torch_tensor t;
	uint32_t node;

	if (z->module.names.n == 0)
		return OFS_DTYPE_NONE;
	node = ofs_pk_names_val(&z->module, name);
	return ofs_torch_tensor(z->module.doc, node, &t, NULL) == 1
	    ? t.dtype
	    : OFS_DTYPE_NONE;
}

static int note_rounded(struct ofs_zero *z, struct optimfs_error *err)
{
	return ofs_catalog_note(z->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS698 weights in half precision are not stored: model/ has "
	    "the fp32 ones, rounded");
}

static int add_trained(struct ofs_zero *z, uint32_t param, uint32_t *ref,
    struct optimfs_error *err)
{
	const struct ofs_zero_param *p = &z->shapes.param[param];
	struct ofs_pieces x;

	if (ofs_pieces_begin(&x, &z->optim, p->shape, p->ndim,
		z->shapes.numel[param], err) == -1)
		return -1;
	x.round = dtype_in_module(z, p->name);
	if (z->master(z, param, &x, err) == -1)
		return -1;
	if (x.t.dtype == OFS_DTYPE_NONE)
		x.t.dtype = OFS_FLOAT32;
	if (ofs_pieces_end(&x, model_path(z, p->name, err), ref, err) == -1)
		return -1;
	return x.t.dtype != OFS_FLOAT32 && x.t.dtype == x.round
	    ? note_rounded(z, err)
	    : 0;
}

static int add_frozen(struct ofs_zero *z, uint32_t param,
    const struct ofs_pk_names *fragments, uint32_t *ref,
    struct optimfs_error *err)
{
	const struct ofs_zero_param *p = &z->frozen.param[param];
	uint64_t n = z->frozen.numel[param], w = z->frozen_layout.world;
	struct ofs_pieces x;

	if (ofs_pieces_begin(&x, &z->model, p->shape, p->ndim, n, err) == -1)
		return -1;
	for (uint32_t i = 0; i < z->model.nfiles; i++) {
		const struct ofs_ranks_file *f = &z->model.file[i];
		struct ofs_ranks_leaf leaf = { .file = i };
		struct ofs_flat_slice s;

		if (f->surplus)
			continue;
		s = ofs_zero_slice(&z->frozen_layout, param,
		    f->rank < 0 ? 0 : (uint32_t)f->rank);
		s.at = 0; /* each fragment is a tensor */
		leaf.node = ofs_pk_names_val(&fragments[i], p->name);
		/* an empty fragment also gives the dtype */
		if ((s.count > 0 || n == 0) &&
		    ofs_pieces_add(&x, &leaf, leaf.node, n / w + (n % w != 0),
			&s, err) == -1)
			return -1;
	}
	return ofs_pieces_end(&x, model_path(z, p->name, err), ref, err);
}

struct refs {
	uint32_t *trained, *frozen; /* of each parameter: its tensor */
};

/* Adds another name of a parameter. */
static int add_alias(struct ofs_zero *z, const struct refs *refs,
    struct ofs_str alias, struct optimfs_error *err)
{
	struct ofs_str owner = owner_of(z, alias);
	uint32_t a = ofs_zero_find(&z->shapes, owner);
	uint32_t b = ofs_zero_find(&z->frozen, owner);
	uint32_t ref;

	if (ofs_zero_find(&z->shapes, alias) != OFS_NONE ||
	    ofs_zero_find(&z->frozen, alias) != OFS_NONE ||
	    (a == OFS_NONE && b == OFS_NONE) ||
	    (a != OFS_NONE && z->again != NULL && z->again[a]))
		return 0;
	ref = a != OFS_NONE ? refs->trained[a] : refs->frozen[b];
	z->cat->tensors[ref].flags |= OFS_TENSOR_TIED;
	return ofs_catalog_add(z->cat, model_path(z, alias, err),
	    OFS_ENTRY_TENSOR, ref, OFS_KEY_FREE, err);
}

static int add_aliases(struct ofs_zero *z, const struct refs *refs,
    struct optimfs_error *err)
{
	const struct ofs_pk_names *x = &z->shared;

	for (uint32_t i = 0; i < x->names.n; i++)
		if (add_alias(z, refs, x->names.v[i], err) == -1)
			return -1;
	return 0;
}

/* Adds frozen parameters: each weight file has a fragment of each. */
static int add_fragments(struct ofs_zero *z, const struct refs *refs,
    struct optimfs_error *err)
{
	struct ofs_pk_names *x = calloc(z->model.nfiles + 1ull, sizeof(*x));
	int ret = x == NULL ? ofs_no_memory(err) : 0;

	for (uint32_t i = 0; i < z->model.nfiles && ret == 0; i++) {
		const struct ofs_pickle *doc = z->model.file[i].doc;

		ret = ofs_pk_names_init(&x[i], doc,
		    ofs_pk_get(doc, root_of(z, i), "frozen_param_fragments"),
		    err);
	}
	for (uint32_t i = 0; i < z->frozen.n && ret == 0; i++)
		ret = add_frozen(z, i, x, &refs->frozen[i], err);
	for (uint32_t i = 0; x != NULL && i < z->model.nfiles; i++)
		ofs_pk_names_fini(&x[i]);
	free(x);
	return ret;
}

static int add_all(struct ofs_zero *z, const struct refs *refs,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < z->shapes.n; i++)
		if ((z->again == NULL || !z->again[i]) &&
		    add_trained(z, i, &refs->trained[i], err) == -1)
			return -1;
	if (add_fragments(z, refs, err) == -1)
		return -1;
	return add_aliases(z, refs, err);
}

/* Order. */

struct weight {
	struct ofs_entry e;
	uint32_t place; /* in module; OFS_NONE: it is not there */
	uint32_t index; /* of the entry */
};

OFS_COMPARE_BY2(by_module, struct weight, place, index)

/* Is it a weight? Then *place gets the number of its pair. */
static bool find_weight(struct ofs_zero *z, const struct ofs_entry *e,
    uint32_t model, uint32_t *place)
{
	const struct ofs_catalog *cat = z->cat;
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(cat, e->path, &n);

	if (n != z->npref + 2 || c[z->npref] != model)
		return false;
	*place = ofs_pk_names_pair(&z->module,
	    ofs_catalog_string(cat, OFS_PATH_STR(c[n - 1])));
	return true;
}

/* Puts the sorted weights where weights were; moved gets the new index of each
 * entry from first on, less first. */
static void put_sorted(struct ofs_catalog *cat, const struct weight *w,
    uint32_t *slot, uint32_t n, uint32_t first, uint32_t *moved)
{
	for (uint32_t i = 0; i < n; i++) {
		cat->entries[slot[i]] = w[i].e;
		moved[w[i].index - first] = slot[i];
	}
	for (uint32_t i = 0; i < cat->nvariants; i++)
		if (cat->variants[i].entry >= first)
			cat->variants[i].entry =
			    moved[cat->variants[i].entry - first];
}

static int sort_weights(struct ofs_zero *z, uint32_t first,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = z->cat;
	uint32_t model = ofs_zero_word(z, "model", err), n = 0;
	size_t most = cat->nentries - first + 1u;
	struct weight *w = NULL;
	uint32_t *slot, *moved;
	int ret = 0;

	if (model == OFS_NONE)
		return -1;
	if (z->module.names.n == 0)
		return 0;
	w = calloc(most, sizeof(*w));
	slot = calloc(most, sizeof(*slot));
	moved = calloc(most, sizeof(*moved));
	if (w == NULL || slot == NULL || moved == NULL)
		ret = ofs_no_memory(err);
	for (uint32_t i = first; i < cat->nentries && ret == 0; i++) {
		moved[i - first] = i;
		if (!find_weight(z, &cat->entries[i], model, &w[n].place))
			continue;
		w[n].e = cat->entries[i];
		w[n].index = slot[n] = i;
		n++;
	}
	if (ret == 0 && n > 0) {
		qsort(w, n, sizeof(*w), by_module);
		put_sorted(cat, w, slot, n, first, moved);
	}
	free(w);
	free(slot);
	free(moved);
	return ret;
}

int ofs_zero_model_add(struct ofs_zero *z, uint32_t first,
    struct optimfs_error *err)
{
	struct refs refs;
	int ret;

	if (!z->sharded || z->master == NULL)
		return 0;
	refs.trained = calloc(z->shapes.n + 1ull, sizeof(*refs.trained));
	refs.frozen = calloc(z->frozen.n + 1ull, sizeof(*refs.frozen));
	if (refs.trained == NULL || refs.frozen == NULL)
		ret = ofs_no_memory(err);
	else
		ret = add_all(z, &refs, err);
	free(refs.trained);
	free(refs.frozen);
	return ret == 0 ? sort_weights(z, first, err) : -1;
}

/* Layers of a pipeline. */

/* "weight" in layer_03 is the parameter "3.weight". */
static int collect_layer(struct ofs_zero *z, uint32_t file, int layer,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->model.file[file].doc;
	uint32_t root = root_of(z, file), part[2];

	if (ofs_pk_kind(doc, root) != OFS_PK_DICT)
		return ofs_pk_unexpected(doc, root, err, "OFS695", "a dict",
		    "%s", z->model.file[file].rel);
	part[0] = ofs_zero_word(z, "model", err);
	for (uint32_t i = 0; i < ofs_pk_len(doc, root); i++) {
		uint32_t key = ofs_pk_key(doc, root, i);
		struct ofs_str s = ofs_pk_str(doc, key);
		char *name;
		int len;

		if (ofs_pk_kind(doc, key) != OFS_PK_STR)
			return ofs_pk_unexpected(doc, key, err, "OFS695", "str",
			    "a name in %s", z->model.file[file].rel);
		len = asprintf(&name, "%d.%.*s", layer, (int)s.len, s.p);
		if (len == -1)
			return ofs_no_memory(err);
		part[1] = ofs_catalog_str(z->cat, name, (size_t)len, err);
		free(name);
		if (ofs_zero_collect(z, &z->model, file,
			ofs_pk_val(doc, root, i), part, 2, err) == -1)
			return -1;
	}
	return 0;
}

int ofs_zero_layers(struct ofs_zero *z, const struct ofs_zero_files *files,
    struct optimfs_error *err)
{
	int ret = 0;

	if (ofs_zero_open(z, &z->model, files, OFS_ZERO_LAYER, err) == -1)
		return -1;
	/* a layer file has the layer's number as its rank */
	for (uint32_t i = 0; i < z->model.nfiles && ret == 0; i++) {
		int layer = z->model.file[i].rank;

		z->model.file[i].rank = -1;
		z->cat->objects[z->model.file[i].at.at.object].rank = -1;
		ret = collect_layer(z, i, layer, err);
	}
	if (ret == 0)
		ret = ofs_ranks_group(&z->model, err);
	if (ret == 0)
		ret = ofs_ranks_merge(&z->model, err);
	if (ret == 0)
		ret = ofs_ranks_end(&z->model, err);
	ofs_ranks_fini(&z->model);
	return ret;
}
