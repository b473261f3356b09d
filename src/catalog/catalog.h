/* catalog.h - what a checkpoint holds: tensors, their shards, plain values */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_H
#define OFS_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "optimfs/error.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/dtype.h"
#include "base/io.h"
#include "base/str.h"

/* The catalog is built once by a format reader and const from then on. It
 * knows no format: a reader turns an index into entries, each a path and
 * either a tensor, a plain value, or an item that is a value once it is read.
 * Everything lives in flat arrays and is named by a 32-bit index, so that a
 * million tensors cost what their names cost. */

struct ofs_pickle;

/* How the bytes of a shard or item lie in their extent; src/read/locate.h
 * turns an extent into the place of element 0 when it is first touched. */
enum ofs_encoding {
	OFS_RAW,          /* off is element 0 */
	OFS_TORCH_ITEM,   /* the extent is a torch.save archive of one object */
	OFS_TORCH_RECORD, /* off is the local header of a zip record */
};

enum ofs_codec { OFS_PLAIN, OFS_ZSTD };

/* When an inode last changed, and what makes that move without touching its
 * bytes: hard links (a snapshot), permissions, owners. */
struct ofs_stamp {
	int64_t ctime_ns;
	uint32_t nlink, mode, uid, gid;
};

/* A file of the checkpoint. */
struct ofs_object {
	const char *path; /* relative to the checkpoint's directory */
	int rank;         /* that wrote it, -1 when unknown or shared */
	bool missing;     /* was not there at mount */
	bool refused;     /* a link or not a file: opening it says why */
	uint64_t size;    /* these five as they were at mount */
	int64_t mtime_ns;
	uint64_t ino;
	uint64_t blocks; /* bytes on disk */
	struct ofs_stamp stamp;
};

/* A stored extent: len bytes at off of an object. With a codec, what it
 * decodes to is what the encoding describes. */
struct ofs_extent {
	uint64_t off, len;
	uint32_t object;
	uint8_t encoding; /* enum ofs_encoding */
	uint8_t codec;    /* enum ofs_codec */
	uint16_t tag;     /* OFS_TORCH_RECORD: ofs_zip_tag of its name, or 0 */
};

/* A box of a tensor in an extent. */
struct ofs_shard {
	struct ofs_extent at;
	/* offsets then sizes, 2 * grid_ndim numbers of the dims pool;
	 * OFS_NONE for the whole tensor. */
	uint32_t box;
	/* where elements lie in the storage: index of a struct ofs_view;
	 * OFS_NONE for C order from the start. */
	uint32_t view;
};

/* Element (i0, i1, ...) of a box lies offset + sum(i * stride) elements into
 * its storage. Strides are in elements; stride is an index of the dims pool,
 * its numbers int64_t. Of an OFS_TORCH_ITEM the storage is the item's elements
 * in C order (src/archive/item_view.h). */
struct ofs_view {
	uint64_t offset;
	uint64_t numel; /* elements in the storage */
	uint32_t stride;
	uint8_t fix; /* enum ofs_fix */
};

/* What must be done to bytes after they were fetched. */
enum ofs_fix {
	OFS_FIX_NONE,
	OFS_FIX_SWAP = 1, /* big-endian writer */
	OFS_FIX_CONJ = 2, /* negate the imaginary half */
	OFS_FIX_NEG = 4,  /* negate */
	/* float32 is stored, of which the tensor's dtype (float16 or bfloat16)
	 * is the nearest: such a view counts stored elements */
	OFS_FIX_ROUND = 8,
};

enum ofs_tensor_flag {
	OFS_TENSOR_COPIES = 1, /* each rank's copy is there on purpose */
	OFS_TENSOR_TIED = 2,   /* several entries are this tensor */
	OFS_TENSOR_ZERO = 4,   /* zeros where no shard is (fill.h) */
	OFS_TENSOR_FILE = 8,   /* the bytes of a file, which no model has */
};

