/* crew_divide.c - who of several ranks does which of several jobs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "crew.h"

int ofs_crew_next(uint64_t *load, const struct ofs_owner *may, uint32_t nmay,
    uint64_t size)
{
	int best = nmay == 0 ? 0 : may[0].rank;

	for (uint32_t i = 1; i < nmay; i++)
		if (load[may[i].rank] < load[best])
			best = may[i].rank;
	/* what is empty is a job, too; and a sum that is wrong is only unfair */
	load[best] += size + 1;
	return best;
}

static int by_size(const void *va, const void *vb)
{
	const struct ofs_crew_job *a = *(struct ofs_crew_job *const *)va;
	const struct ofs_crew_job *b = *(struct ofs_crew_job *const *)vb;

	if ((a->nmay <= 1) != (b->nmay <= 1))
		return a->nmay <= 1 ? -1 : 1; /* there is no choice */
	if (a->size != b->size)
		return a->size > b->size ? -1 : 1;
	return a < b ? -1 : a > b;
}

int ofs_crew_divide(struct ofs_crew_job *job, size_t n, int nranks,
    struct optimfs_error *err)
{
	struct ofs_crew_job **order =
	    calloc(n + 1, sizeof(struct ofs_crew_job *));
	uint64_t *load = calloc((size_t)nranks, sizeof(*load));
	int ret = 0;

	if (order == NULL || load == NULL)
		ret = optimfs_fail(err, ENOMEM, "%zu jobs", n);
	for (size_t i = 0; i < n && ret == 0; i++)
		order[i] = &job[i];
	if (ret == 0)
		qsort(order, n, sizeof(*order), by_size);
	for (size_t i = 0; i < n && ret == 0; i++)
		order[i]->rank = ofs_crew_next(load, order[i]->may,
		    order[i]->nmay, order[i]->size);
	free(order);
	free(load);
	return ret;
}
