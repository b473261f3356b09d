/* trl.c - patches of TRL: positions and values of the elements that change */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "format/delta/delta.h"
#include "format/safetensors/safetensors.h"

struct patch {
	struct ofs_delta_build *d;
	const struct ofs_safetensors *st;
	uint32_t object;
	const char *rel;
	struct optimfs_error *err;
};

static int damaged(const struct patch *x, struct ofs_str name, const char *what)
{
	return optimfs_fail(x->err, EUCLEAN, "OFS881 %.200s: %.*s %s", x->rel,
	    OFS_STR_ARGS(name, 200), what);
}

/* Adds a tensor of the file as it is stored; its index, or OFS_NONE. */
static uint32_t add_stored(const struct patch *x,
    const struct ofs_safetensors_tensor *t)
{
	struct ofs_catalog *cat = x->d->cat;
	uint32_t path = ofs_delta_path(cat, t->name, x->err);

	return path == OFS_NONE ||
		ofs_safetensors_add(cat, x->object, t, path, x->err) == -1
	    ? OFS_NONE
	    : cat->ntensors - 1;
}

/* Positions as they are, or as the numbers of elements between them, or in a
 * form that only a GPU library of NVIDIA reads: the type says which. */
static int check_positions(const struct patch *x, enum ofs_dtype dtype,
    struct ofs_str name)
{
	if (dtype == OFS_INT32 || dtype == OFS_UINT16 || dtype == OFS_UINT32)
		return 0;
	if (dtype != OFS_UINT8)
		return damaged(x, name, "has positions of an unknown type");
	return optimfs_fail(x->err, EOPNOTSUPP,
	    "OFS882 %.200s: the positions of %.*s are compressed with nvCOMP: "
	    "TRL can read them on a GPU, and save the patch without",
	    x->rel, OFS_STR_ARGS(name, 200));
}

static int add_change(const struct patch *x, struct ofs_str name,
    const struct ofs_safetensors_tensor *at,
    const struct ofs_safetensors_tensor *values)
{
	struct ofs_delta_part c = { .kind = OFS_DELTA_ELEMENTS,
		.gaps = at->dtype != OFS_INT32 };

	if (values == NULL)
		return damaged(x, name, "has positions, but no values");
	if (check_positions(x, at->dtype, name) == -1)
		return -1;
	c.at = add_stored(x, at);
	c.values = c.at == OFS_NONE ? OFS_NONE : add_stored(x, values);
	return c.values == OFS_NONE ? -1
				    : ofs_delta_add(x->d, name, &c, x->err);
}

/* "X.idx" and "X.val"; in older files "X.indices" and "X.values". */
static const struct suffix {
	const char *at, *values;
} suffixes[] = {
	{ ".idx", ".val" },
	{ ".indices", ".values" },
};

static const struct ofs_safetensors_tensor *find_values(const struct patch *x,
    struct ofs_str name, const char *suffix)
{
	char values[4096];
	size_t n = strlen(suffix);

	if (name.len + n > sizeof(values))
		return NULL;
	memcpy(values, name.p, name.len);
	memcpy(values + name.len, suffix, n);
	return ofs_safetensors_find(x->st, values, name.len + n);
}

static int add_tensor(const struct patch *x, size_t i)
{
	const struct ofs_safetensors_tensor *t = &x->st->tensor[i];

	for (size_t k = 0; k < sizeof(suffixes) / sizeof(suffixes[0]); k++) {
		struct ofs_str name = t->name;

		if (ofs_str_ends(name, suffixes[k].values))
			return 0; /* with its positions */
		if (!ofs_str_ends(name, suffixes[k].at))
			continue;
		name.len -= (uint32_t)strlen(suffixes[k].at);
		return add_change(x, name, t,
		    find_values(x, name, suffixes[k].values));
	}
	return damaged(x, t->name,
	    "is neither positions nor values of a change");
}

/* Each version changes the one before it, if the file does not name another. */
static int read_versions(const struct patch *x, struct ofs_delta *c)
{
	struct ofs_str version =
	    ofs_safetensors_metadata(x->st, "model_version");
	struct ofs_str before =
	    ofs_safetensors_metadata(x->st, "prev_model_version");

	if (!ofs_delta_number(version, &c->version) || c->version == 0)
		return optimfs_fail(x->err, EUCLEAN,
		    "OFS881 %.200s: its model_version is no number, or 0",
		    x->rel);
	if (!ofs_delta_number(before, &c->base))
		c->base = c->version - 1;
	return 0;
}

int ofs_trl_read(struct ofs_delta_build *d, const char *rel,
    struct optimfs_error *err)
{
	struct ofs_safetensors st;
	struct patch x = { .d = d, .st = &st, .rel = rel, .err = err };
	int ret;

	if (ofs_safetensors_open_file(&d->cat->dir, rel, d->cat->max_metadata,
		&st, err) == -1)
		return -1;
	ret = read_versions(&x, d->changes);
	if (ret == 0)
		x.object = ofs_catalog_object(d->cat, rel, -1, err);
	if (x.object == OFS_NONE)
		ret = -1;
	for (size_t i = 0; i < st.n && ret == 0; i++)
		ret = add_tensor(&x, i);
	ofs_safetensors_fini(&st);
	return ret;
}
