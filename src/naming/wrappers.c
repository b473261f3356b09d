/* wrappers.c - names without the prefixes that wrappers put into them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "naming/naming_impl.h"

static const char module[] = "module.";
#define MODULE_LEN (sizeof(module) - 1)

/* The bytes of the prefix of a wrapper that p[0..n) begins with; 0: none. */
static size_t wrapper(const char *p, size_t n)
{
	const char *dot = memchr(p, '.', n);
	size_t len = dot == NULL ? 0 : (size_t)(dot - p);
	struct ofs_str part = { p, (uint32_t)len };

	return len + 1 < n && ofs_naming_is_wrapper(part) ? len + 1 : 0;
}

size_t ofs_clean_fqn(const char *fqn, size_t n, char *out)
{
	size_t i = 0, len = 0, w;
	bool start = true;

	while (i < n) {
		w = start ? wrapper(fqn + i, n - i) : 0;
		if (w > 0) {
			i += w;
			continue;
		}
		start = fqn[i] == '.';
		out[len++] = fqn[i++];
	}
	return len;
}

/* The bytes of all "module." that p[0..n) begins with, but not of a whole
 * name. Each wrapper that keeps its model under this name puts one there. */
static uint32_t modules(const char *p, size_t n)
{
	uint32_t len = 0;

	while (n - len > MODULE_LEN && memcmp(p + len, module, MODULE_LEN) == 0)
		len += MODULE_LEN;
	return len;
}

/* Call fn for every name of a parameter, with its scope. */
typedef int name_fn(struct naming *c, uint32_t scope, struct naming_name raw,
    bool clean, struct optimfs_error *err);

static int each_name(struct naming *c, name_fn *fn, bool clean,
    struct optimfs_error *err)
{
	struct naming_rest rest;
	struct naming_key key;
	struct naming_name fqn;
	uint32_t root, number;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		root = c->slot[i].root;
		if (root == OFS_NONE) {
			if (!ofs_naming_in_model(c, i, &rest))
				continue;
			fqn = ofs_naming_fqn(c, rest);
			if (fqn.s.p != NULL &&
			    fn(c, SCOPE_MODEL, fqn, clean, err) == -1)
				return -1;
			continue;
		}
		key = ofs_naming_key(c, i);
		if (key.kind == NAMING_OTHER ||
		    ofs_str_number(key.id.s, &number))
			continue;
		if (fn(c,
			key.kind == NAMING_STATE ? naming_scope_state(root)
						 : naming_scope_groups(root),
			key.id, clean, err) == -1)
			return -1;
	}
	return 0;
}

static size_t nscopes(const struct naming *c)
{
	return 1 + 2 * (size_t)c->nroots;
}

/* The string of raw without wrappers; OFS_NONE on failure. */
static uint32_t without_wrappers(struct naming *c, uint32_t raw,
    struct optimfs_error *err)
{
	struct ofs_str s = ofs_catalog_string(c->cat, raw);
	uint32_t clean;

	if (raw < c->nwords && c->clean[raw] != OFS_NONE)
		return c->clean[raw];
	if ((ofs_naming_word(c, raw) & TOKEN_WRAPPED) == 0)
		return raw;
	if (ofs_reserve(c->scratch, s.len, c->scratch_len, err) == -1)
		return OFS_NONE;
	clean = ofs_catalog_str(c->cat, c->scratch,
	    ofs_clean_fqn(s.p, s.len, c->scratch), err);
	if (raw < c->nwords)
		c->clean[raw] = clean;
	return clean;
}

static uint32_t string_of(struct naming *c, struct naming_name raw,
    struct optimfs_error *err)
{
	return raw.str != OFS_NONE
	    ? raw.str
	    : ofs_catalog_str(c->cat, raw.s.p, raw.s.len, err);
}

static int look_for_module(struct naming *c, uint32_t scope,
    struct naming_name raw, bool clean, struct optimfs_error *err)
{
	struct ofs_str s;
	uint32_t str, len;

