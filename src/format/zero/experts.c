/* experts.c - mixtures of experts */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/step.h"
#include "base/str.h"
#include "format/megatron/buckets/buckets.h"
#include "format/zero/zero.h"
#include "read/fetch.h"
#include "store/local.h"

/* With expert parallelism each rank has only some experts, under numbers from 0
 * on, and its flat groups of experts have these. Ranks with the same experts are
 * a set, among which a group is cut as any group is cut among all ranks. So here
 * such a group becomes one for each set, whose parameters have the numbers that
 * experts have in the whole model. Of 4 ranks in 2 sets, with 2 of 4 experts each,
 *
 *     group 1 of the files    experts.0 experts.1
 *     group 1, ranks 0 and 2  experts.0 experts.1
 *     group 2, ranks 1 and 3  experts.2 experts.3
 *
 * Ranks 0 and 1 may also be the first set; nothing in the files says so. But the
 * weights of experts have files of their own, with the numbers of the whole
 * model, and the fp32 weights in a group, rounded, are those weights. This
 * decides, and shows whether all of this is right. */

#define EXPERTS "deepspeed_experts."

/* Bytes of the names of all sets, which one name in a file can multiply. */
#define NAMES_MAX (UINT64_C(1) << 28)
/* Up to this number missing files are named one by one. */
#define MAX_NAMED 1024

/* The number of an expert in the name of a parameter: the text before it and
 * after it. False: no name of an expert. */
static bool expert_of(struct ofs_str name, struct ofs_str *before, uint64_t *n,
    struct ofs_str *after)
{
	const char *at = name.len < sizeof(EXPERTS)
	    ? NULL
	    : memmem(name.p, name.len, EXPERTS, sizeof(EXPERTS) - 1);

	if (at == NULL)
		return false;
	at += sizeof(EXPERTS) - 1;
	*before = (struct ofs_str){ name.p, (uint32_t)(at - name.p) };
	*after = ofs_str_after(name, before->len);
	return ofs_str_take_number(after, n) && after->len > 0 &&
	    after->p[0] == '.' && *n < UINT32_MAX;
}

bool ofs_zero_is_expert(struct ofs_str name)
{
	struct ofs_str before, after;
	uint64_t n;

	return expert_of(name, &before, &n, &after);
}

/* Groups. */

struct split {
	struct ofs_zero *z;
	const struct ofs_zero_optim *o; /* of the first rank */
	struct ofs_keys layers;         /* names of layers of experts */
	uint64_t *local;                /* of each: experts of a rank */
	uint32_t local_cap;
	struct ofs_zero_shapes s; /* with a group for each set */
};

static int count_expert(struct split *x, struct ofs_str before, uint64_t n,
    struct optimfs_error *err)
{
	uint32_t old = x->layers.n, i = ofs_keys_add(&x->layers, before, err);

	if (i == OFS_NONE || ofs_grow(x->local, i, x->local_cap, err) == -1)
		return -1;
	if (i == old)
		x->local[i] = 0;
	if (n + 1 > x->local[i])
		x->local[i] = n + 1;
	return 0;
}

/* Is the group one of experts? 1, 0; -1: some are, and some are not. */
static int has_experts(struct split *x, uint32_t group,
    struct optimfs_error *err)
{
	const struct ofs_zero_shapes *s = &x->z->shapes;
	struct ofs_str before, after;
	uint32_t n = 0;
	uint64_t number;

	for (uint32_t i = s->first[group]; i < s->first[group + 1]; i++) {
		if (!expert_of(s->param[i].name, &before, &number, &after))
			continue;
		n++;
		if (count_expert(x, before, number, err) == -1)
			return -1;
	}
	if (n > 0 && n < s->first[group + 1] - s->first[group])
		return optimfs_fail(err, EUCLEAN,
		    "OFS695 group %" PRIu32
		    " of param_shapes has experts and other parameters",
		    group);
	return n > 0;
}

/* The ranks of a set, and the sets. */
static int cut_of(const struct split *x, uint32_t group, bool experts,
    struct ofs_zero_cut *cut, struct optimfs_error *err)
{
	int64_t count = x->o->world;

