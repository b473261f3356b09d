/* read/patch.c, plan/window.c - stored bytes with staged elements over them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/patch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "layout.h"
#include "plan/window.h"
#include "support/staged.h"
#include "tap.h"

static uint64_t rng = 0x9e3779b97f4a7c15;

/* A transport of the objects in memory. */
struct memory {
	struct ofs_transport base;
	struct stored *s;
	uint64_t bytes; /* fetched */
};

static int fetch(struct ofs_transport *t, const struct ofs_segment *segs,
    size_t n, void *buf, struct optimfs_error *err)
{
	struct memory *m = (struct memory *)t;
	struct ofs_plan plan = { .seg = (struct ofs_segment *)(uintptr_t)segs,
		.n = n };

	(void)err;
	stored_run(m->s, &plan, buf, NULL);
	for (size_t i = 0; i < n; i++)
		m->bytes += segs[i].n * segs[i].len;
	return 0;
}

static void close_memory(struct ofs_transport *t)
{
	(void)t;
}

static const struct ofs_transport_ops memory_ops = {
	.name = "memory",
	.fetch = fetch,
	.close = close_memory,
};

/* A tensor, stored, with an edit; and what the objects should contain. */
struct made {
	struct layout l;
	struct stored s;
	struct memory memory;
	struct ofs_reader reader;
	struct ofs_edit edit;
	struct ofs_patches patches;
	uint8_t *old, *new; /* bytes of the tensor */
	uint64_t size;
	uint8_t **want;
};

static void read_with(struct made *m)
{
	m->memory = (struct memory){ .base.ops = &memory_ops, .s = &m->s };
	if (ofs_reader_init(&m->reader, m->s.cat, &m->memory.base, NULL) == -1)
		bail_out("no reader");
	for (uint32_t i = 0; i < m->s.n; i++) {
		const struct ofs_place *p =
		    stored_place(&m->s, m->s.t, m->s.t->shard + i, NULL);
		size_t n = sizeof(*p) + m->l.ndim * sizeof(p->stride[0]);
		struct ofs_place *copy = malloc(n);

		if (copy == NULL)
			bail_out("out of memory");
		memcpy(copy, p, n);
		atomic_init(&m->reader.place[m->s.t->shard + i], copy);
	}
}

/* Writes random ranges; whole: all of it. */
static void write_ranges(struct made *m, bool whole)
{
	int fd = memfd_create("staged", 0);

	m->edit = (struct ofs_edit){ .staged = staged_in(fd) };
	if (fd == -1 || ftruncate(fd, (off_t)m->size) == -1)
		bail_out("nothing can be staged");
	for (uint64_t n = 1 + tap_below(&rng, 4); n > 0; n--) {
		uint64_t off = whole ? 0 : tap_below(&rng, m->size);
		uint64_t end =
		    whole ? m->size : off + 1 + tap_below(&rng, m->size - off);

		for (uint64_t i = off; i < end; i++)
			m->new[i] = (uint8_t)~m->old[i];
		if (pwrite(fd, m->new + off, end - off, (off_t)off) !=
			(ssize_t)(end - off) ||
		    ofs_ranges_add(&m->edit.written, off, end, NULL) == -1)
			bail_out("nothing can be staged");
	}
}

/* Clones the objects, and puts all elements where the plan of a read finds
 * them. */
static void expect(struct made *m)
{
	struct ofs_plan plan = { 0 };

	m->want = calloc(m->s.n + 1, sizeof(*m->want));
	for (uint32_t i = 0; i < m->s.n; i++) {
		m->want[i] = malloc(m->s.len[i] + 1);
		memcpy(m->want[i], m->s.bytes[i], m->s.len[i]);
	}
	if (ofs_plan_elements(m->s.cat, m->s.t, 0, m->size / m->s.item,
		stored_place, &m->s, &plan, NULL) == -1)
		bail_out("no plan");
	for (size_t i = 0; i < plan.n; i++) {
		const struct ofs_segment *g = &plan.seg[i];

		for (uint64_t k = 0; k < g->n; k++)
			memcpy(m->want[g->object] + g->src +
				k * (uint64_t)g->src_pitch,
			    m->new + g->dst + k *(uint64_t)g->dst_pitch,
			    g->len);
	}
	ofs_plan_fini(&plan);
}

static bool make(struct made *m, bool mixed, bool whole)
{
	*m = (struct made){ 0 };
	layout_shape(&m->l, &rng);
	layout_cut(&m->l, (enum layout_kind)tap_below(&rng, LAYOUT_KINDS),
	    &rng);
	m->size =
	    layout_numel(m->l.shape, m->l.ndim) * ofs_dtype_size(m->l.dtype);
	m->old = random_bytes(&rng, m->size);
	m->new = malloc(m->size + 1);
	memcpy(m->new, m->old, m->size);
	stored_init(&m->s, &m->l, m->old, mixed, &rng);
	if (m->size == 0)
		return false;
	read_with(m);
	write_ranges(m, whole);
	expect(m);
	if (ofs_patches_add(&m->patches, &m->reader, &m->edit, NULL) == -1)
		bail_out("no patch");
	ofs_patches_seal(&m->patches);
	return true;
}

static void drop(struct made *m)
{
	for (uint32_t i = 0; m->want != NULL && i < m->s.n; i++)
		free(m->want[i]);
	free(m->want);
	ofs_patches_fini(&m->patches);
	ofs_ranges_fini(&m->edit.written);
	if (m->size > 0) {
		close(staged_fd(&m->edit.staged));
		ofs_reader_fini(&m->reader);
	}
	free(m->old);
	free(m->new);
	stored_fini(&m->s);
	layout_fini(&m->l);
}

