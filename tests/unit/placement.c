/* placement.c - a rank's part of a dimension on a mesh, compared with lists of
 * indexes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/placement.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "tap.h"

#define MAX_N 96

/* The model: the indexes that a rank has. */
struct list {
	uint64_t v[MAX_N];
	uint32_t n;
};

/* Appends chunk i of torch.chunk(l, m). */
static void chunk(const struct list *l, uint64_t m, uint64_t i,
    struct list *out)
{
	uint64_t size = (l->n + m - 1) / m;

	for (uint64_t k = 0; k < l->n; k++)
		if (k / (size == 0 ? 1 : size) == i)
			out->v[out->n++] = l->v[k];
}

static void cut(struct list *l, uint64_t split, uint64_t m, uint64_t i)
{
	struct list out = { .n = 0 };

	for (uint64_t s = 0; s < split; s++) {
		struct list part = { .n = 0 };

		chunk(l, split, s, &part);
		chunk(&part, m, i, &out);
	}
	*l = out;
}

struct mesh {
	struct ofs_placement p[4];
	uint64_t shape[4], at[4];
	uint32_t n;
	/* The mesh dimensions that cut tensor dimension 0, in this order. */
	uint32_t order[4], norder;
};

static bool same(const struct list *want, const struct ofs_run *run, uint32_t n)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (run[i].count == 0 ||
		    (i > 0 &&
			run[i].first == run[i - 1].first + run[i - 1].count))
			return false;
		for (uint64_t j = 0; j < run[i].count; j++)
			if (k == want->n || want->v[k++] != run[i].first + j)
				return false;
	}
	return k == want->n;
}

static struct list model(const struct mesh *m, uint64_t n, bool literal)
{
	struct list l = { .n = (uint32_t)n };

	for (uint64_t i = 0; i < n; i++)
		l.v[i] = i;
	if (!literal)
		for (uint32_t k = 0; k < m->norder; k++)
			cut(&l, 1, m->shape[m->order[k]], m->at[m->order[k]]);
	else
		for (uint32_t k = 0; k < m->n; k++)
			if (m->p[k].kind == OFS_SHARD && m->p[k].dim == 0)
				cut(&l, m->p[k].split, m->shape[k], m->at[k]);
	return l;
}

static void random_mesh(struct mesh *m, uint64_t *seed)
{
	memset(m, 0, sizeof(*m));
	m->n = 1 + (uint32_t)(tap_random(seed) % 4);
	for (uint32_t i = 0; i < m->n; i++) {
		uint64_t kind = tap_random(seed) % 4;
		uint32_t turn;

		m->shape[i] = 1 + tap_random(seed) % 4;
		m->p[i] =
		    (struct ofs_placement){ .kind = kind == 0 ? OFS_REPLICATE
							      : OFS_SHARD,
			    .dim = kind == 1,
			    .split = 1 };
		if (kind < 2)
			continue;
		turn = (uint32_t)(tap_random(seed) % (m->norder + 1));
		memmove(m->order + turn + 1, m->order + turn,
		    (m->norder - turn) * sizeof(*m->order));
		m->order[turn] = i;
		m->norder++;
	}
}

/* The factor of _StridedShard says in which order the mesh dimensions cut. */
static void set_splits(struct mesh *m)
{
	for (uint32_t k = 0; k < m->norder; k++)
		for (uint32_t before = 0; before < k; before++)
			if (m->order[before] > m->order[k])
				m->p[m->order[k]].split *=
				    m->shape[m->order[before]];
}

static bool check_rank(const struct mesh *m, uint64_t n, bool literal,
    uint32_t *seen)
{
	struct list want = model(m, n, literal);
	struct optimfs_error err;
	struct ofs_run *run;
	uint32_t nruns;
	bool good;

	if (ofs_placement_runs(m->p, m->shape, m->at, m->n, 0, n, literal, &run,
		&nruns, &err) == -1)
		return false;
	good = same(&want, run, nruns);
	for (uint32_t i = 0; i < want.n; i++)
		seen[want.v[i]]++;
	free(run);
	return good;
}

/* Compares each rank, and checks that all ranks together have each index
 * equally often. */