	*cut = (struct ofs_zero_cut){ group, x->o->world, 1, 0 };
	if (x->o->counts != OFS_NONE)
		(void)ofs_zero_world(x->o->doc,
		    ofs_pk_item(x->o->doc, x->o->counts, group), &count);
	if (count == x->o->world)
		return 0;
	if (!experts || x->o->world % count != 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS695 group %" PRIu32 " is divided among %" PRId64
		    " of %" PRIu32 " ranks, but has no experts for each",
		    group, count, x->o->world);
	cut->ranks = (uint32_t)count;
	cut->nsets = x->o->world / cut->ranks;
	return 0;
}

/* The name in the whole model of a parameter of a set. */
static int whole_name(const struct split *x, struct ofs_str name, uint32_t set,
    struct ofs_str *out, struct optimfs_error *err)
{
	struct ofs_str before, after;
	uint64_t n;
	char *text;
	int len;

	*out = name;
	if (set == 0 || !expert_of(name, &before, &n, &after))
		return 0;
	n += set * x->local[ofs_keys_find(&x->layers, before.p, before.len)];
	len = asprintf(&text, "%.*s%" PRIu64 "%.*s", (int)before.len, before.p,
	    n, (int)after.len, after.p);
	if (len == -1)
		return ofs_no_memory(err);
	out->len = (uint32_t)len;
	out->p = ofs_arena_strndup(&x->z->cat->arena, text, (size_t)len);
	free(text);
	return out->p == NULL ? ofs_no_memory(err) : 0;
}

/* Adds the group of a set. */
static int add_group(struct split *x, const struct ofs_zero_cut *cut,
    struct optimfs_error *err)
{
	const struct ofs_zero_shapes *from = &x->z->shapes;
	struct ofs_zero_shapes *s = &x->s;
	uint32_t g = s->ngroups++;

	s->cut[g] = *cut;
	s->first[g] = s->n;
	for (uint32_t i = from->first[cut->number];
	     i < from->first[cut->number + 1]; i++) {
		struct ofs_zero_param *p = &s->param[s->n];

		*p = from->param[i];
		p->group = g;
		if (whole_name(x, from->param[i].name, cut->set, &p->name,
			err) == -1)
			return -1;
		s->numel[s->n++] = from->numel[i];
	}
	s->first[s->ngroups] = s->n;
	return 0;
}

/* Makes room for the groups of all sets. */
static int reserve(struct split *x, const struct ofs_zero_cut *cut,
    struct optimfs_error *err)
{
	const struct ofs_zero_shapes *from = &x->z->shapes;
	struct ofs_zero_shapes *s = &x->s;
	uint64_t nparams = 0, ngroups = 0, bytes = 0;

	for (uint32_t g = 0; g < from->ngroups; g++) {
		nparams += (uint64_t)cut[g].nsets *
		    (from->first[g + 1] - from->first[g]);
		ngroups += cut[g].nsets;
	}
	if (ofs_zero_check_size(nparams, ngroups, err) == -1)
		return -1;
	for (uint32_t i = 0; i < from->n; i++)
		bytes += (uint64_t)cut[from->param[i].group].nsets *
		    from->param[i].name.len;
	if (bytes > NAMES_MAX)
		return optimfs_fail(err, E2BIG,
		    "OFS695 the names of all experts have more than %" PRIu64
		    " bytes",
		    NAMES_MAX);
	s->param = ofs_alloc(nparams + 1, sizeof(*s->param), err);
	s->numel = ofs_alloc(nparams + 1, sizeof(*s->numel), err);
	s->first = ofs_alloc(ngroups + 1, sizeof(*s->first), err);
	s->cut = ofs_alloc(ngroups + 1, sizeof(*s->cut), err);
	return s->param == NULL || s->numel == NULL || s->first == NULL ||
		s->cut == NULL
	    ? -1
	    : 0;
}

static int make_groups(struct split *x, const struct ofs_zero_cut *cut,
    struct optimfs_error *err)
{
	const struct ofs_zero_shapes *from = &x->z->shapes;

