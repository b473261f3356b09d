/* operand.c - a tensor of the command line, or a slice of it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/operand.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/npy.h"
#include "cli/interrupt.h"
#include "fs/walk.h"

/* Elements that are read at once. */
#define BATCH 4096

void ofs_operand_fini(struct ofs_operand *p)
{
	if (p->file != NULL)
		optimfs_file_close(p->file);
	free(p->path);
	free(p->dtype);
	free(p->shape);
}

int ofs_operand_find(struct ofs_operand *p, struct ofs_command *c,
    const char *operand, struct optimfs_error *err)
{
	const char *bracket = strrchr(operand, '[');
	size_t n = strlen(operand);
	bool no_memory = false;

	*p = (struct ofs_operand){ .c = c };
	if (bracket != NULL && operand[n - 1] == ']' &&
	    optimfs_resolve(c->fs, operand, &p->attr, NULL) == -1) {
		p->slice = bracket;
		n = (size_t)(bracket - operand);
	}
	p->path = strndup(operand, n);
	if (p->path == NULL)
		return ofs_no_memory(err);
	if (ofs_command_resolve(c, p->path, &p->attr, err) == -1)
		return -1;
	p->dtype = ofs_attribute(c->fs, p->attr.node, "dtype", &no_memory);
	p->shape = ofs_attribute(c->fs, p->attr.node, "shape", &no_memory);
	if (p->dtype != NULL)
		p->t = ofs_dtype_of_name(p->dtype, strlen(p->dtype));
	return no_memory ? ofs_no_memory(err) : 0;
}

bool ofs_operand_is_array(const struct ofs_operand *p)
{
	return p->shape != NULL && *p->shape != '\0';
}

static int select_slice(struct ofs_operand *p, const char *operand,
    struct optimfs_error *err)
{
	if (p->slice != NULL && ofs_slice_parse(&p->of, p->slice, err) == -1)
		return optimfs_fail_in(err, "%s", operand);
	ofs_slice_squeeze(&p->of, &p->start);
	(void)ofs_slice_shown(&p->of, &p->n);
	return 0;
}

int ofs_operand_open(struct ofs_operand *p, const char *operand,
    struct optimfs_error *err)
{
	size_t size = ofs_dtype_size(p->t);
	uint64_t n;

	if (size == 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "%s: elements of type %s are not known", p->path,
		    p->dtype != NULL ? p->dtype : "unknown");
	if (ofs_slice_all(&p->of, p->shape, err) == -1)
		return optimfs_fail_in(err, "%s", p->path);
	if (optimfs_file_open(p->c->fs, p->attr.node, &p->file, err) == -1)
		return -1;
	if (!ofs_slice_shown(&p->of, &n) ||
	    optimfs_file_size(p->file) / size != n)
		return optimfs_fail(err, EINVAL,
		    "%s: has more than the elements of a tensor: show the tensor "
		    "itself, or read the file with another program",
		    p->path);
	return select_slice(p, operand, err);
}

int ofs_operand_read(struct ofs_operand *p, uint64_t first, size_t n, void *out,
    struct optimfs_error *err)
{
	size_t size = ofs_dtype_size(p->t), run;
	uint64_t at;
	ssize_t got;

	if (ofs_interrupted(NULL))
		return optimfs_fail(err, ECANCELED, "interrupted");
	for (size_t i = 0; i < n; i += run) {
		at = ofs_slice_element(&p->of, first + i);
		for (run = 1; i + run < n; run++)
			if (ofs_slice_element(&p->of, first + i + run) !=
			    at + run)
				break;
		got = optimfs_file_read(p->file, (uint8_t *)out + i * size,
		    run * size, (p->start + at) * size, err);
		if (got == -1)
			return -1;
		if ((size_t)got != run * size)
			return optimfs_fail(err, EIO, "%s: ends too early",
			    p->path);
	}
	return 0;
}

int ofs_operand_each(struct ofs_operand *p, ofs_operand_fn *each, void *ctx,
    uint64_t *done, struct optimfs_error *err)
{
	uint8_t *data = ofs_alloc(BATCH, ofs_dtype_size(p->t), err);
	size_t n;

	*done = 0;
	if (data == NULL)
		return -1;
	for (; *done < p->n; *done += n) {
		n = p->n - *done < BATCH ? (size_t)(p->n - *done) : BATCH;
		if (ofs_operand_read(p, *done, n, data, err) == -1 ||
		    each(ctx, data, *done, n, err) == -1)
			break;
	}
	free(data);
	return *done == p->n ? 0 : -1;
}

struct npy {
	ofs_sink_fn *sink;
	void *ctx;
	size_t size;
};

static int pass_elements(void *ctx, const uint8_t *data, uint64_t first,
    size_t n, struct optimfs_error *err)
{
	const struct npy *npy = ctx;

	(void)first;
	return npy->sink(npy->ctx, data, n * npy->size, err);
}

static int pass_header(const struct ofs_operand *p, const struct npy *npy,
    struct optimfs_error *err)
{
	uint64_t shape[OFS_MAX_DIMS];
	struct ofs_buf b = { 0 };
	int ret;

	for (unsigned i = 0; i < p->of.ndim; i++)
		shape[i] = p->of.dim[i].count;
	ofs_npy_header(p->t, shape, p->of.ndim, &b);
	ret = b.bad ? ofs_no_memory(err)
		    : npy->sink(npy->ctx, b.data, b.len, err);
	ofs_buf_fini(&b);
	return ret;
}

int ofs_operand_npy(struct ofs_operand *p, const char *operand,
    ofs_sink_fn *sink, void *ctx, struct optimfs_error *err)
{
	struct npy npy = { sink, ctx, ofs_dtype_size(p->t) };
	uint64_t done;

	if (!ofs_operand_is_array(p))
		return optimfs_fail(err, EINVAL,
		    "%s: is text, which has no elements", p->path);
	if (ofs_operand_open(p, operand, err) == -1)
		return -1;
	if (ofs_dtype_npy(p->t) == NULL)
		return optimfs_fail(err, EOPNOTSUPP,
		    "%s: NumPy has no type for elements of %s: optimfs show "
		    "--csv prints them",
		    p->path, p->dtype);
	return pass_header(p, &npy, err) == -1
	    ? -1
	    : ofs_operand_each(p, pass_elements, &npy, &done, err);
}
