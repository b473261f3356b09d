/* relay.c - an index that many ranks read at once */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/optimfs.h"

#include "api/api.h"
#include "cluster/manifest.h"
#include "handmade.h"
#include "support/group_job.h"
#include "tap.h"

#define NINDEX  ((size_t)(4 << 20) + 321)
#define NPIECES 5 /* of 960 KiB */

static uint8_t *index_bytes;

/* Only rank 0 has the file; all ranks read it. */
struct world {
	struct fakegroup *f;
	int size, silent;
	_Atomic unsigned bad;
	uint64_t calls, letters, total, most;
};

static void read_index(struct world *x, struct optimfs_group *w)
{
	struct ofs_manifest *s = ofs_group_manifest(w, each_rank, NULL);
	uint32_t file = ofs_manifest_find(s, "index");
	uint8_t *buf = malloc(NINDEX);
	struct optimfs_error err;

	if (buf == NULL || file == OFS_NONE)
		bail_out("no index");
	if (!s->file[file].here &&
	    (s->names.ops->read(&s->names, file, buf, NINDEX, 0, &err) == -1 ||
		memcmp(buf, index_bytes, NINDEX) != 0))
		atomic_fetch_add(&x->bad, 1);
	free(buf);
}

/* What rank 0 notes between two barriers. */
static void note(struct world *x, int sign)
{
	struct fakegroup_counts *c = fakegroup_counts(x->f);

	x->calls += (uint64_t)sign * c->asks_of[OFS_WIRE_CALL];
	x->letters += (uint64_t)sign * c->asks_of[OFS_WIRE_LETTER];
	if (sign == -1) {
		fakegroup_sent_anew(x->f);
		return;
	}
	for (int r = 0; r < x->size; r++) {
		uint64_t sent = fakegroup_sent(x->f, r);

		x->total += sent;
		x->most = sent > x->most ? sent : x->most;
	}
}

static void be_rank(struct fakegroup *f, int rank, void *ctx)
{
	struct world *x = ctx;
	bool *all = malloc((size_t)x->size);
	struct optimfs_error err;
	struct optimfs_group *w;

	if (all == NULL)
		bail_out("memory");
	memset(all, true, (size_t)x->size);
	w = ofs_group_new(&fakegroup_ops, 1, ofs_group_services, &err);
	if (w == NULL || optimfs_group_readers(w, all, &err) == -1 ||
	    optimfs_group_offer(w, each_rank, false, NULL, &err) == -1)
		bail_out("%s", err.text);
	fakegroup_meet(f);
	if (rank == 0) {
		note(x, -1);
		if (x->silent != -1)
			fakegroup_mute(f, x->silent, 1);
	}
	fakegroup_meet(f);
	if (rank != x->silent)
		read_index(x, w);
	fakegroup_meet(f);
	if (rank == 0) {
		note(x, 1);
		if (x->silent != -1)
			fakegroup_mute(f, x->silent, 0);
	}
	fakegroup_meet(f);
	ofs_relay_end(w);
	optimfs_group_leave(w, all);
	free(all);
}

static void run_world(struct world *x)
{
	x->f = fakegroup_new(x->size);
	fakegroup_run(x->f, be_rank, x);
	fakegroup_free(x->f);
}

static void test_tree(int size)
{
	struct world x = { .size = size, .silent = -1 };
	uint64_t others = (uint64_t)size - 1;

	run_world(&x);
	is_u64(x.bad, 0, "%d ranks read the index of one", size);
	is_u64(x.calls, others * NPIECES,
	    "each of %d ranks asks once for each piece", size);
	is_u64(x.letters, others * NPIECES,
	    "each piece goes once to each of %d ranks", size);
	/* with what is around the pieces */
	ok(x.most < 2 * NINDEX + NINDEX / 16,
	    "no rank of %d sends the index more than twice", size);
	ok(x.total < others * (NINDEX + NINDEX / 16),
	    "the index crosses each of %d links once", size - 1);
}

static void test_silent(void)
{
	struct world x = { .size = 8, .silent = 1 };

	run_world(&x);
	is_u64(x.bad, 0, "ranks below one that is silent read from the owner");
}

int main(void)
{
	begin_ranks();
	make_dirs(1);
	index_bytes = malloc(NINDEX);
	if (index_bytes == NULL)
		bail_out("memory");
	handmade_fill(index_bytes, NINDEX, 7);
	put(path_of("0/index"), index_bytes, NINDEX);
	test_tree(3);
	test_tree(64);
	test_tree(512);
	test_silent();
	free(index_bytes);
	end_ranks();
	return done_testing();
}