	if (reserve(x, cut, err) == -1)
		return -1;
	for (uint32_t g = 0; g < from->ngroups; g++)
		for (uint32_t set = 0; set < cut[g].nsets; set++) {
			struct ofs_zero_cut one = cut[g];

			one.set = set;
			if (add_group(x, &one, err) == -1)
				return -1;
		}
	return ofs_zero_shapes_index(&x->s, err);
}

/* Puts the new groups in place of the old ones; the sizes stay. */
static void replace(struct split *x)
{
	struct ofs_zero_shapes old = x->z->shapes;

	x->s.dims = old.dims;
	old.dims = NULL;
	x->z->shapes = x->s;
	x->s = (struct ofs_zero_shapes){ 0 };
	ofs_zero_shapes_fini(&old);
}

int ofs_zero_experts_split(struct ofs_zero *z, struct optimfs_error *err)
{
	struct split x = { .z = z, .o = z->rank };
	struct ofs_zero_cut *cut =
	    ofs_alloc(z->shapes.ngroups + 1ull, sizeof(*cut), err);
	int ret = cut == NULL ? -1 : 0, some = 0;

	for (uint32_t g = 0; g < z->shapes.ngroups && ret == 0; g++) {
		int experts = has_experts(&x, g, err);

		ret = experts == -1 ? -1
				    : cut_of(&x, g, experts == 1, &cut[g], err);
		some += experts == 1;
	}
	if (ret == 0 && some > 0)
		ret = make_groups(&x, cut, err);
	if (ret == 0 && some > 0)
		replace(&x);
	ofs_zero_shapes_fini(&x.s);
	ofs_keys_fini(&x.layers);
	free(x.local);
	free(cut);
	return ret;
}

/* Weights. */

OFS_COMPARE_BY2(by_layer, struct ofs_zero_name, layer, rank)

static int note_missing(struct ofs_zero *z, const struct ofs_zero_name *lost,
    struct optimfs_error *err)
{
	struct ofs_str dir = ofs_str_of(z->model.file[0].rel);
	char *rel;
	int len, ret = 0;

	dir.len = (uint32_t)(ofs_path_last(dir.p) - dir.p);
	len = asprintf(&rel,
	    "%.*slayer_%d_expert_%d_mp_rank_%02d_model_states.pt", (int)dir.len,
	    dir.p, lost->layer, lost->rank, z->mp);
	if (len == -1)
		return ofs_no_memory(err);
	if (ofs_catalog_object(z->cat, rel, -1, err) == OFS_NONE ||
	    ofs_catalog_note(z->cat, OFS_NOTE_MISSING, EIO, err,
		"OFS140 %s is missing: the weights of an expert", rel) == -1)
		ret = -1;
	free(rel);
	return ret;
}

/* The files that there are, sorted, less those before the one that is looked
 * for. */
struct present {
	const struct ofs_zero_file *const *file;
	size_t n;
	uint32_t lost; /* the number of those that are missing */
};

/* Notes the missing ones of n files of a layer. */
static int check_layer(struct ofs_zero *z, int layer, int64_t n,
    struct present *p, struct optimfs_error *err)
{
	struct ofs_zero_name want = { .layer = layer };

	for (; want.rank < n && p->lost <= MAX_NAMED; want.rank++) {
		while (p->n > 0 && by_layer(&p->file[0]->id, &want) < 0) {
			p->file++;
			p->n--;
		}
		if (p->n > 0 && by_layer(&p->file[0]->id, &want) == 0)
			continue;
		if (++p->lost <= MAX_NAMED && note_missing(z, &want, err) == -1)
			return -1;
	}
	return 0;
}

/* Notes the files that are missing, according to num_experts: a number for each
 * layer. */
static int check_missing(struct ofs_zero *z,
    const struct ofs_zero_file *const *file, size_t nfiles,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->model.file[0].doc;
	uint32_t list = ofs_pk_get(doc, ofs_pickle_root(doc), "num_experts");
	struct present p = { file, nfiles, 0 };
	int64_t n;

	if (ofs_pk_kind(doc, list) != OFS_PK_LIST)
		return 0;
	for (uint32_t i = 0; i < ofs_pk_len(doc, list) && p.lost <= MAX_NAMED;
	     i++)
		if (!ofs_zero_world(doc, ofs_pk_item(doc, list, i), &n))
			return 0;
		else if (check_layer(z, (int)i, n, &p, err) == -1)
			return -1;
	return p.lost <= MAX_NAMED
	    ? 0
	    : ofs_catalog_note(z->cat, OFS_NOTE_MISSING, EIO, err,
		  "OFS140 more files with the weights of experts are missing "
		  "than these %d",
		  MAX_NAMED);
}

