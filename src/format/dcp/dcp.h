/* dcp.h - shared declarations of the DCP reader and its writers */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DCP_DCP_H
#define OFS_FORMAT_DCP_DCP_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/map.h"
#include "base/types.h"
#include "catalog/catalog.h"
#include "format/dcp/index.h"
#include "format/format.h"
#include "format/part.h"
#include "pickle/write.h"

extern const struct ofs_format ofs_format_dcp;

#define OFS_DCP_INDEX ".metadata"
#define OFS_DCP_TMP   ".metadata.tmp"

/* detect.c: the bid for a directory with these names. */
int ofs_dcp_sure(const struct ofs_names *names);
/* The rank in "__3.metadata"; -1 for other names. */
int ofs_dcp_index_rank(const char *name);
/* Is this the name of a data file? */
bool ofs_dcp_is_data(const char *name);

/* read.c: struct ofs_format's read. */
int ofs_dcp_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);

/* A key of state_dict_metadata. next is the same key in another rank's index,
 * where each rank wrote one. */
struct ofs_dcp_key {
	uint32_t index, pair; /* index number, and pair of its keys */
	uint32_t next, last;  /* OFS_NONE: none; only the first key has last */
	uint32_t path;        /* of the catalog; OFS_NONE: not yet known */
	/* Should the parts of its value be separate files? */
	bool structural;
	/* another note explains why some of its items are not used */
	bool explained;
};

/* A shard whose recorded extent is that of a whole safetensors blob, as in some
 * releases: src/format/dcp/blobs.c finds its bytes. */
struct ofs_dcp_blob {
	uint64_t off;
	uint32_t object, shard, tensor, name; /* name: string of the catalog */
};

/* A value with structure, which src/format/dcp/items.c reads. */
struct ofs_dcp_pending {
	struct ofs_item item;
	uint32_t path;
};

/* Limits for reading values with structure at mount: their number, the bytes of
 * one, and the bytes of all. */
#define OFS_DCP_EXPAND_ITEMS 65536
#define OFS_DCP_EXPAND_ITEM  (UINT64_C(64) << 20)
#define OFS_DCP_EXPAND_BYTES (UINT64_C(256) << 20)
/* The most components of a path. */
#define OFS_DCP_PATH_MAX 256
/* Texts that are known without a look into the catalog. */
#define OFS_DCP_SEEN 4096

/* Fields of TensorStorageMetadata and ChunkStorageMetadata. */
enum ofs_dcp_field {
	OFS_DCP_CHUNKS,
	OFS_DCP_PROPERTIES,
	OFS_DCP_SIZE,
	OFS_DCP_OFFSETS = 0,
	OFS_DCP_SIZES,
};

struct ofs_dcp {
	struct ofs_catalog *cat;
	const struct ofs_part *part;
	struct ofs_dcp_index *index;
	uint32_t nindex;

	struct ofs_dcp_key *key;
	uint32_t nkeys, key_cap;
	struct ofs_map by_name; /* the first key of each name */
	uint32_t nrepeated;     /* values that several ranks wrote */
	struct ofs_pk_fields tensor, chunk; /* enum ofs_dcp_field */
	/* pairs of planner_data without a key */
	uint32_t nstray;
	/* of the catalog: the first of this part */
	uint32_t first_shard, first_item;

	uint32_t prefix[OFS_PART_PREFIX]; /* of the part */
	size_t nprefix;
	/* results of recent lookups, by node of the text modulo size: of the
	 * objects of paths, and the strings of keys */
	struct ofs_dcp_seen {
		const struct ofs_pickle *doc;
		uint32_t node, index;
	} objects[OFS_DCP_SEEN], strs[OFS_DCP_SEEN];