struct ofs_tensor {
	uint32_t shape; /* dims pool */
	/* The shape that boxes are given in; it has the same elements in the
	 * same C order. Usually shape itself. */
	uint32_t grid;
	uint8_t ndim, grid_ndim;
	uint8_t dtype;           /* enum ofs_dtype */
	uint8_t flags;           /* enum ofs_tensor_flag */
	uint32_t shard, nshards; /* a run of the shards array */
	uint32_t error; /* index of a note: reading fails so; or OFS_NONE */
	uint32_t index; /* catalog/shards.h; OFS_NONE when shards are few */
};

/* A stored copy of a box that shard, which comes first in the order of files
 * and offsets, holds too (an HSDP job that saved every replica). Reads take
 * the shard; whether copies agree is fsck's question. In order of shard. */
struct ofs_replica {
	struct ofs_extent at;
	uint32_t view;
	uint32_t shard;
};

/* A plain value: a node of a parsed pickle that lives as long as the catalog. */
struct ofs_value {
	const struct ofs_pickle *doc;
	uint32_t node;
};

/* A value whose bytes are in an extent and have not been read. */
struct ofs_item {
	struct ofs_extent at;
	uint32_t error; /* as in struct ofs_tensor */
};

enum ofs_entry_kind { OFS_ENTRY_TENSOR, OFS_ENTRY_VALUE, OFS_ENTRY_ITEM };

/* Entries are in the order of the state dict where the source has one (ids=model
 * goes by it). */
struct ofs_entry {
	uint32_t path; /* ofs_catalog_path: keys as the source nests them */
	uint32_t
	    tree; /* the same below the mount point (naming/naming.h); OFS_NONE
			* when subtree= leaves it out */
	uint32_t ref; /* tensor, value or item */
	uint8_t kind; /* enum ofs_entry_kind */
};

/* What one rank has in place of an entry on which the ranks differ; the entry
 * is an item at which reading fails and says so. In order of entry, then
 * rank. */
struct ofs_variant {
	uint32_t entry;
	int rank;
	uint32_t ref; /* tensor, value or item */
	uint8_t kind; /* enum ofs_entry_kind */
};

/* A path that is not listed but resolves: a parameter's name with its
 * wrapper prefixes, or a tied parameter's other name. Both are tree paths, of
 * a file or a directory. A target of OFS_NONE says that nothing is there by
 * intent: a parameter's state that there is none of (ENODATA, not ENOENT). */
struct ofs_alias {
	uint32_t path, target;
};

/* One component of a path: a string's index, and whether the source had a
 * list index there rather than a key. */
#define OFS_PATH_INDEX  0x80000000u
#define OFS_PATH_STR(c) ((c) & ~OFS_PATH_INDEX)
/* One part of a checkpoint puts at most so many components before its paths. */
#define OFS_PART_PREFIX 4

/* A record of .optimfs/warnings, missing or globals, or why a tensor cannot
 * be read. */
struct ofs_note {
	enum ofs_note_kind {
		OFS_NOTE_WARNING,
		OFS_NOTE_MISSING, /* state, or a file; ENODATA: by intent */
		OFS_NOTE_GLOBAL,
		OFS_NOTE_ERROR, /* belongs to one entry */
	} kind;
	int code;         /* errno value, 0 for none */
	int number;       /* of its OFSnnn, 0 for none */
	const char *text; /* begins with OFSnnn where it has a number */
};

/* What is known of a parameter that FSDP1 had in a flat parameter, or DeepSpeed
 * in a flat group. */
struct ofs_flat_param {
	/* strings: its own name, and the unit's module or the group's number;
	 * OFS_NONE: it is in none */
	uint32_t name, unit;
	uint32_t index; /* in the unit */
	int8_t grad;    /* requires_grad; -1: not known */
};

/* One writer's view: who holds which box comes from the objects' ranks. */
struct ofs_catalog {
	struct ofs_arena arena; /* strings and everything small */
	struct ofs_dir dir;     /* all objects lie beneath; owned */

	const char *format;  /* "dcp", "torch", ...; static */
	bool unordered;      /* keys that are one text are in no order */
	const char *writer;  /* "PyTorch 2.7 or later", ...; may be NULL */
	const char *trainer; /* "Lightning", ...; NULL for none that is known */
	int world_size;      /* 0 when unknown */
	uint64_t uid, gid;   /* of the first file */
	uint32_t mode; /* 0444 for whom all files and directories let in */