static int by_expert(const void *va, const void *vb)
{
	const struct ofs_zero_file *const *a = va, *const *b = vb;

	return by_layer(&(*a)->id, &(*b)->id);
}

/* Opens n files. Several layers have an expert of the same number, so each file
 * counts as one of another rank until it is open. */
static int open_files(struct ofs_zero *z,
    const struct ofs_zero_file *const *file, size_t n,
    struct optimfs_error *err)
{
	struct ofs_ranks *set = &z->experts;

	z->expert = ofs_alloc(n + 1, sizeof(*z->expert), err);
	if (z->expert == NULL || ofs_ranks_begin(set, z->cat, n, err) == -1)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (ofs_ranks_try(set, file[i]->rel, (int)i, false, err) == -1)
			return -1;
	for (uint32_t i = 0; i < set->nfiles; i++) {
		z->expert[i] = file[set->file[i].rank]->id;
		set->file[i].rank = -1;
		z->cat->objects[set->file[i].at.at.object].rank = -1;
	}
	return z->model.nfiles == 0 ? 0 : check_missing(z, file, n, err);
}

int ofs_zero_experts_open(struct ofs_zero *z,
    const struct ofs_zero_files *files, struct optimfs_error *err)
{
	const struct ofs_zero_file **file =
	    ofs_alloc(files->n + 1, sizeof(*file), err);
	size_t n = 0;
	int ret;

	if (file == NULL)
		return -1;
	for (size_t i = 0; i < files->n; i++)
		if (files->file[i].id.kind == OFS_ZERO_EXPERT &&
		    files->file[i].id.mp == z->mp)
			file[n++] = &files->file[i];
	qsort(file, n, sizeof(*file), by_expert);
	ret = open_files(z, file, n, err);
	free(file);
	return ret;
}

static int collect_weights(struct ofs_zero *z, uint32_t file,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->experts.file[file].doc;
	uint32_t root = ofs_pickle_root(doc), part[2];

	if (ofs_pk_kind(doc, root) != OFS_PK_DICT)
		return ofs_pk_unexpected(doc, root, err, "OFS695", "a dict",
		    "%s", z->experts.file[file].rel);
	part[0] = ofs_zero_word(z, "model", err);
	for (uint32_t i = 0; i < ofs_pk_len(doc, root); i++) {
		uint32_t key = ofs_pk_key(doc, root, i);
		struct ofs_str s = ofs_pk_str(doc, key);

		if (ofs_pk_kind(doc, key) != OFS_PK_STR)
			return ofs_pk_unexpected(doc, key, err, "OFS695", "str",
			    "a name in %s", z->experts.file[file].rel);
		part[1] = ofs_catalog_str(z->cat, s.p, s.len, err);
		if (ofs_zero_collect(z, &z->experts, file,
			ofs_pk_val(doc, root, i), part, 2, err) == -1)
			return -1;
	}
	return 0;
}

int ofs_zero_experts_add(struct ofs_zero *z, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < z->experts.nfiles; i++)
		if (collect_weights(z, i, err) == -1)
			return -1;
	if (z->experts.nfiles == 0)
		return 0;
	return ofs_ranks_group(&z->experts, err) == -1
	    ? -1
	    : ofs_ranks_merge(&z->experts, err);
}

/* The proof. */

/* A parameter of an expert, whose two copies are compared. */
struct pair {
	uint32_t param;
	struct ofs_tensor master, weight;
	enum { UNKNOWN, PROVED, DISPROVED } is;
};

struct proof {
	struct ofs_zero *z;
	struct ofs_keys names;       /* in the files of weights */
	struct ofs_ranks_leaf *leaf; /* of each */
	uint32_t leaf_cap;
	struct pair *pair;
	uint32_t npairs;
	uint32_t proved;
	struct optimfs_error *err;
};

