/* relay.c - an index that many ranks read at once */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/relay.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/optimfs.h"

#include "api/api.h"
#include "cluster/manifest.h"
#include "handmade.h"
#include "support/group_job.h"
#include "tap.h"

/* A piece is 960 KiB. */
#define NPIECES(n) (((n) + (960 << 10) - 1) / (960 << 10))

static uint8_t *index_bytes;
static size_t nindex;

/* A job in which one rank has the file, which all ranks read. */
struct world {
	struct fakegroup *f;
	int size, machines, owner, silent;
	_Atomic unsigned bad, refused;
	bool named;
	bool serves; /* the owner opens nothing, and only answers */
	/* Of all steps of a mount: without signs of life. */
	uint64_t messages, chain;
	uint64_t
	    memory; /* in use when all have opened, by all ranks together */
	/* Of reading the index. */
	uint64_t calls, letters, total, most;
};

static void read_index(struct world *x, struct optimfs_group *w)
{
	struct ofs_manifest *s = ofs_group_manifest(w, each_rank, NULL);
	uint32_t file = ofs_manifest_find(s, "index");
	uint8_t *buf = malloc(nindex);
	struct optimfs_error err;

	if (buf == NULL || file == OFS_NONE)
		bail_out("no index");
	if (!s->file[file].here &&
	    (s->names.ops->read(&s->names, file, buf, nindex, 0, &err) == -1 ||
		memcmp(buf, index_bytes, nindex) != 0))
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

static void note_mount(struct world *x)
{
	struct fakegroup_counts *c = fakegroup_counts(x->f);

	x->chain = fakegroup_chain(x->f);
	for (int k = 0; k < OFS_WIRE_KINDS; k++)
		if (k != OFS_WIRE_PING)
			x->messages += 2 * c->asks_of[k];
	x->memory = mallinfo2().uordblks + mallinfo2().hblkhd - x->memory;
}

/* One is silent until the first of the others has found out. */
static void give_up(struct world *x, struct optimfs_group *w, int rank)
{
	struct optimfs_error err;

	x->refused += optimfs_group_compare(w, NULL, &err) == -1;
	if (rank != 0)
		return;
	x->named = strstr(err.text, "rank 1 (odd)") != NULL;
	fakegroup_mute(x->f, x->silent, 0);
}

static void be_rank(struct fakegroup *f, int rank, void *ctx)
{
	struct world *x = ctx;
	bool *all = malloc((size_t)x->size), idle = x->serves && rank == x->owner;
	struct optimfs_error err;
	struct optimfs_group *w;

	if (all == NULL)
		bail_out("memory");
	memset(all, true, (size_t)x->size);
	all[x->owner] = !x->serves;
	fakegroup_meet(f);
	if (rank == 0)
		x->memory = mallinfo2().uordblks + mallinfo2().hblkhd;
	fakegroup_meet(f);
	w = ofs_group_new(&fakegroup_ops, 1, ofs_group_services, &err);
	if (w == NULL || optimfs_group_readers(w, all, &err) == -1 ||
	    optimfs_group_offer(w, each_rank, false, NULL, &err) == -1)
		bail_out("%s", err.text);
	w->together = true;
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
	if (x->silent != -1) {
		if (rank != x->silent)
			give_up(x, w, rank);
		optimfs_group_leave(w, all);
		free(all);
		return;
	}
	if (rank == 0)
		note(x, 1);
	fakegroup_meet(f);
	if (!idle &&
	    (optimfs_group_compare(w, NULL, &err) == -1 ||
		optimfs_group_agree(w, NULL, &err) == -1))
		bail_out("%s", err.text);
	fakegroup_meet(f);
	if (rank == 0)
		note_mount(x);
	fakegroup_meet(f);
	optimfs_group_leave(w, all);
	free(all);
}

static void run_world(struct world *x, size_t n)
{
	index_bytes = malloc(n);
	if (index_bytes == NULL)
		bail_out("memory");
	nindex = n;
	handmade_fill(index_bytes, n, 7);
	clear();
	make_dirs(x->owner + 1);
	put(path_of("%d/index", x->owner), index_bytes, n);
	x->f = fakegroup_new(x->size);
	fakegroup_machines(x->f, x->machines);
	fakegroup_run(x->f, be_rank, x);
	fakegroup_free(x->f);
	free(index_bytes);
}

static unsigned depth(int size)
{
	unsigned n = 0;

	while (size >>= 1)
		n++;
	return n;
}

/* docs/performance.md has this model. */
static void test_tree(int size, int machines, int owner, size_t n)
{
	struct world x = {
		.size = size, .machines = machines, .owner = owner, .silent = -1
	};
	uint64_t links = (uint64_t)size - 1, pieces = NPIECES(n);
	/* up and down four times; a piece: its request and the result */
	uint64_t messages = links * 2 * (4 * 2 + 2 * pieces);
	/* On each level a letter up, and two in turn down. Requests go up at once,
	 * and the results come down, perhaps one after the other. */
	uint64_t chain = (depth(size) + 1) * (4 * (1 + 3) + 3) +
	    (depth(machines) + depth(size / machines) + 1) * 4 * pieces;

	run_world(&x, n);
	is_u64(x.bad, 0, "%d ranks read the index of one", size);
	is_u64(x.messages, messages, "a mount by %d ranks takes %u messages",
	    size, (unsigned)messages);
	ok(x.chain <= chain, "of %d ranks at most %u messages are in a chain",
	    size, (unsigned)chain);
	/* apart from what the first rank needs, and the allocator */
	ok(size < 512 ||
		x.memory / (uint64_t)size < (64 << 10) + 64 * (uint64_t)size,
	    "the memory of one of %d ranks hardly depends on their number",
	    size);
	is_u64(x.calls, links * pieces,
	    "each of %d ranks asks once for each piece", size);
	is_u64(x.letters, links * pieces,
	    "each piece goes once to each of %d ranks", size);
	/* with what is around the pieces */
	ok(x.most < 2 * n + n / 16 + 1024,
	    "no rank of %d sends the index to more than two machines", size);
	ok(x.total < (uint64_t)(machines - 1) * (n + n / 16 + 1024),
	    "the index comes once to each of %d machines", machines);
	diag("%d ranks: %u messages, a chain of %u, %u bytes of memory a rank",
	    size, (unsigned)x.messages, (unsigned)x.chain,
	    (unsigned)(x.memory / (uint64_t)size));
}

/* The first that opens on its machine asks the owner. */
static void test_serving(void)
{
	struct world x = { .size = 20,
		.machines = 4,
		.owner = 7,
		.silent = -1,
		.serves = true };
	size_t n = (4 << 20) + 321;

	run_world(&x, n);
	is_u64(x.bad, 0, "all ranks read the index of one that only serves");
	is_u64(x.calls, 19 * NPIECES(n), "each asks once for each piece");
	ok(x.most < 2 * n + n / 16 + 1024,
	    "no rank sends the index to more than two machines");
	ok(x.total < 3 * (uint64_t)(n + n / 16 + 1024),
	    "the index comes once to each of the other machines");
}

static void test_silent(void)
{
	struct world x = { .size = 8, .machines = 2, .silent = 1 };

	run_world(&x, 1 << 20);
	is_u64(x.bad, 0, "ranks below one that is silent read from the owner");
	is_u64(x.refused, 7, "no rank opens the checkpoint without it");
	ok(x.named, "the first of them says which one it is");
}

/* With an argument: so many ranks, in one process. */
int main(int argc, char **argv)
{
	begin_ranks();
	if (argc > 1) {
		test_tree(atoi(argv[1]), (atoi(argv[1]) + 7) / 8, 0,
		    (64 << 10) + 321);
	} else {
		test_tree(3, 3, 0, (4 << 20) + 321);
		test_tree(64, 8, 0, (4 << 20) + 321);
		test_tree(512, 64, 0, (64 << 10) + 321);
		test_tree(20, 3, 7, (64 << 10) + 321);
		test_serving();
		test_silent();
	}
	end_ranks();
	return done_testing();
}
