/* write_npy.c - writing to .optimfs/npy */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/write_npy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/npy.h"
#include "base/dtype.h"
#include "base/io.h"
#include "base/memory.h"
#include "fs/write_open.h"
#include "overlay/overlay_impl.h"

#define COPY_STEP (1u << 20)

struct ofs_file_npy {
	pthread_mutex_t lock;
	int fd;
	bool fresh; /* written since it was last accepted */
};

static void npy_free(struct ofs_file_npy *npy)
{
	close(npy->fd);
	pthread_mutex_destroy(&npy->lock);
	free(npy);
}

/* Several threads may truncate one file: the first one begins. */
int ofs_file_npy_begin(struct optimfs_file *file, bool anew,
    struct optimfs_error *err)
{
	struct ofs_file_npy *npy, *none = NULL;
	struct ofs_overlay_form form;

	ofs_overlay_form(file->snap->overlay, file->at.index, &form);
	if (!anew && form.dtype != OFS_DTYPE_NONE)
		return 0;
	npy = calloc(1, sizeof(*npy));
	if (npy == NULL)
		return ofs_no_memory(err);
	npy->fd = ofs_stage_temp(file->snap->overlay->stage, err);
	if (npy->fd == -1) {
		free(npy);
		return -1;
	}
	pthread_mutex_init(&npy->lock, NULL);
	if (!atomic_compare_exchange_strong(&file->npy, &none, npy))
		npy_free(npy);
	return 0;
}

void ofs_file_npy_end(struct optimfs_file *file)
{
	struct ofs_file_npy *npy = atomic_exchange(&file->npy, NULL);

	if (npy != NULL)
		npy_free(npy);
}

uint64_t ofs_file_npy_size(const struct optimfs_file *file)
{
	struct stat st;

	return fstat(file->npy->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

ssize_t ofs_file_npy_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	uint64_t size = ofs_file_npy_size(file);

	if (off >= size)
		return 0;
	len = len < size - off ? len : size - off;
	if (ofs_pread_all(file->npy->fd, buf, len, off, err) == -1)
		return -1;
	return (ssize_t)len;
}

/* Writes in place: the header must not change, the rest goes to the tensor. */
static int write_through(struct optimfs_file *file, const uint8_t *buf,
    size_t len, uint64_t off, struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	struct ofs_overlay_form form;
	struct ofs_buf header = { 0 };
	uint64_t n = 0;
	bool same;

	ofs_overlay_form(file->snap->overlay, file->at.index, &form);
	ofs_npy_header(form.dtype, form.shape, form.ndim, &header);
	if (off < header.len)
		n = header.len - off < len ? header.len - off : len;
	same = !header.bad && memcmp(header.data + off, buf, n) == 0;
	off = off < header.len ? 0 : off - header.len;
	ofs_buf_fini(&header);
	if (!same)
		return optimfs_fail(err, EINVAL,
		    "OFS816 the header of a .npy cannot be changed in place");
	len -= n;
	if (len == 0)
		return 0;
	if (file->staged->text)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS816 a tensor without dimensions must be written as a "
		    "whole");
	if (off > file->limit || len > file->limit - off)
		return optimfs_fail(err, EFBIG, "OFS813 past the tensor's end");
	return ofs_overlay_file_write(o, file->staged, buf + n, len, off, err);
}

static void set_fresh(struct ofs_file_npy *npy, bool fresh)
{
	pthread_mutex_lock(&npy->lock);
	npy->fresh = fresh;
	pthread_mutex_unlock(&npy->lock);
}

int ofs_file_npy_write(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	if (file->npy == NULL)
		return write_through(file, buf, len, off, err);
	if (ofs_stage_write(file->npy->fd, buf, len, off, err) == -1)
		return -1;
	set_fresh(file->npy, true);
	return 0;
}

/* Shells and programs truncate a file to nothing before they write to it. */
static int resize_fresh(struct ofs_file_npy *npy, uint64_t size,
    struct optimfs_error *err)
{
	if (ftruncate(npy->fd, (off_t)size) == -1)
		return optimfs_fail(err, errno, "OFS801 npy: %m");
	set_fresh(npy, size > 0);
	return 0;
}

int ofs_file_npy_resize(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err)
{
	uint64_t now;

	if (file->npy != NULL)
		return resize_fresh(file->npy, size, err);
	if (size == 0)
		return ofs_file_npy_begin(file, true, err);
	if (ofs_file_staged_size(file, &now) && now == size)
		return 0;
	return optimfs_fail(err, EINVAL,
	    "OFS816 a .npy must be written as a whole, or in place");
}

static int bad(const char *why, struct optimfs_error *err)
{
	return optimfs_fail(err, EINVAL, "OFS816 .npy: %s", why);
}

/* *length: the offset of the elements. */
static int read_header(int fd, uint64_t size, enum ofs_dtype there,
    struct ofs_npy *npy, uint32_t *length, struct optimfs_error *err)
{
	uint8_t buf[OFS_NPY_HEADER_MAX];
	uint64_t n = size < 12 ? size : 12;
	struct optimfs_error why;