static int find_weights(struct proof *p)
{
	struct ofs_ranks *set = &p->z->experts;

	for (uint32_t i = 0; i < set->nfiles; i++) {
		const struct ofs_pickle *doc = set->file[i].doc;
		uint32_t root = ofs_pickle_root(doc);

		for (uint32_t k = 0; k < ofs_pk_len(doc, root); k++) {
			struct ofs_str s =
			    ofs_pk_str(doc, ofs_pk_key(doc, root, k));
			uint32_t n = ofs_keys_add(&p->names, s, p->err);

			if (n == OFS_NONE ||
			    ofs_grow(p->leaf, n, p->leaf_cap, p->err) == -1)
				return -1;
			p->leaf[n] = (struct ofs_ranks_leaf){ .file = i,
				.node = ofs_pk_val(doc, root, k) };
		}
	}
	return 0;
}

/* Takes the tensor of x, which gets no entry. */
static int take(struct ofs_pieces *x, struct ofs_tensor *t,
    struct optimfs_error *err)
{
	int rank[2];

	(void)ofs_ranks_copies_end(&x->copies, rank);
	*t = x->t;
	t->index = OFS_NONE;
	t->grid = t->shape;
	t->grid_ndim = t->ndim;
	if (x->cut) {
		t->grid = ofs_catalog_dims(x->set->cat, &x->numel, 1, err);
		t->grid_ndim = 1;
	}
	return t->grid == OFS_NONE ? -1 : 0;
}

/* Finds the elements of both copies. */
static int find_pair(struct proof *p, uint32_t param, uint32_t weight)
{
	struct ofs_zero *z = p->z;
	const struct ofs_zero_param *q = &z->shapes.param[param];
	uint64_t numel = z->shapes.numel[param];
	struct pair *pair = &p->pair[p->npairs];
	struct ofs_pieces x;
	bool known;

	if (ofs_pieces_begin(&x, &z->experts, q->shape, q->ndim, numel,
		p->err) == -1 ||
	    ofs_pieces_whole(&x, &p->leaf[weight], p->err) == -1)
		return -1;
	known = x.why.code == 0;
	if (take(&x, &pair->weight, p->err) == -1 ||
	    ofs_pieces_begin(&x, &z->optim, q->shape, q->ndim, numel, p->err) ==
		-1 ||
	    z->master(z, param, &x, p->err) == -1)
		return -1;
	known = known && x.why.code == 0;
	if (take(&x, &pair->master, p->err) == -1)
		return -1;
	pair->param = param;
	pair->is = UNKNOWN;
	p->npairs += known && numel > 0 && pair->master.dtype == OFS_FLOAT32 &&
	    ofs_bucket_rounds_to(pair->weight.dtype);
	return 0;
}

static int find_pairs(struct proof *p)
{
	const struct ofs_zero_shapes *s = &p->z->shapes;

	p->npairs = 0;
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t weight = ofs_keys_find(&p->names, s->param[i].name.p,
		    s->param[i].name.len);

		if (weight != OFS_NONE && find_pair(p, i, weight) == -1)
			return -1;
	}
	return 0;
}

/* Reads a sample of a tensor. 1; 0: it cannot be read; -1. */
static int sample(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t numel, void *out, struct optimfs_error *err)
{
	struct ofs_bucket_slice run[OFS_BUCKET_RUNS];
	unsigned int n = ofs_bucket_runs(numel, run);
	struct optimfs_error why = { 0 };
	uint8_t *to = out;

	for (unsigned int i = 0; i < n; i++) {
		if (ofs_fetch_elements(r, t, run[i].off, run[i].len, to,
			&why) == -1)
			return ofs_must_fail(&why)
			    ? optimfs_fail_with(err, &why)
			    : 0;
		to += run[i].len * ofs_dtype_size(t->dtype);
	}
	return (int)((to - (uint8_t *)out) / ofs_dtype_size(t->dtype));
}

