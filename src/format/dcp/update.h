/* update.h - the index of a DCP checkpoint that gets new items */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DCP_UPDATE_H
#define OFS_FORMAT_DCP_UPDATE_H

#include "format/dcp/index.h"
#include "pickle/splice.h"
#include "rewrite/rewrite_impl.h"
#include "rewrite/update.h"

extern const struct ofs_update_ops ofs_dcp_update;

/* A data file that is new. */
struct ofs_commit_out {
	int rank, fd;
	char *path;  /* beneath the index's directory, as the index has it */
	uint64_t at; /* where the next item goes; moved on by who writes one */
};

/* An item that is somewhere else now. */
struct ofs_commit_item {
	uint32_t item; /* of the index */
	uint32_t out;
	uint64_t off, len;
	bool same;  /* but for the file: what it is in was copied whole */
	bool plain; /* it is not encoded any more */
};

/* An encoded extent, decoded to be changed. */
struct ofs_commit_coded {
	size_t moved; /* index of moved */
	int fd;
	uint64_t len;
};

/* A dictionary of the index, its pairs by key. */
struct ofs_commit_dict {
	uint32_t node, n, *sorted;
};

struct ofs_commit_dcp {
	struct ofs_commit *c;
	const struct ofs_part *part;
	struct ofs_key prefix[4];
	uint32_t nprefix;
	char *name;  /* of the index */
	bool open;   /* there is one, and it was read */
	bool modern; /* its protocol is one from 3 on */
	bool blobs;  /* tensors are in safetensors blobs, which name them */
	struct ofs_dcp_index index;
	uint32_t *object;   /* of each item; OFS_NONE */
	uint32_t *by_place; /* items by object and offset */
	uint32_t *by_name;  /* items by name */
	struct ofs_commit_dict keys, plans;
	bool *gone; /* items whose old bytes nothing names any more */
	bool *dropped;
	uint32_t *moved; /* of each item: its index in item; OFS_NONE */

	struct ofs_commit_out *out;
	size_t nout, out_cap;
	struct ofs_commit_item *item;
	size_t nitems, item_cap;
	struct ofs_commit_coded *coded;
	size_t ncoded, coded_cap;
	struct ofs_commit_edit {
		struct ofs_pk_splice splice;
		struct ofs_buf bytes;
	} * edit;
	size_t nedits, edit_cap;
};

/* update_find.c: the index, by names and places. */
int ofs_commit_dcp_open(struct ofs_commit_dcp *d, struct optimfs_error *err);
/* Let go of all that it says: it takes more memory than anything else here. */
void ofs_commit_dcp_close(struct ofs_commit_dcp *d);
/* The index as it is stored; malloc'ed. That it is still the one that was
 * opened is seen before anything is published. */
int ofs_commit_dcp_bytes(const struct ofs_commit_dcp *d, uint8_t **bytes,
    uint64_t *len, struct optimfs_error *err);
/* The first item at this place in by_place's order, and those that follow at
 * the same one; false: none begins there. */
bool ofs_commit_dcp_at(const struct ofs_commit_dcp *d, uint32_t object,
    uint64_t off, uint32_t *first, uint32_t *n);
/* The item that holds byte off of an object; OFS_NONE. */
uint32_t ofs_commit_dcp_around(const struct ofs_commit_dcp *d, uint32_t object,
    uint64_t off);
/* All items of a name, in by_name's order. */
void ofs_commit_dcp_named(const struct ofs_commit_dcp *d, struct ofs_str name,
    uint32_t *first, uint32_t *n);
/* The pair with this key; OFS_NONE. */
uint32_t ofs_commit_dcp_pair(const struct ofs_commit_dcp *d,
    const struct ofs_commit_dict *dict, struct ofs_str name);

/* update_move.c: new data files. */
const struct ofs_object *ofs_commit_dcp_object(const struct ofs_commit_dcp *d,
    uint32_t object);
/* The one that items of a rank go to; it has the mode of like, a file of the
 * checkpoint. */
int ofs_commit_dcp_out(struct ofs_commit_dcp *d, int rank, const char *like,
    uint32_t *out, struct optimfs_error *err);
/* Where an item is now; the same for the n items of by_place from first on. */
int ofs_commit_dcp_note(struct ofs_commit_dcp *d,
    const struct ofs_commit_item *item, struct optimfs_error *err);
int ofs_commit_dcp_note_all(struct ofs_commit_dcp *d, uint32_t first,
    uint32_t n, uint32_t out, uint64_t off, uint64_t len, bool plain,
    struct optimfs_error *err);
/* Give every extent of the commit that is ours its new place. */
int ofs_commit_dcp_move(struct ofs_commit_dcp *d, struct optimfs_error *err);

/* update_values.c: values, keys. */
int ofs_commit_dcp_change(struct ofs_commit_dcp *d, struct optimfs_error *err);
/* What is new; or, when moved, what has another name now. */
int ofs_commit_dcp_put_new(struct ofs_commit_dcp *d, bool moved,
    struct optimfs_error *err);
/* Items of what was moved are dropped under one name and used under another:
 * their bytes are not gone. */
void ofs_commit_dcp_keep_renamed(struct ofs_commit_dcp *d);

/* update_index.c: opcodes of the index. */
struct ofs_commit_edit *ofs_commit_dcp_edit(struct ofs_commit_dcp *d,
    uint32_t node, uint32_t item, enum ofs_pk_splice_op op,
    struct optimfs_error *err);
/* Edits for all items that moved. */
int ofs_commit_dcp_moved(struct ofs_commit_dcp *d, struct optimfs_error *err);
/* Key, path and items of what is called name are no more. */
int ofs_commit_dcp_drop(struct ofs_commit_dcp *d, struct ofs_str name,
    struct optimfs_error *err);
/* They are there: t, which is called name, is len bytes at off of out. */
int ofs_commit_dcp_add(struct ofs_commit_dcp *d,
    const struct ofs_commit_task *t, struct ofs_str name, uint32_t out,
    uint64_t off, uint64_t len, struct optimfs_error *err);
/* The same for what is called from: its items under another name. */
int ofs_commit_dcp_rename(struct ofs_commit_dcp *d,
    const struct ofs_commit_task *t, struct ofs_str from, struct ofs_str name,
    struct optimfs_error *err);

/* update_recompress.c: size bytes of in as one encoded extent at off of out. */
int ofs_commit_encode(int in, uint64_t size, int out, uint64_t off,
    uint64_t *len, struct optimfs_error *err);

#endif