static bool check_mesh(struct mesh *m, uint64_t n, bool literal)
{
	uint32_t seen[MAX_N] = { 0 }, i;
	uint64_t copies = 1;

	for (i = 0; i < m->n; i++)
		if (m->p[i].kind == OFS_REPLICATE || m->p[i].dim != 0)
			copies *= m->shape[i];
	do {
		if (!check_rank(m, n, literal, seen))
			return false;
		for (i = 0; i < m->n; i++) {
			if (++m->at[i] < m->shape[i])
				break;
			m->at[i] = 0;
		}
	} while (i < m->n);
	for (uint64_t k = 0; k < n; k++)
		if (seen[k] != copies)
			return false;
	return true;
}

static void random_meshes(void)
{
	uint64_t seed = 5;
	struct mesh m;
	int bad = 0;

	for (int i = 0; i < 4000; i++) {
		uint64_t n = tap_random(&seed) % MAX_N;

		random_mesh(&m, &seed);
		set_splits(&m);
		bad += !check_mesh(&m, n, false);
	}
	is_int(bad, 0, "random meshes cut in any order as the model says");
	for (int i = 0; i < 4000; i++) {
		uint64_t n = tap_random(&seed) % MAX_N;

		random_mesh(&m, &seed);
		for (uint32_t k = 0; k < m.n; k++)
			m.p[k].split = 1 + tap_random(&seed) % 5;
		bad += !check_mesh(&m, n, true);
	}
	is_int(bad, 0,
	    "random meshes with any literal factor cut as the model says");
}

/* "first+count ..." of the rank at coordinates x, y of a 2 x 2 mesh. */
static const char *runs(struct ofs_placement a, struct ofs_placement b,
    uint64_t x, uint64_t y, uint64_t n)
{
	static char text[200];
	struct optimfs_error err = { 0 };
	struct ofs_run *run;
	uint32_t nruns;

	text[0] = '\0';
	if (ofs_placement_runs((struct ofs_placement[]){ a, b },
		(uint64_t[]){ 2, 2 }, (uint64_t[]){ x, y }, 2, 0, n, false,
		&run, &nruns, &err) == -1)
		return "fails";
	for (uint32_t i = 0; i < nruns; i++)
		sprintf(text + strlen(text), "%d+%d ", (int)run[i].first,
		    (int)run[i].count);
	free(run);
	return text;
}

/* Results of PyTorch 2.11. */
static void examples(void)
{
	const struct ofs_placement shard = { OFS_SHARD, 0, 1 };
	const struct ofs_placement strided = { OFS_SHARD, 0, 2 };

	is_str(runs(strided, shard, 0, 0, 10), "0+3 ",
	    "10 rows, strided: rank (0,0) has rows 0 to 2");
	is_str(runs(strided, shard, 0, 1, 10), "5+3 ",
	    "10 rows, strided: rank (0,1) has rows 5 to 7");
	is_str(runs(strided, shard, 1, 0, 10), "3+2 ",
	    "10 rows, strided: rank (1,0) has rows 3 and 4");
	is_str(runs(strided, shard, 1, 1, 10), "8+2 ",
	    "10 rows, strided: rank (1,1) has rows 8 and 9");
	is_str(runs(shard, strided, 0, 0, 8), "0+1 2+1 ",
	    "8 rows, strided: rank (0,0) has two pieces");
	is_str(runs(shard, strided, 1, 1, 8), "5+1 7+1 ",
	    "8 rows, strided: rank (1,1) has two pieces");
	is_str(runs(shard, shard, 1, 1, 1), "", "one row: rank (1,1) has none");
	is_str(runs(shard, shard, 0, 0, 0), "", "no rows: rank (0,0) has none");
}

static void too_many(void)
{
	const struct ofs_placement p = { OFS_SHARD, 0, 1u << 20 };
	struct optimfs_error err = { 0 };
	struct ofs_run *run;
	uint32_t nruns;

	is_int(ofs_placement_runs(&p, (uint64_t[]){ 2 }, (uint64_t[]){ 0 }, 1,
		   0, (uint64_t)1 << 40, true, &run, &nruns, &err),
	    -1, "a rank with a million pieces is refused");
	is_error(err, E2BIG, "OFS694",
	    "a rank with a million pieces: error text");
}

int main(void)
{
	examples();
	random_meshes();
	too_many();
	return done_testing();
}
