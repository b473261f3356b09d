/* mktorch.h - pickles and torch.save files made by hand, for tests */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MKTORCH_H
#define MKTORCH_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"
#include "handmade.h"

/* Pickle opcodes, appended to b. mk_begin starts one, mk_end ends it. */
void mk_begin(struct ofs_buf *b);
void mk_end(struct ofs_buf *b);
void mk_ops(struct ofs_buf *b, const char *ops);
void mk_int(struct ofs_buf *b, int64_t v);
void mk_str(struct ofs_buf *b, const char *s);
void mk_global(struct ofs_buf *b, const char *module, const char *name);
/* A tuple of n integers. */
void mk_tuple(struct ofs_buf *b, size_t n, const int64_t *v);
/* A storage's persistent id. */
void mk_storage(struct ofs_buf *b, const char *type, const char *key,
    int64_t numel);

/* A tensor: what _rebuild_tensor_v2 is called with. */
struct mk_tensor {
	const char *type, *key; /* NULL: FloatStorage, "0" */
	int64_t numel, offset;
	size_t ndim, nstride; /* nstride 0: ndim */
	int64_t shape[6], stride[6];
	const char *flag;  /* "conj" or "neg" */
	const char *dtype; /* _rebuild_tensor_v3 with this */
};
void mk_tensor(struct ofs_buf *b, const struct mk_tensor *t);
/* A healthy float32 tensor of 4 elements, which are all of storage key. */
void mk_good(struct ofs_buf *b, const char *key);

/* A value as a line: {key:value,...} and [value,...], words, numbers, and
 * tensors of the 4 floats of storage 0, t in one dimension and T as 2x2. A key
 * that is a number is one. */
void mk_line(struct ofs_buf *b, const char *line);

/* A torch.save file in the making: name it, append the pickle, end it. */
struct mktorch {
	struct handmade h;
	struct ofs_buf pickle;
	/* of the archive; 0 and NULL are what torch writes */
	const char *version, *byteorder;
	const char *record[4]; /* more names, and what is in them */
	const char *content[4];
	/* storages "0", "1" ...: their bytes */
	const void *storage[8];
	size_t size[8];
};
/* Storage "0" holds the floats 0 to 3. */
void mktorch_init(struct mktorch *m);
void mktorch_fini(struct mktorch *m);
/* Write the file x.pt, read it with this format; prefix may be NULL. Returns
 * what the format's read does; the catalog is finished if that is 0. */
int mktorch_read(struct mktorch *m, const char *prefix,
    struct optimfs_error *err);
/* The same for what is in b, in a file of this name. */
struct ofs_format;
int mktorch_read_bytes(struct mktorch *m, const struct ofs_format *format,
    const char *name, const void *p, size_t n, const char *prefix,
    struct optimfs_error *err);

/* The entry at path, "a/#0/b" ("#": a list's index); NULL. */
const struct ofs_entry *mktorch_find(const struct mktorch *m, const char *path);
/* All paths of the catalog, one a line, with "T", "V" or "I" before each, in
 * its order; until the next call. */
const char *mktorch_paths(const struct mktorch *m);
/* A tensor's n bytes into p: -1 with err. EINVAL when it has other than n. */
int mktorch_bytes(const struct mktorch *m, const char *path, void *p, size_t n,
    struct optimfs_error *err);
/* The same for an entry that is a tensor or item. */
int mktorch_entry(const struct mktorch *m, const struct ofs_entry *e, void *p,
    size_t n, struct optimfs_error *err);
/* Is there a note that starts with text? */
bool mktorch_noted(const struct mktorch *m, enum ofs_note_kind kind,
    const char *text);

#endif
