/* gather_auto.c - find out whether GPUs or MPI are faster */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>

#include "base/clock.h"
#include "cluster/gpu/gather_impl.h"

/* With gather=auto a rank sends its first reads both ways in turn, each read one
 * way, and then uses the faster one. Each rank decides for what it reads itself:
 * an owner answers both kinds of requests. Reads that GPUs do not suit go over MPI
 * in any case and are not compared. The first read of each way is left out, since
 * it also pays for what is set up once. */
enum { COMPARED_READS = 4 };
#define COMPARED_BYTES (UINT64_C(16) << 20)

enum ofs_way ofs_gpu_gather_way(struct ofs_gpu_gather *b)
{
	enum ofs_way way = atomic_load(&b->decided);

	if (way != OFS_WAY_OPEN)
		return way;
	pthread_mutex_lock(&b->lock);
	way = b->trial[OFS_WAY_NCCL].reads <= b->trial[OFS_WAY_MPI].reads
	    ? OFS_WAY_NCCL
	    : OFS_WAY_MPI;
	pthread_mutex_unlock(&b->lock);
	return way;
}

static bool is_enough(const struct ofs_trial *t)
{
	return t->reads > COMPARED_READS && t->bytes >= COMPARED_BYTES;
}

/* Bytes per second. */
static double rate_of(const struct ofs_trial *t)
{
	return t->ns <= 0 ? 0 : (double)t->bytes * 1e9 / (double)t->ns;
}

void ofs_gpu_gather_took(struct ofs_gpu_gather *b, enum ofs_way way,
    uint64_t bytes, int64_t ns)
{
	const struct ofs_trial *nccl = &b->trial[OFS_WAY_NCCL],
			       *mpi = &b->trial[OFS_WAY_MPI];
	struct ofs_trial *t = &b->trial[way];

	if (atomic_load(&b->decided) != OFS_WAY_OPEN)
		return;
	pthread_mutex_lock(&b->lock);
	if (atomic_load(&b->decided) == OFS_WAY_OPEN && t->reads++ > 0) {
		t->bytes += bytes;
		t->ns += ns;
		if (is_enough(nccl) && is_enough(mpi))
			atomic_store(&b->decided,
			    rate_of(nccl) >= rate_of(mpi) ? OFS_WAY_NCCL
							  : OFS_WAY_MPI);
	}
	pthread_mutex_unlock(&b->lock);
}

void ofs_gpu_gather_trial_stats(struct ofs_gpu_gather *b, struct ofs_buf *out)
{
	double nccl, mpi;

	if (b->how.how != OPTIMFS_GATHER_AUTO)
		return;
	pthread_mutex_lock(&b->lock);
	nccl = rate_of(&b->trial[OFS_WAY_NCCL]);
	mpi = rate_of(&b->trial[OFS_WAY_MPI]);
	pthread_mutex_unlock(&b->lock);
	ofs_buf_printf(out, "gpu.decided %d\n",
	    atomic_load(&b->decided) != OFS_WAY_OPEN);
	ofs_buf_printf(out, "gpu.nccl_rate %.0f\n", nccl);
	ofs_buf_printf(out, "gpu.mpi_rate %.0f\n", mpi);
}
