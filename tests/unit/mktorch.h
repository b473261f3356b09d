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
/* A sound float32 tensor of 4 elements, the whole storage key. */
void mk_good(struct ofs_buf *b, const char *key);

/* Appends a value from a line of text: {key:value,...}, [value,...], words,
 * numbers, and tensors of the 4 floats of storage 0, t with shape [4] and T with
 * [2, 2]. Keys of digits are integers. */
void mk_line(struct ofs_buf *b, const char *line);

/* A torch.save file that a test makes: append its pickle, then read it. */
struct mktorch {
	struct handmade h;
	struct ofs_buf pickle;
	/* of the archive; NULL: what torch writes */
	const char *version, *byteorder;
	const char *record[4]; /* names of further records */
	const char *content[4];
	/* bytes of the storages "0", "1" ... */
	const void *storage[8];
	size_t size[8];
};
/* Storage "0" holds the floats 0 to 3. */
void mktorch_init(struct mktorch *m);
void mktorch_fini(struct mktorch *m);
/* Write the file x.pt and read it; prefix may be NULL. Returns the result of the
 * format's read; if it is 0, the catalog is finished. */
int mktorch_read(struct mktorch *m, const char *prefix,
    struct optimfs_error *err);
/* The same for these bytes, in a file of this name. */
struct ofs_format;
int mktorch_read_bytes(struct mktorch *m, const struct ofs_format *format,
    const char *name, const void *p, size_t n, const char *prefix,
    struct optimfs_error *err);

/* The entry at path, such as "a/#0/b" ("#": index of a list); NULL: none. */
const struct ofs_entry *mktorch_find(const struct mktorch *m, const char *path);
/* All paths of the catalog in its order, one a line after "T", "V" or "I"; valid
 * until the next call. */
const char *mktorch_paths(const struct mktorch *m);
/* Read the n bytes of a tensor into p. EINVAL: it has another size. */
int mktorch_bytes(const struct mktorch *m, const char *path, void *p, size_t n,
    struct optimfs_error *err);
/* The same for an entry that is a tensor or item. */
int mktorch_entry(const struct mktorch *m, const struct ofs_entry *e, void *p,
    size_t n, struct optimfs_error *err);
/* Is there a note that starts with text? */
bool mktorch_noted(const struct mktorch *m, enum ofs_note_kind kind,
    const char *text);

#endif