	if (ofs_pread_all(fd, buf, n, 0, err) == -1)
		return -1;
	if (ofs_npy_length(buf, n, length, &why) == -1)
		return bad(optimfs_error_words(&why), err);
	if (*length > size)
		return bad("its header is truncated", err);
	if (ofs_pread_all(fd, buf, *length, 0, err) == -1)
		return -1;
	if (ofs_npy_parse(npy, buf, *length, there, &why) == -1)
		return bad(optimfs_error_words(&why), err);
	if (npy->fortran)
		return bad("not in C order: numpy.ascontiguousarray() first",
		    err);
	if (npy->swap)
		return bad("not little-endian", err);
	if (npy->bytes != size - *length)
		return bad("more or fewer elements than its shape says", err);
	return 0;
}

/* An existing tensor keeps its dtype and shape; a new one gets those of the
 * header. */
static int settle_form(struct ofs_overlay *o, uint32_t index,
    const struct ofs_npy *npy, struct optimfs_error *err)
{
	const char *name = ofs_dtype_name(npy->dtype);
	struct ofs_overlay_form now;
	struct ofs_buf shape = { 0 };
	int ret;

	ofs_overlay_form_of(o, index, &now);
	if (now.dtype != OFS_DTYPE_NONE) {
		bool same = now.dtype == npy->dtype && now.ndim == npy->ndim &&
		    memcmp(now.shape, npy->shape,
			now.ndim * sizeof(*now.shape)) == 0;

		return same
		    ? 0
		    : bad("another type or shape than the tensor's", err);
	}
	ofs_buf_numbers(&shape, npy->shape, npy->ndim, ",");
	ret = shape.bad
	    ? ofs_no_memory(err)
	    : ofs_overlay_set_attr(o, index, "dtype", name, strlen(name), err);
	if (ret == 0)
		ret = ofs_overlay_set_attr(o, index, "shape",
		    (const char *)shape.data, shape.len, err);
	ofs_buf_fini(&shape);
	return ret;
}

static int copy_elements(struct optimfs_file *file, uint64_t from, uint64_t n,
    struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	uint8_t *buf = malloc(COPY_STEP);
	uint64_t k;
	int ret = 0;

	if (buf == NULL)
		return ofs_no_memory(err);
	for (uint64_t at = 0; at < n && ret == 0; at += k) {
		k = n - at < COPY_STEP ? n - at : COPY_STEP;
		ret = ofs_pread_all(file->npy->fd, buf, k, from + at, err);
		if (ret == 0)
			ret = ofs_overlay_file_write(o, file->staged, buf, k,
			    at, err);
	}
	free(buf);
	if (ret == 0)
		ret = ofs_overlay_file_resize(o, file->staged, false, n, err);
	return ret;
}

static int say_text(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const char *text, size_t n, struct optimfs_error *err)
{
	int ret;

	pthread_rwlock_rdlock(&o->names);
	pthread_rwlock_wrlock(&f->lock);
	ret = ofs_overlay_text_set(o, f, f->index, text, n, err);
	pthread_rwlock_unlock(&f->lock);
	pthread_rwlock_unlock(&o->names);
	return ret;
}

/* Stores a single element as a text. */
static int say_element(struct optimfs_file *file, enum ofs_dtype dtype,
    uint64_t off, struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	struct ofs_overlay_file *f = file->staged;
	uint8_t element[16] = { 0 };
	char text[80];
	size_t n;

	if (ofs_pread_all(file->npy->fd, element, ofs_dtype_size(dtype), off,
		err) == -1)
		return -1;
	n = ofs_dtype_print(dtype, element, text);
	text[n++] = '\n';
	if (f->text)
		return say_text(o, f, text, n, err);
	if (ofs_overlay_file_resize(o, f, false, 0, err) == -1)
		return -1;
	return ofs_overlay_file_write(o, f, text, n, 0, err);
}

static int accept(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	uint64_t size = ofs_file_npy_size(file);
	struct ofs_overlay_form now;
	struct ofs_npy npy;
	uint32_t head;
	int ret;

	ofs_overlay_form(o, file->at.index, &now);
	if (read_header(file->npy->fd, size, now.dtype, &npy, &head, err) == -1)
		return -1;
	pthread_rwlock_wrlock(&o->names);
	ret = settle_form(o, file->at.index, &npy, err);
	pthread_rwlock_unlock(&o->names);
	if (ret == -1)
		return -1;
	return npy.ndim == 0 ? say_element(file, npy.dtype, head, err)
			     : copy_elements(file, head, size - head, err);
}

int ofs_file_npy_accept(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_file_npy *npy = file->npy;
	int ret = 0;

	if (npy == NULL)
		return 0;
	pthread_mutex_lock(&npy->lock);
	if (npy->fresh)
		ret = accept(file, err);
	if (ret == 0)
		npy->fresh = false;
	pthread_mutex_unlock(&npy->lock);
	return ret;
}