	struct ofs_object *objects;
	struct ofs_shard *shards;
	struct ofs_replica *replicas;
	struct ofs_view *views;
	struct ofs_tensor *tensors;
	struct ofs_value *values;
	struct ofs_item *items;
	struct ofs_entry *entries;
	struct ofs_variant *variants;
	struct ofs_alias *aliases;
	struct ofs_note *notes;
	struct ofs_str *strs; /* a NUL follows each */
	uint32_t *paths;
	uint64_t *dims;
	uint64_t *bounds; /* of the indexes of tensors with many shards */
	struct ofs_pickle **docs; /* owned */
	uint32_t nobjects, nshards, nreplicas, nviews, ntensors, nvalues,
	    nitems, nentries, nvariants, naliases, nnotes, nstrs, npaths, ndims,
	    nbounds, ndocs;

	/* The names that ids= gives integer parameter IDs: ids[i] is the string
	 * that ID i is called by, OFS_NONE where it has none. In arena; NULL
	 * without ids=. Lists of IDs (params) are shown by these names. */
	uint32_t *ids;
	uint32_t nids;
	struct ofs_flat_param *flat; /* by name; in arena */
	/* Parameters' other names, where that is not seen in the model's
	 * tensors; strings; in arena. */
	struct ofs_name_tie {
		uint32_t name, target;
	} * ties;
	uint32_t nflat, nties;
	bool ids_used; /* the reader has named IDs by ids= itself */
	/* A template (push/template.h): whoever has it open fills its files in,
	 * which keep their sizes and are no others. */
	bool filling;

	/* How FSDP1 flattened parameters: the text of a units file
	 * (src/format/fsdp/units.h) and where it is from. In arena; NULL where
	 * nobody said. */
	const char *units, *units_file;
	uint32_t nunits; /* bytes of text */

	/* What options allow for an index and for what is made of it (0: the
	 * defaults), and how much of that docs take: src/catalog/budget.h. */
	uint64_t max_metadata, parse_mem, parsed;

	struct ofs_catalog_build *build; /* hash tables; NULL once finished */
};

/* An empty catalog that owns dir (which is cleared); NULL and ENOMEM. */
struct ofs_catalog *ofs_catalog_new(struct ofs_dir *dir,
    struct optimfs_error *err);
void ofs_catalog_free(struct ofs_catalog *cat);

struct ofs_stamp ofs_stamp_of(const struct stat *st);

/* Building. Each returns the index of what was added or found, OFS_NONE when
 * memory is exhausted (ENOMEM) or a count passes its limit (E2BIG). Once one
 * has failed the catalog is only good for _free. Pointers into the arrays
 * above move while building. */
uint32_t ofs_catalog_str(struct ofs_catalog *cat, const char *p, size_t n,
    struct optimfs_error *err);
/* Intern n numbers; equal runs share one index. */
uint32_t ofs_catalog_dims(struct ofs_catalog *cat, const uint64_t *v, size_t n,
    struct optimfs_error *err);
/* Intern a path of n components (string indexes, OFS_PATH_INDEX allowed). */
uint32_t ofs_catalog_path(struct ofs_catalog *cat, const uint32_t *component,
    size_t n, struct optimfs_error *err);
/* The object with this path, added and stat'ed when new. A missing file is no
 * error (missing is set), nor one that may not be opened (refused is set), but
 * a path that leaves the checkpoint is: EPERM (OFS620). */
uint32_t ofs_catalog_object(struct ofs_catalog *cat, const char *path, int rank,
    struct optimfs_error *err);
uint32_t ofs_catalog_shard(struct ofs_catalog *cat, const struct ofs_shard *s,
    struct optimfs_error *err);
uint32_t ofs_catalog_view(struct ofs_catalog *cat, const struct ofs_view *v,
    struct optimfs_error *err);
uint32_t ofs_catalog_tensor(struct ofs_catalog *cat, const struct ofs_tensor *t,
    struct optimfs_error *err);
