/* write_npy.c - writing to .optimfs/npy */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/write_npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/io.h"
#include "base/memory.h"
#include "fs/mirror.h"
#include "fs/write_open.h"
#include "overlay/overlay_impl.h"

/* NumPy's limit is 10000 bytes. */
#define HEADER_MAX 65536u
#define COPY_STEP  (1u << 20)

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
		    "OFS816 a tensor without dimensions is written whole");
	if (off > file->limit || len > file->limit - off)
		return optimfs_fail(err, EFBIG, "OFS813 past the tensor's end");
	return ofs_overlay_file_write(o, file->staged, buf + n, len, off, err);
}

int ofs_file_npy_write(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	if (file->npy == NULL)
		return write_through(file, buf, len, off, err);
	if (ofs_pwrite_all(file->npy->fd, buf, len, off, err) == -1)
		return -1;
	pthread_mutex_lock(&file->npy->lock);
	file->npy->fresh = true;
	pthread_mutex_unlock(&file->npy->lock);
	return 0;
}

int ofs_file_npy_resize(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err)
{
	uint64_t now;

	if (file->npy != NULL) {
		if (ftruncate(file->npy->fd, (off_t)size) == 0)
			return 0;
		return optimfs_fail(err, errno, "OFS801 npy: %m");
	}
	if (size == 0)
		return ofs_file_npy_begin(file, true, err);
	if (ofs_file_staged_size(file, &now) && now == size)
		return 0;
	return optimfs_fail(err, EINVAL,
	    "OFS816 a .npy is written whole, or in place");
}

/* A parsed header: the repr of a Python dict. */

struct header {
	uint64_t len; /* offset of the elements */
	char descr[32];
	struct ofs_overlay_form form;
};

static int bad(const char *why, struct optimfs_error *err)
{
	return optimfs_fail(err, EINVAL, "OFS816 .npy: %s", why);
}

/* The text after 'key':. */
static const char *value_of(const char *text, const char *key)
{
	char quoted[40];
	const char *p;

	snprintf(quoted, sizeof(quoted), "'%s':", key);
	p = strstr(text, quoted);
	if (p == NULL)
		return NULL;
	p += strlen(quoted);
	return p + strspn(p, " ");
}

static int parse_shape(const char *p, struct ofs_overlay_form *form,
    struct optimfs_error *err)
{
	if (p == NULL || *p++ != '(')
		return bad("no shape", err);
	form->ndim = 0;
	for (;;) {
		char *end;

		p += strspn(p, " ");
		if (*p == ')')
			return 0;
		if (form->ndim == OFS_MAX_DIMS || *p < '0' || *p > '9')
			return bad("no shape", err);
		errno = 0;
		form->shape[form->ndim++] = strtoull(p, &end, 10);
		if (errno != 0)
			return bad("no shape", err);
		p = end + strspn(end, "L ");
		if (*p == ',')
			p++;
		else if (*p != ')')
			return bad("no shape", err);
	}
}

static int parse_text(const char *text, struct header *h,
    struct optimfs_error *err)
{
	const char *descr = value_of(text, "descr");
	const char *order = value_of(text, "fortran_order");
	size_t n;

	if (descr == NULL || *descr != '\'')
		return bad("not one type of elements", err);
	n = strcspn(++descr, "'");
	if (n >= sizeof(h->descr))
		return bad("no type that is known", err);
	memcpy(h->descr, descr, n);
	h->descr[n] = '\0';
	if (order == NULL || strncmp(order, "False", 5) != 0)
		return bad("not in C order: numpy.ascontiguousarray() first",
		    err);
	return parse_shape(value_of(text, "shape"), &h->form, err);
}

static int read_header(int fd, uint64_t size, struct header *h,
    struct optimfs_error *err)
{
	uint8_t start[12] = { 0 };
	uint64_t at, n;
	char *text;
	int ret;

	*h = (struct header){ 0 };
	if (size < 16 || ofs_pread_all(fd, start, 12, 0, NULL) == -1 ||
	    memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3)
		return bad("it begins with something else", err);
	at = start[6] == 1 ? 10 : 12;
	n = start[8] | (uint64_t)start[9] << 8;
	if (start[6] > 1)
		n |= (uint64_t)start[10] << 16 | (uint64_t)start[11] << 24;
	if (n > HEADER_MAX || n > size - at)
		return bad("its header is cut, or too long", err);
	text = malloc(n + 1);
	if (text == NULL)
		return ofs_no_memory(err);
	text[n] = '\0';
	ret = ofs_pread_all(fd, text, n, at, err);
	if (ret == 0)
		ret = parse_text(text, h, err);
	free(text);
	h->len = at + n;
	return ret;
}