	(void)clean;
	if (c->strip[scope] == 0)
		return 0;
	str = string_of(c, raw, err);
	if (str != OFS_NONE)
		str = without_wrappers(c, str, err);
	if (str == OFS_NONE)
		return -1;
	s = ofs_catalog_string(c->cat, str);
	len = modules(s.p, s.len);
	if (len < c->strip[scope])
		c->strip[scope] = len;
	return 0;
}

/* Matches are looked up by clean name. */
struct match_key {
	uint32_t scope, clean;
};

static struct naming_match *find_match(const struct naming *c, uint32_t scope,
    uint32_t clean)
{
	struct match_key k = { scope, clean };
	uint32_t at = ofs_keys_find(&c->matches, &k, sizeof(k));

	return at == OFS_NONE ? NULL : &c->match[at];
}

static int add_match(struct naming *c, uint32_t scope, uint32_t clean,
    uint32_t raw, struct optimfs_error *err)
{
	struct match_key k = { scope, clean };
	uint32_t at = ofs_keys_copy(&c->matches, &k, sizeof(k), err);

	if (at == OFS_NONE || ofs_grow(c->match, at, c->match_cap, err) == -1)
		return -1;
	c->match[at] = (struct naming_match){ .raw = raw };
	return 0;
}

/* The strings of raw and of its clean form in scope; -1 on failure. */
static int both(struct naming *c, uint32_t scope, struct naming_name raw,
    uint32_t *raw_str, uint32_t *clean_str, struct optimfs_error *err)
{
	struct ofs_str s;

	*raw_str = string_of(c, raw, err);
	if (*raw_str == OFS_NONE)
		return -1;
	*clean_str = without_wrappers(c, *raw_str, err);
	if (*clean_str == OFS_NONE)
		return -1;
	s = ofs_catalog_string(c->cat, *clean_str);
	if (c->strip[scope] > 0 && modules(s.p, s.len) >= c->strip[scope])
		*clean_str = ofs_catalog_str(c->cat, s.p + c->strip[scope],
		    s.len - c->strip[scope], err);
	return *clean_str == OFS_NONE ? -1 : 0;
}

/* Clean names are added first, so that a wrapped name never takes one. */
static int match(struct naming *c, uint32_t scope, struct naming_name raw,
    bool clean, struct optimfs_error *err)
{
	uint32_t raw_str, clean_str;
	struct naming_match *other;

	if (both(c, scope, raw, &raw_str, &clean_str, err) == -1)
		return -1;
	if ((raw_str == clean_str) != clean)
		return 0;
	other = find_match(c, scope, clean_str);
	if (other == NULL)
		return add_match(c, scope, clean_str, raw_str, err);
	if (other->raw == raw_str || other->warned)
		return 0;
	other->warned = true;
	return ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS639 %.200s and %.200s have the same name without the "
	    "prefixes of their wrappers; the first keeps its prefixes",
	    c->cat->strs[raw_str], c->cat->strs[other->raw]);
}

int ofs_naming_match_wrapped(struct naming *c, struct optimfs_error *err)
{
	if (!c->wrapped)
		return 0;
	c->strip = malloc(nscopes(c) * sizeof(*c->strip));
	c->clean = malloc(c->nwords * sizeof(*c->clean) + 1);
	if (c->strip == NULL || c->clean == NULL)
		return ofs_no_memory(err);
	memset(c->strip, 0xff, nscopes(c) * sizeof(*c->strip));
	memset(c->clean, 0xff, c->nwords * sizeof(*c->clean));
	if (each_name(c, look_for_module, false, err) == -1 ||
	    each_name(c, match, true, err) == -1)
		return -1;
	return each_name(c, match, false, err);
}

uint32_t ofs_naming_listed(struct naming *c, uint32_t scope,
    struct naming_name raw, bool *alias, struct optimfs_error *err)
{
	uint32_t raw_str, clean_str;
	struct naming_match *mine;