static bool window_is(struct made *m, uint32_t object, uint64_t off,
    uint64_t len)
{
	/* an extent somewhere in the object */
	uint64_t base = tap_below(&rng, off + 1);
	struct ofs_extent at = {
		.object = object, .off = base, .len = m->s.len[object] - base
	};
	struct optimfs_error err = { 0 };
	uint8_t *got = random_bytes(&rng, len);
	bool same;

	same = ofs_patches_read(&m->patches, &at, off - base, len, got, &err) ==
		0 &&
	    memcmp(got, m->want[object] + off, len) == 0;
	if (!same)
		diag("bytes %llu-%llu of object %u: %s",
		    (unsigned long long)off, (unsigned long long)(off + len),
		    object, err.text);
	free(got);
	return same;
}

static bool all_windows(struct made *m)
{
	bool same = true;

	for (uint32_t i = 0; i < m->s.n && same; i++) {
		uint64_t n = m->s.len[i];

		same = window_is(m, i, 0, n);
		for (int k = 0; n > 0 && k < 6 && same; k++) {
			uint64_t off = tap_below(&rng, n);

			same =
			    window_is(m, i, off, 1 + tap_below(&rng, n - off));
		}
	}
	return same;
}

/* Outside of what is touched nothing changes. */
static bool touched_is(const struct made *m)
{
	for (uint32_t i = 0; i < m->s.n; i++) {
		const struct ofs_ranges *t =
		    ofs_patches_touched(&m->patches, i);

		for (uint64_t k = 0; k < m->s.len[i]; k++)
			if (m->want[i][k] != m->s.bytes[i][k] &&
			    !ofs_ranges_meet(t, k, k + 1))
				return false;
	}
	return true;
}

static void edits(void)
{
	int good = 0, touched = 0, rounds = 3000;

	for (int i = 0; i < rounds; i++) {
		struct made m;
		bool any = make(&m, i % 2 == 0, i % 5 == 0);

		good += !any || all_windows(&m);
		touched += !any || touched_is(&m);
		drop(&m);
	}
	is_int(good, rounds,
	    "any window of any edit equals a clone with the new elements");
	is_int(touched, rounds, "all that changes is touched");
}

/* Elements in C order that are all written replace what is stored. */
static void replaced(void)
{
	int rounds = 300, good = 0;

	for (int i = 0; i < rounds; i++) {
		struct made m;
		bool any = make(&m, false, true);

		good += !any || (all_windows(&m) && m.memory.bytes == 0);
		drop(&m);
	}
	is_int(good, rounds, "stored bytes that are replaced are not read");
}

/* Is the element at these indexes of the shard in the box? */
static bool holds(const uint64_t *part, const uint64_t *index, unsigned ndim)
{
	for (unsigned d = 0; d < ndim; d++)
		if (index[d] < part[d] || index[d] - part[d] >= part[ndim + d])
			return false;
	return true;
}

/* Compares the box of a window with a search of all elements. c: the elements
 * are in C order, so the box is within one step of the first dimension. */
static bool box_is(const struct ofs_stored_box *s, uint64_t off, uint64_t len,
    bool c)
{
	uint64_t part[2 * LAYOUT_DIMS], index[LAYOUT_DIMS], n, inside = 0;
	bool any = ofs_plan_window(s, off, len, part);
	uint64_t step = s->ndim == 0 ? s->item : (uint64_t)s->place->stride[0];

	n = layout_numel(s->box + s->ndim, s->ndim);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t rest = i, at = s->place->base;

		for (unsigned d = s->ndim; d-- > 0;) {
			uint64_t k = rest % s->box[s->ndim + d];

			rest /= s->box[s->ndim + d];
			index[d] = s->box[d] + k;
			at += k * (uint64_t)s->place->stride[d];
		}
		if (at + s->item <= off || at >= off + len)
			continue;
		inside++;
		if (!any || !holds(part, index, s->ndim))
			return false;
	}
	return !c || !any ||
	    layout_numel(part + s->ndim, s->ndim) * s->item <=
	    inside * s->item + 2 * step;
}

static void windows(void)
{
	int good = 0, rounds = 3000;

	for (int i = 0; i < rounds; i++) {
		struct made m;
		bool mixed = i % 2 == 0, same = true;
		bool any = make(&m, mixed, false);

		for (uint32_t k = 0; any && k < m.s.n && same; k++) {
			uint64_t box[2 * LAYOUT_DIMS], off;
			const struct ofs_shard *shard =
			    &m.s.cat->shards[m.s.t->shard + k];
			struct ofs_stored_box s = {
				m.reader.place[m.s.t->shard + k], m.l.ndim, box,
				m.s.item
			};

			ofs_shard_box(m.s.cat, m.s.t, shard, box,
			    box + m.l.ndim);
			if (layout_numel(box + m.l.ndim, m.l.ndim) == 0)
				continue;
			off = tap_below(&rng, m.s.len[shard->at.object] + 1);
			same = box_is(&s, off, 1 + tap_below(&rng, 50), !mixed);
		}
		good += same;
		drop(&m);
	}
	is_int(good, rounds, "the box of a window has all its elements");
}

int main(void)
{
	edits();
	replaced();
	windows();
	return done_testing();
}