static int compare(struct proof *p, struct ofs_reader *r, struct pair *pair)
{
	uint8_t master[OFS_BUCKET_SAMPLE * 4], weight[sizeof(master)],
	    rounded[sizeof(master)];
	uint64_t numel = p->z->shapes.numel[pair->param];
	size_t item = ofs_dtype_size(pair->weight.dtype);
	int n = sample(r, &pair->weight, numel, weight, p->err), m;
	bool same = false;

	m = n <= 0 ? n : sample(r, &pair->master, numel, master, p->err);
	if (m <= 0)
		return m;
	for (int up = 0; up < 2 && !same; up++) {
		(void)ofs_bucket_round(master, (size_t)m, pair->weight.dtype,
		    up == 1, rounded);
		same = memcmp(rounded, weight, (size_t)m * item) == 0;
	}
	pair->is = same ? PROVED : DISPROVED;
	p->proved += same;
	return 0;
}

/* Compares all parameters of experts, for an order of ranks. */
static int try_order(struct proof *p, bool blocks)
{
	struct ofs_catalog *cat = p->z->cat;
	uint32_t shards = cat->nshards;
	struct ofs_reader r = { 0 };
	int ret = -1;

	p->z->layout.blocks = blocks;
	p->proved = 0;
	ofs_zero_check_groups(p->z);
	if (find_pairs(p) == 0 &&
	    ofs_reader_init(&r, cat,
		ofs_transport_of(cat, UINT64_C(64) << 20, p->err), p->err) == 0)
		ret = 0;
	for (uint32_t i = 0; i < p->npairs && ret == 0; i++)
		ret = compare(p, &r, &p->pair[i]);
	if (r.transport != NULL)
		ofs_reader_fini(&r);
	cat->nshards = shards; /* no tensor has those that were compared */
	return ret;
}

/* Can the ranks of a set be chosen in two ways? */
static bool has_orders(const struct ofs_zero_shapes *s)
{
	for (uint32_t g = 0; g < s->ngroups; g++)
		if (s->cut[g].nsets > 1 && s->cut[g].ranks > 1)
			return true;
	return false;
}

/* With nothing to compare, which ranks are a set is a guess. */
static int say_guessed(const struct proof *p)
{
	if (p->npairs > 0 || !has_orders(&p->z->shapes))
		return 0;
	return ofs_catalog_note(p->z->cat, OFS_NOTE_WARNING, 0, p->err,
	    "OFS768 no weights show which ranks have which experts: state has "
	    "names as if ranks of one set did not follow each other, which they do "
	    "with use_data_before_expert_parallelism");
}

static int decide(struct proof *p)
{
	struct ofs_zero *z = p->z;
	struct ofs_found *found = &z->cat->found;
	uint32_t first;

	if (try_order(p, false) == -1)
		return -1;
	/* the first rank has its place in both, so that some agree anyway */
	first = p->proved;
	if (first < p->npairs && has_orders(&z->shapes) &&
	    (try_order(p, true) == -1 ||
		(p->proved <= first && try_order(p, false) == -1)))
		return -1;
	for (uint32_t i = 0; i < p->npairs; i++) {
		z->disproved[p->pair[i].param] = p->pair[i].is == DISPROVED;
		found->open += p->pair[i].is == DISPROVED;
	}
	found->proved += p->proved;
	for (uint32_t i = 0; i < z->shapes.n; i++)
		found->ordered += ofs_zero_is_expert(z->shapes.param[i].name);
	found->ordered -= p->npairs;
	return say_guessed(p);
}

int ofs_zero_experts_prove(struct ofs_zero *z, struct optimfs_error *err)
{
	struct proof p = { .z = z, .err = err };
	int ret = -1;

	if (z->shapes.cut == NULL || z->optim.nfiles == 0)
		return 0;
	z->disproved = ofs_alloc(z->shapes.n + 1ull, sizeof(bool), err);
	p.pair = ofs_alloc(z->shapes.n + 1ull, sizeof(*p.pair), err);
	if (z->disproved != NULL && p.pair != NULL && find_weights(&p) == 0)
		ret = decide(&p);
	ofs_keys_fini(&p.names);
	free(p.leaf);
	free(p.pair);
	return ret;
}

int ofs_zero_experts_fail(struct ofs_str name, struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN,
	    "OFS763 the fp32 weights here, rounded, are not those of "
	    "model/%.*s: the file with its weights is of another save, or the "
	    "ranks have other experts than this version expects",
	    OFS_STR_ARGS(name, 150));
}