	if (alias != NULL)
		*alias = false;
	if (!c->wrapped)
		return string_of(c, raw, err);
	if (both(c, scope, raw, &raw_str, &clean_str, err) == -1)
		return OFS_NONE;
	if (raw_str == clean_str)
		return raw_str;
	mine = find_match(c, scope, clean_str);
	/* no key has it: a line of an ids= file */
	if (mine == NULL)
		return clean_str;
	if (mine->raw != raw_str)
		return raw_str;
	if (alias != NULL && !mine->aliased)
		*alias = mine->aliased = true;
	return clean_str;
}

uint32_t ofs_naming_unwrapped(struct naming *c, struct ofs_str name,
    bool module_too, struct optimfs_error *err)
{
	size_t n, skip;

	if (ofs_reserve(c->scratch, name.len, c->scratch_len, err) == -1)
		return OFS_NONE;
	n = ofs_clean_fqn(name.p, name.len, c->scratch);
	skip = module_too ? modules(c->scratch, n) : 0;
	return ofs_catalog_str(c->cat, c->scratch + skip, n - skip, err);
}

/* The path of an entry contains the raw name of its parameter, as a component
 * or in a flattened key. */

/* Is fqn the clean form of raw? */
static bool cleans_to(struct ofs_str raw, struct ofs_str fqn, char *scratch)
{
	size_t n = ofs_clean_fqn(raw.p, raw.len, scratch);

	return n >= fqn.len && modules(scratch, n) >= n - fqn.len &&
	    memcmp(scratch + (n - fqn.len), fqn.p, fqn.len) == 0;
}

/* Find the raw form of fqn that starts a component of s and ends tail bytes
 * before its end. */
static bool find_raw(struct ofs_str s, size_t tail, struct ofs_str fqn,
    char *scratch, struct ofs_str *raw)
{
	size_t from = 0;

	while (from + tail < s.len && s.len - tail - from > fqn.len) {
		*raw = (struct ofs_str){ s.p + from,
			(uint32_t)(s.len - tail - from) };
		if (cleans_to(*raw, fqn, scratch))
			return true;
		from = ofs_naming_dot(s, from) + 1;
	}
	return false;
}

/* The index of the component of a tree path that is the name of a parameter; 0
 * when there is none. */
static uint32_t fqn_at(const struct ofs_catalog *cat, const uint32_t *tree,
    uint32_t n)
{
	struct ofs_str s = ofs_catalog_string(cat, tree[0]);

	if (n == 2 && ofs_str_is(s, "model"))
		return 1;
	if (!ofs_str_is(s, "optim"))
		return 0;
	for (uint32_t i = 1; i < 3 && i + 1 < n; i++) {
		s = ofs_catalog_string(cat, tree[i]);
		if (ofs_str_is(s, "state") || ofs_str_is(s, "param_groups"))
			return i + 1;
	}
	return 0;
}

bool ofs_raw_fqn(const struct ofs_catalog *cat, const struct ofs_entry *entry,
    struct ofs_str *raw)
{
	uint32_t n, npath, at;
	const uint32_t *tree, *path;
	size_t tail = 0;
	bool found = false;

	if (entry->tree == OFS_NONE)
		return false;
	tree = ofs_catalog_components(cat, entry->tree, &n);
	path = ofs_catalog_components(cat, entry->path, &npath);
	at = n == 0 ? 0 : fqn_at(cat, tree, n);
	if (at == 0)
		return false;
	for (uint32_t i = at + 1; i < n; i++)
		tail += ofs_catalog_string(cat, tree[i]).len + 1;
	for (uint32_t i = 0; i < npath && !found; i++) {
		struct ofs_str s = ofs_catalog_string(cat, path[i]);
		struct ofs_str fqn = ofs_catalog_string(cat, tree[at]);
		char *scratch = malloc(s.len + 1ull);

		if (scratch == NULL)
			return false;
		found = find_raw(s, 0, fqn, scratch, raw) ||
		    find_raw(s, tail, fqn, scratch, raw);
		free(scratch);
	}
	return found;
}