	struct ofs_dcp_blob *blob;
	uint32_t nblobs, blob_cap;
	struct ofs_dcp_pending *pending;
	uint32_t npending, pending_cap;
	uint64_t pending_bytes;
	bool quantized; /* a note on quantized tensors was made */
	/* the properties of the last tensor without a fault: most have the
	 * same */
	struct {
		const struct ofs_pickle *doc;
		uint32_t dtype, layout, memory_format; /* nodes */
		uint8_t result;                        /* enum ofs_dtype */
	} like;
};

/* keys.c */
/* Read the items of all indexes, and add an entry for every key. */
int ofs_dcp_add_keys(struct ofs_dcp *d, struct optimfs_error *err);
/* Warn about unused contents of the index. */
int ofs_dcp_check_unused(struct ofs_dcp *d, struct optimfs_error *err);
int ofs_dcp_check_planner(struct ofs_dcp *d, struct optimfs_error *err);
/* The metadata object of a key. */
uint32_t ofs_dcp_node(const struct ofs_dcp *d, const struct ofs_dcp_key *key);

/* tensor.c */
/* Add the tensor of a key, whose object has these fields. */
int ofs_dcp_add_tensor(struct ofs_dcp *d, const struct ofs_dcp_key *key,
    struct ofs_str name, const uint32_t field[OFS_PK_FIELDS],
    struct optimfs_error *err);

/* location.c */
/* The object of a file, whose path is a node; OFS_NONE on failure. */
uint32_t ofs_dcp_object(struct ofs_dcp *d, const struct ofs_pickle *doc,
    uint32_t node, struct optimfs_error *err);
/* *at = the extent of a place; if it is unusable, why->code is not 0. -1: the
 * checkpoint is refused. */
int ofs_dcp_extent(struct ofs_dcp *d, const struct ofs_pickle *doc,
    const struct ofs_dcp_place *place, struct ofs_extent *at,
    struct optimfs_error *why, struct optimfs_error *err);
/* Add a note why the entry called name cannot be read; OFS_NONE on failure. */
uint32_t ofs_dcp_problem(struct ofs_dcp *d, struct ofs_str name, int code,
    const char *text, struct optimfs_error *err);

/* overlap.c */
/* Do the items in each file ascend in the order of the index, so that none
 * overlap? Writers add an item to the index when it is in its file. */
bool ofs_dcp_items_ascend(struct ofs_dcp *d);
/* Warn about items that overlap. */
int ofs_dcp_check_overlap(struct ofs_dcp *d, struct optimfs_error *err);

/* files.c: warn about files that are missing, or not of this checkpoint, whose
 * objects begin at first. */
int ofs_dcp_check_files(struct ofs_dcp *d, const struct ofs_names *names,
    uint32_t first, struct optimfs_error *err);

/* blobs.c: find the extents of shards in safetensors blobs. */
int ofs_dcp_resolve_blobs(struct ofs_dcp *d, struct optimfs_error *err);

/* items.c */
/* Should the parts of the value at this path be separate files? */
bool ofs_dcp_structural(const struct ofs_catalog *cat, const uint32_t *c,
    uint32_t n);
/* Read the pending values, and add their leaves. */
int ofs_dcp_expand_items(struct ofs_dcp *d, struct optimfs_error *err);

/* index_write.c: what the two writers of .metadata share. render_index.c writes
 * a new index, in the form of one release. update_index.c adds entries to an
 * existing one, in its form: classes and attributes are copied from its
 * objects. */

/* A torch.Size of n numbers. */
void ofs_dcp_put_size(struct ofs_pkw *w, const uint64_t *v, size_t n);
/* A component of a path in planner_data: a key, or a list index. */
void ofs_dcp_put_component(struct ofs_pkw *w, struct ofs_str s, bool index);
/* Where an item of len bytes begins in a new data file whose items end at *end,
 * which then is its end: for a layout, and for what a commit writes. */
static inline uint64_t ofs_dcp_place(uint64_t *end, uint64_t len)
{
	uint64_t off = *end;

	*end += len;
	return off;
}

/* What of the optimizer stays; as in struct ofs_format. */
const char *const *ofs_dcp_stays(const struct ofs_catalog *cat);

#endif
