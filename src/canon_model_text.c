/* canon_model_text.c - does "model." belong to the names? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "canon_impl.h"

/* Textual keys: the model's may begin with "model." as the optimizer's do with
 * "optim.", or not; a model may have a child called "model". Only names that
 * the optimizer's state has can tell. */

static bool try_prefix(const struct canon_set *tops, const char *prefix,
    struct ofs_str text)
{
	size_t n = strlen(prefix), dot = ofs_canon_dot(text, 0);
	char key[1024];

	memcpy(key, prefix, n);
	for (; dot < text.len; dot = ofs_canon_dot(text, dot + 1)) {
		if (n + dot > sizeof(key))
			return false;
		memcpy(key + n, text.p, dot);
		if (ofs_canon_set_has(tops,
			(struct ofs_str){ key, (uint32_t)(n + dot) }))
			return true;
	}
	return false;
}

static const char *const prefixes[] = { "", "model.", "state_dict.", "module.",
	"app.model.", "state.model.", NULL };
#define MAX_TRIES 256

static const char *find_prefix(const struct canon *c,
    const struct canon_set *tops)
{
	static const char state[] = "state.";
	int tries = 0;

	for (uint32_t i = 0; i < c->cat->nentries && tries < MAX_TRIES; i++) {
		struct canon_rest rest;

		if (c->spot[i].root == OFS_NONE ||
		    (c->spot[i].at & SPOT_TEXT) == 0)
			continue;
		rest = ofs_canon_rest(c, i);
		if (rest.text.len < sizeof(state) ||
		    memcmp(rest.text.p, state, sizeof(state) - 1) != 0)
			continue;
		rest.text = ofs_canon_after(rest.text, sizeof(state) - 1);
		for (int k = 0; prefixes[k] != NULL; k++)
			if (try_prefix(tops, prefixes[k], rest.text))
				return prefixes[k];
		tries++;
	}
	return "";
}

static int top_names(const struct canon *c, struct canon_set *tops,
    struct optimfs_error *err)
{
	const uint32_t *path;
	uint32_t n;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		if (!ofs_model_tensor(c, i))
			continue;
		path =
		    ofs_catalog_components(c->cat, c->cat->entries[i].path, &n);
		if (n == 1 &&
		    ofs_canon_set_add(tops, ofs_catalog_string(c->cat, path[0]),
			err) == -1)
			return -1;
	}
	return 0;
}

int ofs_model_prefix(struct canon *c, const char *prefix,
    struct optimfs_error *err)
{
	c->model.len = strlen(prefix);
	c->model.prefix = ofs_arena_strndup(&c->arena, prefix, c->model.len);
	if (c->model.prefix == NULL)
		return ofs_canon_no_memory(err);
	c->model.kind = MODEL_TEXT;
	return 0;
}

int ofs_model_find_text(struct canon *c, struct optimfs_error *err)
{
	struct canon_set tops = { 0 };
	const char *prefix = "";
	int ret = top_names(c, &tops, err);

	if (ret == 0)
		prefix = find_prefix(c, &tops);
	ofs_canon_set_fini(&tops);
	if (ret == -1 || prefix[0] == '\0')
		return ret;
	return ofs_model_prefix(c, prefix, err);
}
