/* engine.h - writes files of a layout, part by part, with several threads */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ENGINE_H
#define OFS_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "layout/render.h"
#include "plan/sums.h"

/* The size of a part, the unit of work of a thread; a file of compressed items
 * is one part. With a journal it is written, synced and recorded as a whole, so
 * that a killed run loses only the parts in progress. */
#define OFS_ENGINE_PART  (UINT64_C(64) << 20)
#define OFS_ENGINE_PIECE (4u << 20) /* size of a read and a write */

struct ofs_engine_file {
	/* number of the file in its source, and in the journal */
	uint32_t index;
	bool ours;  /* written by this process */
	bool whole; /* one part, of compressed items */
	uint64_t size;
	uint32_t nparts, next;
	/* From the journal: bits of finished parts, or NULL; if whole, lengths
	 * of finished items. */
	uint8_t *done;
	uint64_t *item, nitems;
	size_t item_cap;
	struct ofs_engine_open *open; /* while it is written */
};

/* Where the files come from and what else is done with them. Any thread may
 * call, except for tick. */
struct ofs_engine_ops {
	/* Its name below the directory, which may be in buf. */
	const char *(*name)(void *ctx, uint32_t index, char buf[OFS_FILE_NAME]);
	/* Opens a file for reading; several threads read it at the same time.
	 * NULL: failed. */
	void *(*open)(void *ctx, uint32_t index, struct optimfs_error *err);
	void (*close)(void *from);
	int (*read)(void *from, void *buf, uint64_t len, uint64_t off,
	    struct optimfs_error *err);
	/* The checksums of the file, which read adds in the order of the parts.
	 * NULL: a part waits for none. */
	struct ofs_sums *(*sums)(void *from);
	/* *len bytes from off on, at most to end, can be copied from byte *at of
	 * the descriptor *fd; with *fd -1, they have to be read. NULL: all
	 * are read. */
	int (*run)(void *from, uint64_t off, uint64_t end, uint64_t *len,
	    int *fd, uint64_t *at, struct optimfs_error *err);
	/* The compressed items of a file that is written as a whole, and the
	 * length that one has got. NULL: there is no such file. */
	const struct ofs_spans *(*spans)(void *from);
	void (*stored)(void *ctx, uint32_t index, const struct ofs_span *span,
	    uint64_t len);
	/* A part, or an item of len bytes, is on the disk. Both NULL: nothing
	 * is synced; the caller does that. */
	int (*did_part)(void *ctx, const struct ofs_engine_file *f,
	    uint32_t part, struct optimfs_error *err);
	int (*did_item)(void *ctx, const struct ofs_engine_file *f,
	    uint64_t item, uint64_t len, struct optimfs_error *err);
	/* A file is finished. May be NULL. */
	void (*did_file)(void *ctx, const struct ofs_engine_file *f);
	/* Called in the thread of the caller, before the first part and a few
	 * times a second; name is the file being written, or "". -1: stop. */
	int (*tick)(void *ctx, const char *name, struct optimfs_error *err);
};

/* Where the files go, if not into a directory. Any thread may call. */
struct ofs_engine_target {
	/* Part number of a file, all n bytes of it. */
	int (*put)(void *ctx, const struct ofs_engine_file *f, uint32_t part,
	    const void *bytes, uint64_t n, struct optimfs_error *err);
	void *ctx;
};

/* What was written before. Any thread may call. */
struct ofs_engine_early {
	/* Before a file is opened: gives the one of this name and size to dir,
	 * if there is one. NULL: there is none. */
	void *(*give)(void *ctx, const char *name, uint64_t size, int dir);
	/* Are *n bytes from off on in the file that was given, as from, which
	 * ops->open gave, would be read? Reduces *n to what one answer holds
	 * for. Adds the checksums of what it has. */
	bool (*has)(void *given, void *from, uint64_t off, uint64_t *n);
	void *ctx;
};

/* Zero-initialise; ops to level are the caller's. */
struct ofs_engine {
	const struct ofs_engine_ops *ops;
	void *ctx;
	int dir; /* where the files are written */
	/* Not NULL: there instead; no file is written as a whole, and nothing
	 * copied. */
	const struct ofs_engine_target *target;
	const struct ofs_engine_early *early; /* NULL: nothing */
	mode_t mode;   /* of new files; 0: the default */
	unsigned jobs; /* threads; 0: the default */
	struct ofs_engine_file *file;
	uint32_t n;
	int level;      /* of compressed items; 0: the default */
	uint64_t total; /* bytes of all files */
	_Atomic uint64_t done;
	atomic_bool failed;
	pthread_mutex_t lock;     /* protects the members below */
	uint32_t at;              /* file of the next part */
	struct optimfs_error err; /* first failure */
};

void ofs_engine_init(struct ofs_engine *e);
/* Frees the files, too. */
void ofs_engine_fini(struct ofs_engine *e);
/* Sets the number of parts of each file from its size. EFBIG. */
int ofs_engine_cut(struct ofs_engine *e, struct optimfs_error *err);
/* Writes the files of this process that are not done. Their directories exist;
 * so may the files. */
int ofs_engine_run(struct ofs_engine *e, struct optimfs_error *err);
/* Encodes bytes [off, end) of a file, which read gives, as an item of *len
 * bytes; buf has room for OFS_ENGINE_PIECE. */
struct ofs_encoder;
int ofs_engine_encode(struct ofs_encoder *to,
    int (*read)(void *from, void *buf, uint64_t len, uint64_t off,
	struct optimfs_error *err),
    void *from, uint64_t off, uint64_t end, uint8_t *buf, uint64_t *len,
    struct optimfs_error *err);
/* Calls tick, and fails if it says so. */
void ofs_engine_tick(struct ofs_engine *e);

static inline bool ofs_engine_has(const struct ofs_engine_file *f,
    uint32_t part)
{
	return f->done != NULL && (f->done[part / 8] >> part % 8 & 1) != 0;
}

/* The size of part k in bytes. */
static inline uint64_t ofs_engine_part_size(const struct ofs_engine_file *f,
    uint64_t k)
{
	uint64_t off = k * OFS_ENGINE_PART;

	if (off >= f->size)
		return 0;
	return f->whole || f->size - off < OFS_ENGINE_PART ? f->size - off
							   : OFS_ENGINE_PART;
}

/* The size of its finished parts. */
static inline uint64_t ofs_engine_written(const struct ofs_engine_file *f)
{
	uint64_t n = 0;

	for (uint32_t k = 0; k < f->nparts; k++)
		if (ofs_engine_has(f, k))
			n += ofs_engine_part_size(f, k);
	return n;
}

#endif
