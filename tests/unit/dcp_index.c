/* dcp_index.c - the index of a view, span by span */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "format/dcp/render.h"
#include "handmade.h"
#include "tap/tap.h"

#define TENSORS 3000u

/* Small tensors of several shapes, most of 4 rows, and a large one. */
static uint32_t add_tensor(struct handmade *h, uint32_t i)
{
	static const uint64_t shapes[][2] = { { 4, 1 }, { 4, 300 },
		{ 2, 70000 }, { 1000, 1 } };
	unsigned kind = i == 7 ? 3 : i % 3;
	struct ofs_tensor t = {
		.ndim = (uint8_t)(i % 5 == 0 ? 0 : 2),
		.dtype = i % 4 == 0 ? OFS_BFLOAT16 : OFS_FLOAT32,
		.error = OFS_NONE,
	};

	t.grid_ndim = t.ndim;
	t.shape = ofs_catalog_dims(h->cat, shapes[kind], t.ndim, NULL);
	t.grid = t.shape;
	return ofs_catalog_tensor(h->cat, &t, NULL);
}

static void add_tensors(struct handmade *h)
{
	for (uint32_t i = 0; i < TENSORS; i++) {
		struct ofs_entry e = {
			.tree = OFS_NONE,
			.ref = add_tensor(h, i),
			.kind = OFS_ENTRY_TENSOR,
		};
		char name[32];
		uint32_t c;

		snprintf(name, sizeof(name), "w%u", i * i);
		c = ofs_catalog_str(h->cat, name, strlen(name), NULL);
		e.path = ofs_catalog_path(h->cat, &c, 1, NULL);
		if (ofs_catalog_entry(h->cat, &e, NULL) == OFS_NONE)
			bail_out("out of memory");
	}
}

/* Are the bytes of each span as many as its length says? */
static bool lengths_hold(const struct ofs_files *f, const struct ofs_spans *s)
{
	uint64_t at = 0;

	for (size_t i = 0; i < s->n; at = s->v[i++].end) {
		struct ofs_composition c = { 0 };
		struct optimfs_error err;
		bool same;

		if (f->ops->make(f, 0, &s->v[i], at, &c, &err) == -1)
			bail_out("%s", err.text);
		same = c.size == s->v[i].end - at;
		if (!same)
			diag("span %zu: %llu bytes for %llu", i,
			    (unsigned long long)c.size,
			    (unsigned long long)(s->v[i].end - at));
		ofs_composition_fini(&c);
		if (!same)
			return false;
	}
	return true;
}

static void test_layout(const struct handmade *h, uint32_t shards,
    uint32_t replicas)
{
	struct ofs_render from = { .cat = h->cat };
	struct ofs_layout to = {
		.shards = shards, .replicas = replicas, .keys = OFS_KEYS_SOURCE
	};
	struct ofs_spans spans = { 0 };
	struct optimfs_error err;
	struct ofs_files *f = ofs_files_new(&ofs_dcp_render, &from, &to, &err);

	if (f == NULL || f->ops->spans(f, 0, &spans, &err) == -1)
		bail_out("%s", err.text);
	ok(lengths_hold(f, &spans),
	    "each span of an index of %u x %u ranks is as long as was said",
	    shards, replicas);
	/* of entries, of paths, and of each rank */
	ok(spans.n < 20 * TENSORS / 512 + 2 * shards * replicas + 20,
	    "an index of %u x %u ranks has few spans", shards, replicas);
	ofs_spans_fini(&spans);
	ofs_files_free(f);
}

int main(void)
{
	struct handmade h;

	handmade_init(&h);
	add_tensors(&h);
	test_layout(&h, 1, 1);
	test_layout(&h, 8, 2);
	test_layout(&h, 700, 1);
	handmade_fini(&h);
	return done_testing();
}
