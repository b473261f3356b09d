/* update.h - commits to the index of a DCP checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DCP_UPDATE_H
#define OFS_FORMAT_DCP_UPDATE_H

#include "format/dcp/index.h"
#include "pickle/name_index.h"
#include "pickle/splice.h"
#include "rewrite/rewrite_impl.h"

/* As in struct ofs_format. */
int ofs_dcp_update(struct ofs_commit *c, const struct ofs_part *part,
    struct optimfs_error *err);

/* A new data file. */
struct ofs_dcp_out {
	int rank;
	bool coded;                   /* of compressed items */
	char *path;                   /* as in the index */
	struct ofs_commit_file *file; /* NULL: no item can be added */
	uint64_t end;                 /* of its items so far, as stored */
};

/* The place of an item in a new data file. */
struct ofs_dcp_new {
	uint32_t out;
	uint64_t off, len;
};

struct ofs_dcp_commit {
	struct ofs_commit *c;
	const struct ofs_part *part;
	struct ofs_key prefix[OFS_PART_PREFIX];
	uint32_t nprefix;
	char *name;  /* of the index */
	bool open;   /* there is an index, and it was read */
	bool modern; /* its protocol is at least 3 */
	/* tensors are in safetensors blobs, which have their names */
	bool blobs;
	struct ofs_dcp_index index;
	uint32_t *object;   /* of each item; OFS_NONE */
	uint32_t *by_place; /* items by object and offset */
	uint32_t *by_name;  /* items by name */
	struct ofs_pk_names keys, plans;
	bool *ours; /* of each task: its key is or will be of this index */
	bool *gone; /* items whose old bytes are no longer used */
	bool *dropped;
	bool no_optim; /* all keys of an optimizer are dropped */
	uint32_t *moved; /* of each item: its new place; OFS_NONE */

	struct ofs_dcp_out *out;
	size_t nout, out_cap;
	struct ofs_dcp_new *place;
	size_t nplaces, place_cap;
	bool coded; /* places of encoded items are known when they are written */
	struct ofs_pk_edits edits;
};

/* update_find.c: look up items of the index by name and by place. */
int ofs_dcp_commit_open(struct ofs_dcp_commit *d, struct optimfs_error *err);
/* Free the index, which takes most of the memory here. */
void ofs_dcp_commit_close(struct ofs_dcp_commit *d);
/* Read the stored index; *bytes is malloc'ed and the caller's. Before
 * publishing, a later check ensures that it is still the index that was
 * opened. */
int ofs_dcp_commit_bytes(const struct ofs_dcp_commit *d, uint8_t **bytes,
    uint64_t *len, struct optimfs_error *err);
/* The items at this place: *n from *first on, in by_place; false when none
 * begins there. */
bool ofs_dcp_commit_at(const struct ofs_dcp_commit *d, uint32_t object,
    uint64_t off, uint32_t *first, uint32_t *n);
/* The item that contains byte off of an object; OFS_NONE. */
uint32_t ofs_dcp_commit_around(const struct ofs_dcp_commit *d, uint32_t object,
    uint64_t off);
/* The items of a name: *n from *first on, in by_name. */
void ofs_dcp_commit_named(const struct ofs_dcp_commit *d, struct ofs_str name,
    uint32_t *first, uint32_t *n);

/* update_move.c: new data files. */
const struct ofs_object *ofs_dcp_commit_object(const struct ofs_dcp_commit *d,
    uint32_t object);
/* Begin an item in the data file for those of a rank, or for its encoded ones;
 * the file gets the mode of like, a file of the checkpoint. The item is appended
 * to the composition that is returned, and then ended. *place is its number. */
struct ofs_composition *ofs_dcp_commit_begin(struct ofs_dcp_commit *d, int rank,
    bool coded, const char *like, uint32_t *place, struct optimfs_error *err);
void ofs_dcp_commit_end(struct ofs_dcp_commit *d, uint32_t place);
/* Record the new place of an item; of the n items from first on in by_place. */
void ofs_dcp_commit_note(struct ofs_dcp_commit *d, uint32_t item,
    uint32_t place);
void ofs_dcp_commit_note_all(struct ofs_dcp_commit *d, uint32_t first,
    uint32_t n, uint32_t place);
/* Lay out every changed extent that belongs to this part. */
int ofs_dcp_commit_move(struct ofs_dcp_commit *d, struct optimfs_error *err);
/* All encoded items are written: end them. */
void ofs_dcp_commit_end_coded(struct ofs_dcp_commit *d);

/* update_values.c: values, keys. */
int ofs_dcp_commit_change(struct ofs_dcp_commit *d, struct optimfs_error *err);
/* Add what is new; or with moved, what was renamed. */
int ofs_dcp_commit_put_new(struct ofs_dcp_commit *d, bool moved,
    struct optimfs_error *err);
/* Items of renamed tensors are dropped under one name and used under another:
 * mark their bytes as used. */
void ofs_dcp_commit_keep_renamed(struct ofs_dcp_commit *d);

/* update_index.c: edits of the index. */
/* Add edits for all items with a new place. */
int ofs_dcp_commit_moved(struct ofs_dcp_commit *d, struct optimfs_error *err);
/* Remove the key, path and items of name. */
int ofs_dcp_commit_drop(struct ofs_dcp_commit *d, struct ofs_str name,
    struct optimfs_error *err);
/* Add those of t, which is called name and is at this place. */
int ofs_dcp_commit_add(struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t, struct ofs_str name, uint32_t place,
    struct optimfs_error *err);
/* As above, with the items of from under another name. */
int ofs_dcp_commit_rename(struct ofs_dcp_commit *d,
    const struct ofs_commit_task *t, struct ofs_str from, struct ofs_str name,
    struct optimfs_error *err);

#endif
