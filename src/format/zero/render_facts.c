/* render_facts.c - facts about the job in a checkpoint's extra/ */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "format/zero/render.h"
#include "pickle/pickle.h"

uint32_t ofs_zero_new_fact(const struct ofs_zero_new *z, const char *path)
{
	const struct ofs_state *s = &z->extra;
	uint32_t node = 0;
	char word[64];

	if (s->n == 0)
		return OFS_NONE;
	for (size_t n; *path != '\0' && node != OFS_NONE; path += n) {
		path += *path == '/';
		n = strcspn(path, "/");
		if (n >= sizeof(word))
			return OFS_NONE;
		memcpy(word, path, n);
		word[n] = '\0';
		node = ofs_state_child(s, node, word);
	}
	return node == OFS_NONE ? OFS_NONE : s->node[node].entry;
}

const struct ofs_pickle *ofs_zero_new_value(const struct ofs_zero_new *z,
    uint32_t entry, uint32_t *node)
{
	const struct ofs_pickle *doc;

	if (entry == OFS_NONE ||
	    z->m.cat->entries[entry].kind == OFS_ENTRY_TENSOR ||
	    ofs_render_value(&z->m.from, &z->m.cat->entries[entry], &doc, node,
		NULL) == -1)
		return NULL;
	return doc;
}

void ofs_zero_new_release(const struct ofs_zero_new *z, uint32_t entry,
    const struct ofs_pickle *doc)
{
	if (doc != NULL)
		ofs_render_release(z->m.cat, &z->m.cat->entries[entry], doc);
}

static bool int_at(const struct ofs_zero_new *z, uint32_t entry, int64_t *v)
{
	uint32_t node;
	const struct ofs_pickle *doc = ofs_zero_new_value(z, entry, &node);
	bool found = doc != NULL && ofs_pk_int(doc, node, v);

	ofs_zero_new_release(z, entry, doc);
	return found;
}

bool ofs_zero_new_int(const struct ofs_zero_new *z, const char *path,
    int64_t *v)
{
	return int_at(z, ofs_zero_new_fact(z, path), v);
}

bool ofs_zero_new_true(const struct ofs_zero_new *z, uint32_t entry)
{
	uint32_t node;
	const struct ofs_pickle *doc = ofs_zero_new_value(z, entry, &node);
	bool yes = doc != NULL && ofs_pk_kind(doc, node) == OFS_PK_BOOL &&
	    ofs_pk_bool(doc, node);

	ofs_zero_new_release(z, entry, doc);
	return yes;
}

/* The step of a parameter. */
static int64_t step_at(const struct ofs_zero_new *z, uint32_t entry)
{
	const struct ofs_entry *e = &z->m.cat->entries[entry];
	uint8_t bits[16];
	int64_t v = 0;
	float f;

	if (e->kind != OFS_ENTRY_TENSOR) {
		int_at(z, entry, &v);
		return v;
	}
	if (ofs_flat_tensor(&z->m, entry)->dtype != OFS_FLOAT32 ||
	    ofs_flat_is_cut(&z->m, entry) ||
	    z->m.from.elements(z->m.from.ctx, e->ref, 1, bits, NULL) == -1)
		return 0;
	memcpy(&f, bits, sizeof(f));
	return f >= 0 && f < 1e9f ? (int64_t)f : 0;
}

int64_t ofs_zero_new_steps(const struct ofs_zero_new *z)
{
	int64_t v;

	if (ofs_zero_new_int(z, "global_steps", &v))
		return v;
	for (uint32_t i = 0; i < z->m.nstates; i++)
		if (strcmp(z->m.state[i].name, "step") == 0)
			return step_at(z, z->m.state[i].entry);
	return 0;
}

int ofs_zero_new_stage(const struct ofs_zero_new *z)
{
	uint32_t entry =
	    ofs_zero_new_fact(z, "optimizer_state_dict/zero_stage");
	uint32_t node;
	const struct ofs_pickle *doc = ofs_zero_new_value(z, entry, &node);
	int stage = doc == NULL ? 0 : ofs_zero_stage_of(doc, node);

	ofs_zero_new_release(z, entry, doc);
	return stage;
}
