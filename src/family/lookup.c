/* lookup.c - which rule covers a name, and what it becomes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "family/family_impl.h"

uint32_t ofs_renaming_name_at(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	uint32_t n, at = 1;
	const uint32_t *c;

	if (e->tree == OFS_NONE)
		return OFS_NONE;
	c = ofs_catalog_components(cat, e->tree, &n);
	if (n >= 2 && ofs_catalog_string_is(cat, c[0], "model"))
		return 1;
	if (n < 4 || !ofs_catalog_string_is(cat, c[0], "optim"))
		return OFS_NONE;
	if (!ofs_catalog_string_is(cat, c[1], "state"))
		at = 2; /* of several optimizers */
	return ofs_catalog_string_is(cat, c[at], "state") && at + 2 < n
	    ? at + 1
	    : OFS_NONE;
}

bool ofs_renaming_is_list(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	const uint32_t *c;
	uint32_t n;

	if (e->tree == OFS_NONE || e->kind == OFS_ENTRY_TENSOR)
		return false;
	c = ofs_catalog_components(cat, e->tree, &n);
	return n >= 4 && n <= 5 && ofs_catalog_string_is(cat, c[0], "optim") &&
	    ofs_catalog_string_is(cat, c[n - 3], "param_groups") &&
	    (ofs_catalog_string_is(cat, c[n - 1], "params") ||
		ofs_catalog_string_is(cat, c[n - 1], "param_names"));
}

static unsigned stars_of(const struct ofs_family_rule *rule)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < rule->left.len; i++)
		n += rule->left.p[i] == '*';
	return n;
}

/* "*.NAME": the name, or what ends with it. */
static bool ends_so(struct ofs_str end, struct ofs_str name)
{
	return name.len > end.len && name.p[name.len - end.len - 1] == '.' &&
	    memcmp(name.p + name.len - end.len, end.p, end.len) == 0;
}

static bool is_left(const struct ofs_family_rule *rule, struct ofs_str name,
    uint32_t *star)
{
	unsigned n;

	return rule->anything ? ends_so(rule->left, name)
			      : ofs_family_match(rule->left, name, star, &n);
}

/* Has the checkpoint this name? Its strings have those of packed tensors, too,
 * which the option dequantize shows as one of another name. 1; 0; -1. */
static int has_name(struct ofs_renaming *r, struct ofs_str pattern,
    const uint32_t *star)
{
	char name[OFS_FAMILY_NAME];
	uint32_t s;

	if (!ofs_family_expand(pattern, star, name))
		return 0;
	s = ofs_catalog_str(r->cat, name, strlen(name), r->err);
	return s == OFS_NONE ? -1 : s < r->base->nstrs;
}

/* Does the rule count here, on the way back? 1; 0; -1. */
static int holds(struct ofs_renaming *r, const struct ofs_family_rule *rule,
    const uint32_t *star)
{
	int has = 1;

	if (rule->only_if.p != NULL)
		has = has_name(r, rule->only_if, star);
	if (has != 1 || rule->unless.p == NULL)
		return has;
	has = has_name(r, rule->unless, star);
	return has == -1 ? -1 : !has;
}

static bool find_left(const struct ofs_renaming *r, struct ofs_str name,
    struct ofs_verdict *v)
{
	for (uint32_t i = 0; i < r->family->n; i++) {
		v->rule = &r->families->rule[r->family->first + i];
		if (is_left(v->rule, name, v->star))
			return true;
	}
	return false;
}

/* Is it a name of the right side? 1; 0; -1. */
static int find_right(struct ofs_renaming *r, struct ofs_str name,
    struct ofs_verdict *v)
{
	unsigned n;
	int ret;

	for (uint32_t i = 0; i < r->family->n; i++) {
		v->rule = &r->families->rule[r->family->first + i];
		for (v->part = 0; v->part < v->rule->nright; v->part++) {
			if (!ofs_family_match(v->rule->right[v->part], name,
				v->star, &n))
				continue;
			ret = holds(r, v->rule, v->star);
			if (ret == -1)
				return -1;
			if (ret == 0)
				continue;
			v->layer = v->rule->stacked ? v->star[n - 1] : 0;
			return 1;
		}
	}
	return 0;
}

int ofs_renaming_look_up(struct ofs_renaming *r, struct ofs_str name,
    struct ofs_verdict *v)
{
	int right;

	*v = (struct ofs_verdict){ .kind = OFS_NAME_UNKNOWN };
	if (find_left(r, name, v)) {
		v->kind = r->back          ? OFS_NAME_SAME
		    : v->rule->nright == 0 ? OFS_NAME_OUT
					   : OFS_NAME_SPLIT;
		return 0;
	}
	right = find_right(r, name, v);
	if (right == 1)
		v->kind = r->back ? OFS_NAME_JOIN : OFS_NAME_SAME;
	return right == -1 ? -1 : 0;
}

uint64_t ofs_renaming_layers(const struct ofs_renaming *r,
    const struct ofs_verdict *v, uint32_t name)
{
	uint32_t tensor;

	if (!v->rule->stacked)
		return 1;
	tensor = name < r->base->nstrs ? r->shape_of[name] : OFS_NONE;
	if (tensor == OFS_NONE || r->base->tensors[tensor].ndim == 0)
		return 0;
	return *ofs_tensor_shape(r->base, &r->base->tensors[tensor]);
}

uint32_t ofs_renaming_part_name(struct ofs_renaming *r,
    const struct ofs_verdict *v, uint64_t layer, unsigned part)
{
	char name[OFS_FAMILY_NAME];
	uint32_t star[OFS_FAMILY_STARS + 1];
	struct ofs_str pattern =
	    v->kind == OFS_NAME_JOIN ? v->rule->left : v->rule->right[part];

	memcpy(star, v->star, sizeof(v->star));
	if (v->kind == OFS_NAME_SPLIT && v->rule->stacked)
		star[stars_of(v->rule)] = (uint32_t)layer;
	if (ofs_family_expand(pattern, star, name))
		return ofs_catalog_str(r->cat, name, strlen(name), r->err);
	optimfs_fail(r->err, EINVAL,
	    "OFS894 a name of more than %d bytes from the rule for '%.*s'",
	    OFS_FAMILY_NAME, OFS_STR_ARGS(pattern, 80));
	return OFS_NONE;
}
