/* archive.h - a pickle and its container, opened to be rewritten */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_ARCHIVE_H
#define OFS_REWRITE_ARCHIVE_H

#include "archive/zip.h"
#include "base/buf.h"
#include "rewrite/rewrite_impl.h"

/* The path of a task inside a pickle. key NULL: not in it; n 0: the whole
 * pickle. */
struct ofs_commit_path {
	const struct ofs_key *key;
	uint32_t n;
};

/* An archive, a legacy stream or a bare pickle in the checkpoint. */
struct ofs_commit_source {
	uint32_t object;
	uint64_t off, len; /* a whole file, or an item in one */
	uint8_t codec;
	const struct ofs_key *prefix;
	uint32_t nprefix;
	const struct ofs_commit_path *path;
	int rank;
};

struct ofs_commit_archive {
	bool zip;
	struct ofs_zip dir;                  /* if zip */
	const struct ofs_zip_record *record; /* data.pkl */
	/* If not zip: where the pickle begins and ends. */
	uint64_t before, after;
	uint8_t *pickle;
	uint64_t npickle;
	struct ofs_pickle *doc; /* parsed from pickle */
	bool modern;            /* protocol 3 or later */
	struct ofs_commit *c;
	struct ofs_extent at;
};

/* A new storage. */
struct ofs_commit_storage {
	uint64_t key;
	const struct ofs_commit_task *task;
};

int ofs_commit_archive_open(struct ofs_commit *c,
    const struct ofs_commit_source *s, struct ofs_commit_archive *a,
    struct optimfs_error *err);
void ofs_commit_archive_close(struct ofs_commit_archive *a);
/* The lowest free storage number. */
uint64_t ofs_commit_archive_key(const struct ofs_commit_archive *a);
/* Appends it to a composition, with another pickle and new storages. The extents
 * in it are placed. */
int ofs_commit_archive_lay(struct ofs_commit *c, struct ofs_commit_archive *a,
    const struct ofs_buf *pickle, const struct ofs_commit_storage *storage,
    size_t nstorages, struct ofs_composition *to, struct optimfs_error *err);

#endif