static bool same_type(uint8_t dtype, const char *descr)
{
	const char *own = ofs_dtype_npy((enum ofs_dtype)dtype);

	return own != NULL && strcmp(own, descr) == 0;
}

/* The dtype of descr. If several have the same spelling, the present one
 * wins. */
static uint8_t type_of(const char *descr, uint8_t there)
{
	if (same_type(there, descr))
		return there;
	for (uint8_t t = 0; t < OFS_NDTYPES; t++)
		if (same_type(t, descr))
			return t;
	return OFS_DTYPE_NONE;
}

/* An existing tensor keeps its dtype and shape; a new one gets those of the
 * header if the number of bytes agrees. */
static int settle_form(struct ofs_overlay *o, uint32_t index, struct header *h,
    uint64_t bytes, struct optimfs_error *err)
{
	struct ofs_overlay_form now;
	struct ofs_buf shape = { 0 };
	const char *name;
	int ret;

	ofs_overlay_form_of(o, index, &now);
	h->form.dtype = type_of(h->descr, now.dtype);
	if (h->form.dtype == OFS_DTYPE_NONE)
		return bad("no type that is known", err);
	if (now.dtype != OFS_DTYPE_NONE &&
	    (now.dtype != h->form.dtype || now.ndim != h->form.ndim ||
		memcmp(now.shape, h->form.shape,
		    now.ndim * sizeof(*now.shape)) != 0))
		return bad("another type or shape than the tensor's", err);
	if (bytes != ofs_overlay_form_bytes(&h->form))
		return bad("more or fewer elements than its shape says", err);
	if (now.dtype != OFS_DTYPE_NONE)
		return 0;
	name = ofs_dtype_name((enum ofs_dtype)h->form.dtype);
	for (unsigned d = 0; d < h->form.ndim; d++)
		ofs_buf_printf(&shape, "%s%" PRIu64, d == 0 ? "" : ",",
		    h->form.shape[d]);
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
		ret = ofs_overlay_file_resize(o, file->staged, n, err);
	return ret;
}

static int say_text(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const char *text, size_t n, struct optimfs_error *err)
{
	int ret;

	pthread_rwlock_rdlock(&o->names);
	pthread_rwlock_wrlock(&f->lock);
	ret = ofs_overlay_text_resize(o, f, 0, err);
	if (ret == 0)
		ret = ofs_overlay_text_write(o, f, text, n, 0, err);
	if (ret == 0)
		ret = ofs_overlay_text_accept(o, f, f->index, err);
	pthread_rwlock_unlock(&f->lock);
	pthread_rwlock_unlock(&o->names);
	return ret;
}

/* Stores a single element as a text. */
static int say_element(struct optimfs_file *file, const struct header *h,
    struct optimfs_error *err)
{
	enum ofs_dtype dtype = (enum ofs_dtype)h->form.dtype;
	struct ofs_overlay *o = file->snap->overlay;
	struct ofs_overlay_file *f = file->staged;
	uint8_t element[16] = { 0 };
	char text[80];
	size_t n;

	if (ofs_pread_all(file->npy->fd, element, ofs_dtype_size(dtype), h->len,
		err) == -1)
		return -1;
	n = ofs_dtype_print(dtype, element, text);
	text[n++] = '\n';
	if (f->text)
		return say_text(o, f, text, n, err);
	if (ofs_overlay_file_resize(o, f, 0, err) == -1)
		return -1;
	return ofs_overlay_file_write(o, f, text, n, 0, err);
}

static int accept(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	uint64_t size = ofs_file_npy_size(file);
	struct header h;
	int ret;

	if (read_header(file->npy->fd, size, &h, err) == -1)
		return -1;
	pthread_rwlock_wrlock(&o->names);
	ret = settle_form(o, file->at.index, &h, size - h.len, err);
	pthread_rwlock_unlock(&o->names);
	if (ret == -1)
		return -1;
	return h.form.ndim == 0 ? say_element(file, &h, err)
				: copy_elements(file, h.len, size - h.len, err);
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