uint32_t ofs_catalog_value(struct ofs_catalog *cat,
    const struct ofs_pickle *doc, uint32_t node, struct optimfs_error *err);
uint32_t ofs_catalog_item(struct ofs_catalog *cat, const struct ofs_item *item,
    struct optimfs_error *err);
uint32_t ofs_catalog_entry(struct ofs_catalog *cat,
    const struct ofs_entry *entry, struct optimfs_error *err);
uint32_t ofs_catalog_variant(struct ofs_catalog *cat,
    const struct ofs_variant *v, struct optimfs_error *err);
uint32_t ofs_catalog_alias(struct ofs_catalog *cat, uint32_t path,
    uint32_t target, struct optimfs_error *err);
/* Take ownership of doc until the catalog is freed; on failure it stays the
 * caller's. */
uint32_t ofs_catalog_doc(struct ofs_catalog *cat, struct ofs_pickle *doc,
    struct optimfs_error *err);
/* Equal notes are one. Fails for lack of memory alone. */
uint32_t ofs_catalog_note(struct ofs_catalog *cat, enum ofs_note_kind kind,
    int code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same of words that are an error's already: optimfs_fail_as. */
uint32_t ofs_catalog_note_as(struct ofs_catalog *cat, enum ofs_note_kind kind,
    int code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Done adding: for every tensor sort its shards by the first element they
 * hold, drop empty boxes, make identical ones replicas, and check that boxes
 * lie inside and do not overlap (OFS604 to OFS611, OFS623 of docs/errors.md);
 * a tensor that fails gets an error, the rest stands. Elements that no shard
 * holds are a note. Then release what only building needs. A shard belongs to
 * one tensor. Fails only with ENOMEM and E2BIG. */
int ofs_catalog_finish(struct ofs_catalog *cat, struct optimfs_error *err);

/* A catalog that begins as base, with the same indexes everywhere, but without
 * entries and variants, and to which more can be added; it borrows strings and
 * documents of base. Nothing is checked of it: _seal ends its building. */
struct ofs_catalog *ofs_catalog_copy(const struct ofs_catalog *base,
    struct optimfs_error *err);
void ofs_catalog_seal(struct ofs_catalog *cat);

/* Reading. */
static inline struct ofs_str ofs_catalog_string(const struct ofs_catalog *cat,
    uint32_t s)
{
	return cat->strs[OFS_PATH_STR(s)];
}
static inline bool ofs_catalog_string_is(const struct ofs_catalog *cat,
    uint32_t s, const char *word)
{
	return ofs_str_is(ofs_catalog_string(cat, s), word);
}
/* The components of a path; *n gets how many. */
const uint32_t *ofs_catalog_components(const struct ofs_catalog *cat,
    uint32_t path, uint32_t *n);
static inline const uint64_t *ofs_tensor_shape(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	return cat->dims + t->shape;
}
/* What is known of the parameter called so (a string); NULL: nothing. */
const struct ofs_flat_param *ofs_catalog_flat(const struct ofs_catalog *cat,
    uint32_t name);
/* Fail with what a tensor's or item's error says. */
int ofs_catalog_fail(const struct ofs_catalog *cat, uint32_t note,
    struct optimfs_error *err);
/* Elements; 0 when they or their bytes would not fit an off_t (such a tensor
 * has an error), or dtype is none. */
uint64_t ofs_tensor_numel(const struct ofs_catalog *cat,
    const struct ofs_tensor *t);
/* numel * itemsize: the size of its file. */
uint64_t ofs_tensor_bytes(const struct ofs_catalog *cat,
    const struct ofs_tensor *t);
/* The entry's tensor; NULL: e is something else, or NULL. */
const struct ofs_tensor *ofs_entry_tensor(const struct ofs_catalog *cat,
    const struct ofs_entry *e);
/* Is the file of an entry text, rather than elements? */
bool ofs_entry_is_text(const struct ofs_catalog *cat, uint32_t entry);
/* Offsets and sizes of a shard's box in the tensor's grid, grid_ndim each. */
void ofs_shard_box(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const struct ofs_shard *s, uint64_t *offsets, uint64_t *sizes);

#endif
