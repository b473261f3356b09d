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
#include "base/map.h"
#include "base/str.h"

/* A format reader builds the catalog once; after that it is const. It knows no
 * format: a reader turns an index into entries, each a path with a tensor, a
 * plain value, or an item, which is a value that has not been read. All are in
 * flat arrays with 32-bit indexes, so that the cost of a million tensors is
 * that of their names. */

struct ofs_pickle;

/* How an extent encodes a shard or item. src/read/locate.h finds the place of
 * element 0 when the extent is first used. */
enum ofs_encoding {
	OFS_RAW,          /* off is element 0 */
	OFS_TORCH_ITEM,   /* the extent is a torch.save archive of one object */
	OFS_TORCH_RECORD, /* off is the local header of a zip record */
	OFS_NPY,          /* the elements are the end of the extent */
	/* the elements are computed (struct ofs_derived), among others from
	 * those in the extent */
	OFS_DERIVED,
};

enum ofs_codec {
	OFS_PLAIN,
	OFS_ZSTD,
	/* the extent is a deflated zip record, from its local header to its last
	 * byte */
	OFS_DEFLATE,
	/* only of a place and a segment (plan/plan.h): the "extent" is what the
	 * derivation of number ext_off computes */
	OFS_COMPUTED,
};

/* The time of the last change of an inode, and what changes that time but not
 * the data: hard links (a snapshot), permissions, owners. */
struct ofs_stamp {
	int64_t ctime_ns;
	uint32_t nlink, mode, uid, gid;
};

/* A hash of what a checkpoint was read from: the names, sizes, times and inodes of
 * its files. What was computed from equal files needs not be computed again.
 * changed_ns: when the last of them changed. */
struct ofs_identity {
	uint64_t hash[2];
	int64_t changed_ns;
};

/* Who may read a checkpoint. */
struct ofs_access {
	uint64_t uid, gid; /* of the first file */
	uint32_t mode;     /* 0444 or less: who can read all files */
};

/* A file of the checkpoint. */
struct ofs_object {
	const char *path; /* relative to the checkpoint's directory */
	int rank;         /* of its writer; -1 when unknown or shared */
	bool missing;     /* did not exist at mount */
	bool refused;     /* no permission, a link, no regular file */
	bool damaged;     /* not of its format: nothing of it is used */
	bool flat_zip;    /* an archive for ofs_zip_open_flat */
	bool examined;    /* it is too short, and pointer is known: */
	bool pointer;     /* it is a pointer of Git LFS */
	uint64_t size;    /* this and the next four: as of mount */
	int64_t mtime_ns;
	uint64_t ino;
	uint64_t blocks; /* bytes on disk */
	struct ofs_stamp stamp;
};

/* len bytes at off of an object. With a codec, the encoding is that of the
 * decoded bytes. */
struct ofs_extent {
	uint64_t off, len;
	uint32_t object;
	uint8_t encoding; /* enum ofs_encoding */
	uint8_t codec;    /* enum ofs_codec */
	uint16_t tag;     /* OFS_TORCH_RECORD: ofs_zip_tag of its name, or 0 */
};

/* A box of a tensor, stored in an extent. */
struct ofs_shard {
	struct ofs_extent at;
	/* grid_ndim offsets, then grid_ndim sizes, in the dims pool; OFS_NONE
	 * for the whole tensor. */
	uint32_t box;
	/* place of the elements in the storage: index of a struct ofs_view;
	 * OFS_NONE for C order from the start. OFS_DERIVED: index of a struct
	 * ofs_derived. */
	uint32_t view;
};

/* Element (i0, i1, ...) of a box is offset + sum(i * stride) elements into its
 * storage. Strides are int64_t numbers of elements; stride is their index in
 * the dims pool. The storage of an OFS_TORCH_ITEM is the elements of the item
 * in C order (src/archive/item_view.h). */
struct ofs_view {
	uint64_t offset;
	uint64_t numel; /* elements in the storage */
	uint32_t stride;
	uint8_t fix; /* enum ofs_fix */
};

struct ofs_delta;
struct ofs_derived_part;
struct ofs_reader;
struct ofs_tensor;
struct ofs_derived;

/* How the elements of a shard are computed from others: one const table for
 * each kind. The dtype and the shape of the result are those of the tensor. */
struct ofs_derived_ops {
	const char *name; /* "sum" */
	/* What is to be found out before the first read of a shard, in one
	 * malloc'ed block that the reader keeps. NULL: nothing. */
	void *(*prepare)(struct ofs_reader *r, const struct ofs_tensor *t,
	    const struct ofs_shard *s, struct optimfs_error *err);
	/* Computes elements [first, first + count) of the shard, in C order of
	 * its box, which is checked by the caller. Thread-safe. The memory that
	 * it needs does not depend on count. */
	int (*read)(struct ofs_reader *r, const struct ofs_derived *d,
	    const void *prepared, uint64_t first, uint64_t count, void *buf,
	    struct optimfs_error *err);
};

/* The derivation of one shard. ctx, of ops, and part live as long as the
 * catalog. */
struct ofs_derived {
	const struct ofs_derived_ops *ops;
	const void *ctx;
	/* NULL: the shard is all that ops computes */
	const struct ofs_derived_part *part;
};

/* What lives as long as a catalog, because derivations refer to it. */
struct ofs_kept {
	void *p;
	void (*release)(void *p);
};

/* Conversions of bytes after they were read. */
enum ofs_fix {
	OFS_FIX_NONE,
	OFS_FIX_SWAP = 1, /* big-endian writer: swap bytes */
	OFS_FIX_CONJ = 2, /* negate the imaginary half */
	OFS_FIX_NEG = 4,  /* negate */
	/* float32 is stored, and rounded to the dtype of the tensor (float16 or
	 * bfloat16); the view counts stored elements */
	OFS_FIX_ROUND = 8,
};

enum ofs_tensor_flag {
	OFS_TENSOR_COPIES = 1, /* the copies of several ranks are intended */
	OFS_TENSOR_TIED = 2,   /* several entries share this tensor */
	OFS_TENSOR_ZERO = 4,   /* elements without a shard are zeros (fill.h) */
	OFS_TENSOR_FILE = 8,   /* the bytes of a file, not of a model */
	OFS_TENSOR_INNER = 16, /* of struct ofs_inner_storage */
	OFS_TENSOR_HOLES = 32, /* elements are in no shard */
	/* only reading tells whether the copies are equal (read/agree.h) */
	OFS_TENSOR_DOUBT = 64,
};

struct ofs_tensor {
	uint32_t shape; /* dims pool */
	/* The shape in which boxes are given, with the same elements in the
	 * same C order. Usually shape itself. */
	uint32_t grid;
	uint8_t ndim, grid_ndim;
	uint8_t dtype;           /* enum ofs_dtype */
	uint8_t flags;           /* enum ofs_tensor_flag */
	uint32_t shard, nshards; /* its run in the shards array */
	uint32_t error;          /* note with which reads fail, or OFS_NONE */
	uint32_t index;          /* catalog/shards.h; OFS_NONE for few shards */
};

/* What a shard has of the elements of another one, of a tensor of the catalog:
 * to view, the storage is these elements in C order of their box. */
struct ofs_derived_part {
	/* A derived shard, which is all that is computed. */
	struct ofs_shard of;
	uint32_t tensor; /* whose shard it is */
	struct ofs_view view;
};

/* A further stored copy of a box, as in HSDP jobs that saved every replica.
 * shard is the copy that comes first in the order of files and offsets; reads
 * use that one. fsck compares the copies. Sorted by shard. */
struct ofs_replica {
	struct ofs_extent at;
	uint32_t view;
	uint32_t shard;
};

/* A plain value: a node of a parsed pickle, which lives as long as the
 * catalog. */
struct ofs_value {
	const struct ofs_pickle *doc;
	uint32_t node;
	uint32_t source; /* its path in the source; OFS_NONE: the entry's */
};

/* A storage inside a value, for which the tree has no file: a persistent id, and
 * the tensor of one dimension that has its elements. After _finish sorted by
 * document, then node. */
struct ofs_inner_storage {
	const struct ofs_pickle *doc;
	uint32_t node, tensor;
};

/* A tensor that cannot be read but copied, as a node of a pickle: it is sparse,
 * or quantized by channel. Sorted by tensor. */
struct ofs_pickled_tensor {
	const struct ofs_pickle *doc;
	uint32_t node, tensor;
};

/* A value that is in an extent and has not been read. */
struct ofs_item {
	struct ofs_extent at;
	uint32_t error; /* as in struct ofs_tensor */
	/* Plus one: the next item with the same value, of which the tree has
	 * one and a commit changes all; 0: there is none. */
	uint32_t same;
	/* The value, if it has no text (error) but can be copied; else doc is
	 * NULL. */
	uint32_t node;
	const struct ofs_pickle *doc;
};

enum ofs_entry_kind { OFS_ENTRY_TENSOR, OFS_ENTRY_VALUE, OFS_ENTRY_ITEM };

/* How a commit can change the path of an entry. */
enum ofs_entry_key {
	OFS_KEY_FREE,
	OFS_KEY_STAYS, /* in its container, or with that */
	OFS_KEY_FIXED,
};

/* Does the order of entries say anything? A pickle keeps the order of the state
 * dict, which is that of the model's parameters, unless it was made from other
 * files (ofs_zip_unordered); those sort their keys. */
enum ofs_entry_order {
	OFS_ORDER_NONE,
	OFS_ORDER_FIRST, /* of a file that keeps the order */
	OFS_ORDER_NEXT,  /* it follows the entry before it in that file */
};

struct ofs_entry {
	uint32_t path; /* ofs_catalog_path: the keys as the source nests them */
	/* its path below the mount point (naming/naming.h); OFS_NONE when
	 * subtree= leaves it out */
	uint32_t tree;
	uint32_t ref;  /* index of a tensor, value or item */
	uint8_t kind;  /* enum ofs_entry_kind */
	uint8_t key;   /* enum ofs_entry_key */
	uint8_t nfile; /* first components of path that name a file */
	uint8_t order; /* enum ofs_entry_order */
};

/* The version of one rank, where the ranks differ on an entry; the entry is
 * then an item with an error. Sorted by entry, then rank. */
struct ofs_variant {
	uint32_t entry;
	int rank;
	uint32_t ref; /* index of a tensor, value or item */
	uint8_t kind; /* enum ofs_entry_kind */
};

/* What the elements of a quantized tensor mean: (element - zero_point) * scale.
 * Only of tensors whose items do not have it. */
struct ofs_scale {
	uint32_t tensor;
	double scale;
	int64_t zero_point;
};

/* A tensor in few bits, stored as codes and scales with an entry each, or as an
 * object (derive/low_bit.h). tensor, of the entry of codes or object: the float32
 * tensor that it is; OFS_NONE: of another part. name: its last component instead
 * of that of the entry; OFS_NONE: the same. Sorted by entry. */
struct ofs_low_bit {
	uint32_t entry, tensor, name;
};

/* A path that resolves but is not listed: the name of a parameter with its
 * wrapper prefixes, or another name of a tied parameter. Both are tree paths of
 * a file or a directory. The target OFS_NONE means that the parameter has no
 * state by intent (ENODATA, not ENOENT). */
struct ofs_alias {
	uint32_t path, target;
};

/* A component of a path: the index of a string, and flags: it is the index of
 * an item instead of a key; and that of a tuple instead of a list; or it is a
 * key that is no string, as in {30: 1}, {None: 1} and {(2, 'a'): 1}, but what
 * Python reads in its text. */
#define OFS_PATH_INDEX  0x80000000u
#define OFS_PATH_TUPLE  0x40000000u
#define OFS_PATH_PLAIN  0x20000000u
#define OFS_PATH_FLAGS  (OFS_PATH_INDEX | OFS_PATH_TUPLE)
#define OFS_PATH_STR(c) ((c) & ~(OFS_PATH_FLAGS | OFS_PATH_PLAIN))
/* The most components that a part of a checkpoint prepends to its paths. */
#define OFS_PART_PREFIX 4

/* A line of .optimfs/warnings, missing or globals, or the reason why a tensor
 * cannot be read. */
struct ofs_note {
	enum ofs_note_kind {
		OFS_NOTE_WARNING,
		OFS_NOTE_MISSING, /* state, or a file; ENODATA: by intent */
		OFS_NOTE_GLOBAL,
		OFS_NOTE_ERROR, /* is referred to by one entry */
	} kind;
	int code;   /* errno value, or 0 */
	int number; /* the nnn of OFSnnn, or 0 */
	/* as in struct optimfs_error */
	unsigned short how, lost, nlost;
	const char *text; /* begins with OFSnnn if it has a number */
};

/* A file or directory beside those that were read, and why it was not. The path
 * of a directory ends with "/". */
enum ofs_left_kind {
	OFS_LEFT_FOREIGN,    /* of another program */
	OFS_LEFT_UNREAD,     /* beside the state, but not state itself */
	OFS_LEFT_COPY,       /* what another file has, too */
	OFS_LEFT_CHECKPOINT, /* a checkpoint of its own */
	OFS_LEFT_OLDER,      /* of an older job */
	OFS_LEFT_UNFINISHED, /* of a save that did not complete */
};
struct ofs_left {
	const char *path, *why;
	enum ofs_left_kind kind;
};

/* A parameter that was in a flat parameter of FSDP1 or a flat group of
 * DeepSpeed. */
struct ofs_flat_param {
	/* strings: its name, and the module of the unit or the number of the
	 * group; OFS_NONE: it is in no unit */
	uint32_t name, unit;
	uint32_t index; /* its index in the unit */
	int8_t grad;    /* requires_grad; -1: unknown */
};

/* The ranks that hold a box follow from the ranks of the objects. */
struct ofs_catalog {
	struct ofs_arena arena; /* strings and other small data */
	struct ofs_dir dir;     /* all objects are beneath it; owned */

	const char *format;       /* "dcp", "torch", ...; static */
	const char *writer;       /* "PyTorch 2.7 or later", ...; may be NULL */
	const char *trainer;      /* "Lightning", ...; NULL when unknown */
	const char *version;      /* of the trainer; NULL when unknown */
	int world_size;           /* 0 when unknown */
	struct ofs_access access; /* when it was read */

	/* What its derived tensors are, if it is computed from other
	 * checkpoints; else NULL. from: what they were read from. withheld:
	 * permissions that one of them does not give. own: bytes of the files
	 * that are not of the other checkpoints. */
	const char *computed;
	struct ofs_identity from;
	uint64_t own;
	uint32_t withheld;
	/* It is no state, but changes of one: catalog/delta.h. In arena; NULL
	 * for a state. */
	const struct ofs_delta *delta;

	struct ofs_object *objects;
	struct ofs_map by_path; /* of objects */
	struct ofs_shard *shards;
	struct ofs_replica *replicas;
	struct ofs_view *views;
	struct ofs_tensor *tensors;
	struct ofs_value *values;
	struct ofs_item *items;
	struct ofs_entry *entries;
	struct ofs_variant *variants;
	struct ofs_alias *aliases;
	struct ofs_scale *scales;
	struct ofs_inner_storage *inner;
	struct ofs_pickled_tensor *pickled;
	struct ofs_low_bit *low_bits;
	struct ofs_derived *derived;
	struct ofs_kept *kept; /* not copied */
	struct ofs_note *notes;
	struct ofs_left *lefts; /* what detection decided to leave out */
	const char **strs;      /* ofs_arena_counted */
	uint32_t *paths;
	uint64_t *dims;
	uint64_t *bounds; /* of the indexes of tensors with many shards */
	struct ofs_pickle **docs; /* owned */
	uint32_t nobjects, nshards, nreplicas, nviews, ntensors, nvalues,
	    nitems, nentries, nvariants, naliases, nscales, ninner, npickled,
	    nlow_bits, nderived, nkept, nnotes, nlefts, nstrs, npaths, ndims,
	    nbounds, ndocs;

	/* Optimizers with integer parameter IDs that have names: from ids=, or
	 * from param_names of the groups. Lists of IDs (params) are shown with
	 * these names. In arena. */
	struct ofs_id_names {
		uint32_t optim; /* below optim/; OFS_NONE: the only one */
		uint32_t n;
		const uint32_t *name; /* of ID i: a string, or OFS_NONE */
	} * id_names;
	uint32_t nid_names;
	/* the trainer's optimizer has all parameters of the model, in its
	 * order */
	bool ids_of_model;
	struct ofs_flat_param *flat; /* sorted by name; in arena */
	/* Other names of parameters that do not follow from tied tensors of the
	 * model; strings; in arena. */
	struct ofs_name_tie {
		uint32_t name, target;
	} * ties;
	uint32_t nflat, nties;
	bool ids_used; /* the reader has applied ids= itself */
	bool lone; /* a file that the user named: the others are not its own */
	/* of two joined directories: each below dir, "" for dir itself */
	const char *joined[2];
	bool fixed_forms; /* a commit cannot change types or shapes */

	/* How FSDP1 flattened parameters: the text of a units file
	 * (src/format/fsdp/units.h) and its name. In arena; NULL without
	 * one. */
	const char *units, *units_file;
	uint32_t nunits; /* length of the text */

	/* Parameters whose state the source stores without names (Megatron's
	 * buckets; DeepSpeed's experts, whose names need a rank): how many are
	 * known by their weights, and how many by their order only; and parts of
	 * buckets that have no name. */
	struct ofs_found {
		uint32_t proved, ordered, open;
	} found;

	/* Limits by options for an index and for its graph (0: the defaults),
	 * and the memory that docs use: src/catalog/budget.h. */
	uint64_t max_metadata, parse_mem, parsed;

	struct ofs_catalog_build *build; /* hash tables; NULL after building */
};

/* An empty catalog, which takes over dir (and clears the caller's); NULL with
 * ENOMEM. */
struct ofs_catalog *ofs_catalog_new(struct ofs_dir *dir,
    struct optimfs_error *err);
void ofs_catalog_free(struct ofs_catalog *cat);

struct ofs_stamp ofs_stamp_of(const struct stat *st);
/* Who may read it now: of the files and directories as they are. */
struct ofs_access ofs_catalog_access(const struct ofs_catalog *cat);
/* 0444 or less: which classes of the owner of this file, in the local directory,
 * can read it, ACLs and the directories above it included. */
uint32_t ofs_object_access(const struct ofs_catalog *cat,
    const struct ofs_object *object);

/* Building. Each function returns the index of what it added or found; OFS_NONE
 * when memory is exhausted (ENOMEM) or a count exceeds its limit (E2BIG). The
 * first such failure stays: every function that adds fails with it again, and
 * so does _finish. Indexes that are passed may be OFS_NONE. So a reader that only
 * adds need not check each result. After a failure the catalog may only be freed.
 * The arrays move while they grow. err is never NULL. */
/* Did one fail? Then err says why. */
bool ofs_catalog_failed(const struct ofs_catalog *cat,
    struct optimfs_error *err);
uint32_t ofs_catalog_str(struct ofs_catalog *cat, const char *p, size_t n,
    struct optimfs_error *err);
/* As ofs_map_prefetch: this string will be interned soon. */
void ofs_catalog_prefetch(const struct ofs_catalog *cat, const char *p,
    size_t n);
/* Intern n numbers; equal runs share one index. */
uint32_t ofs_catalog_dims(struct ofs_catalog *cat, const uint64_t *v, size_t n,
    struct optimfs_error *err);
/* Intern a path of n components (string indexes with flags). */
uint32_t ofs_catalog_path(struct ofs_catalog *cat, const uint32_t *component,
    size_t n, struct optimfs_error *err);
/* As ofs_map_prefetch: this path will be looked up soon. */
void ofs_catalog_path_prefetch(const struct ofs_catalog *cat,
    const uint32_t *component, size_t n);
/* The path of a key below the path parent[0..n), which may be one of cat. */
uint32_t ofs_catalog_below(struct ofs_catalog *cat, const uint32_t *parent,
    size_t n, struct ofs_str key, struct optimfs_error *err);
/* The object with this path, which is added with its stat when it is new. A
 * missing file gets missing, one that may not be opened gets refused; neither
 * is an error. EPERM (OFS620) for a path that leaves the checkpoint. */
uint32_t ofs_catalog_object(struct ofs_catalog *cat, const char *path, int rank,
    struct optimfs_error *err);
/* The object with this path; OFS_NONE: there is none. */
uint32_t ofs_catalog_find_object(const struct ofs_catalog *cat,
    const char *path);
/* Fails with the reason why an object may not be opened. */
int ofs_object_opens(const struct ofs_catalog *cat, const struct ofs_object *o,
    struct optimfs_error *why);
/* Finds out why a file is too short, by reading it if it is small. */
void ofs_catalog_examine(struct ofs_catalog *cat, uint32_t object);
/* Is an examined file too short because it is a pointer of Git LFS? Then err
 * says so (EIO, OFS666). */
bool ofs_object_pointer(const struct ofs_object *o, struct optimfs_error *err);
uint32_t ofs_catalog_shard(struct ofs_catalog *cat, const struct ofs_shard *s,
    struct optimfs_error *err);
/* Of a format that knows: room for so many more tensors with names, and shards;
 * arrays that do not grow are not copied. */
int ofs_catalog_expect(struct ofs_catalog *cat, uint32_t ntensors,
    uint32_t nshards, struct optimfs_error *err);
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
/* Add an entry without a place in the tree; 0 or -1. */
int ofs_catalog_add(struct ofs_catalog *cat, uint32_t path,
    enum ofs_entry_kind kind, uint32_t ref, enum ofs_entry_key key,
    struct optimfs_error *err);
/* The entries [first, end) are in the order of the state dict of one file. */
void ofs_catalog_ordered(struct ofs_catalog *cat, uint32_t first, uint32_t end);
/* What does the order of the entries [first, last] say? */
enum ofs_evidence {
	OFS_UNORDERED, /* nothing: not all are such entries of one file */
	OFS_SORTED,   /* their keys are sorted: the dict may have been made from
			* files that sort them */
	OFS_IN_ORDER, /* it is that of the state dict */
};
enum ofs_evidence ofs_catalog_evidence(const struct ofs_catalog *cat,
    uint32_t first, uint32_t last);
uint32_t ofs_catalog_variant(struct ofs_catalog *cat,
    const struct ofs_variant *v, struct optimfs_error *err);
uint32_t ofs_catalog_alias(struct ofs_catalog *cat, uint32_t path,
    uint32_t target, struct optimfs_error *err);
/* In the order of tensors. */
uint32_t ofs_catalog_scale(struct ofs_catalog *cat, const struct ofs_scale *s,
    struct optimfs_error *err);
uint32_t ofs_catalog_inner(struct ofs_catalog *cat,
    const struct ofs_inner_storage *s, struct optimfs_error *err);
/* In the order of tensors. */
uint32_t ofs_catalog_pickled(struct ofs_catalog *cat,
    const struct ofs_pickled_tensor *t, struct optimfs_error *err);
/* Sorted by _finish. */
uint32_t ofs_catalog_low_bit(struct ofs_catalog *cat,
    const struct ofs_low_bit *l, struct optimfs_error *err);
/* That of an entry; NULL: it is no part of one. */
const struct ofs_low_bit *ofs_low_bit_of(const struct ofs_catalog *cat,
    uint32_t entry);
/* Elements that are computed: a shard with the encoding OFS_DERIVED and this
 * index as its view shows them. */
uint32_t ofs_catalog_derived(struct ofs_catalog *cat,
    const struct ofs_derived *d, struct optimfs_error *err);
/* Call release(p) when the catalog is freed; at once on failure (-1). */
int ofs_catalog_keep(struct ofs_catalog *cat, void *p, void (*release)(void *p),
    struct optimfs_error *err);
/* Take ownership of doc. On failure doc stays the caller's. */
uint32_t ofs_catalog_doc(struct ofs_catalog *cat, struct ofs_pickle *doc,
    struct optimfs_error *err);
/* The value of a pickle, whose bytes are the caller's no more. */
uint32_t ofs_catalog_pickle(struct ofs_catalog *cat, uint8_t *bytes, uint64_t n,
    struct optimfs_error *err);
/* Equal notes are merged. Fails with ENOMEM only. */
int ofs_catalog_note(struct ofs_catalog *cat, enum ofs_note_kind kind, int code,
    struct optimfs_error *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* As above, with the words of a failure. */
int ofs_catalog_note_as(struct ofs_catalog *cat, enum ofs_note_kind kind,
    const struct optimfs_error *why, struct optimfs_error *err);
/* As above; the index of the note, for what fails with that error. */
uint32_t ofs_catalog_error(struct ofs_catalog *cat,
    const struct optimfs_error *why, struct optimfs_error *err);

/* Record that the file or directory path is left out; strings are copied. 0 or
 * -1. */
int ofs_catalog_leave(struct ofs_catalog *cat, const char *path,
    enum ofs_left_kind kind, const char *why, struct optimfs_error *err);

/* End building. For each tensor: sort shards by their first element, drop empty
 * boxes, make equal boxes replicas, and check that boxes are inside and do not
 * overlap (OFS604 to OFS611, OFS623 of docs/errors.md). A tensor that fails
 * gets an error; the others are not affected. Elements without a shard get a
 * note (OFS603). Then free what only building needs. A shard belongs to one tensor.
 * Fails with ENOMEM and E2BIG only. */
int ofs_catalog_finish(struct ofs_catalog *cat, struct optimfs_error *err);

/* A catalog with the arrays of base, same indexes, but without its entries and
 * variants, to which more can be added. It borrows strings and documents of
 * base. It is not checked: _seal ends its building. */
struct ofs_catalog *ofs_catalog_copy(const struct ofs_catalog *base,
    struct optimfs_error *err);
void ofs_catalog_seal(struct ofs_catalog *cat);

/* Reading. */
static inline struct ofs_str ofs_catalog_string(const struct ofs_catalog *cat,
    uint32_t s)
{
	return ofs_counted_str(cat->strs[OFS_PATH_STR(s)]);
}
static inline bool ofs_catalog_string_is(const struct ofs_catalog *cat,
    uint32_t s, const char *word)
{
	return ofs_str_is(ofs_catalog_string(cat, s), word);
}
/* The components of a path; *n gets their number. */
const uint32_t *ofs_catalog_components(const struct ofs_catalog *cat,
    uint32_t path, uint32_t *n);
/* A malloc'ed copy of them, since they move when paths are added; NULL with
 * ENOMEM. */
uint32_t *ofs_catalog_copy_components(const struct ofs_catalog *cat,
    uint32_t path, uint32_t *n, struct optimfs_error *err);
/* Append n components, joined by dots. */
void ofs_catalog_join(const struct ofs_catalog *cat, const uint32_t *c,
    uint32_t n, struct ofs_buf *out);
static inline const uint64_t *ofs_tensor_shape(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	return cat->dims + t->shape;
}
/* The tensor of the storage inside a value that node is for, or OFS_NONE. */
uint32_t ofs_catalog_inner_tensor(const struct ofs_catalog *cat,
    const struct ofs_pickle *doc, uint32_t node);
/* Keep the flat parameters v[0..n), which are in arena, sorted and without
 * doubles. */
void ofs_catalog_set_flat(struct ofs_catalog *cat, struct ofs_flat_param *v,
    uint32_t n);
/* The flat parameter with this name (a string); NULL when there is none. */
const struct ofs_flat_param *ofs_catalog_flat(const struct ofs_catalog *cat,
    uint32_t name);
/* What a note says, as an error. */
void ofs_note_error(const struct ofs_note *n, struct optimfs_error *e);
/* Fail with the error of a tensor or item, a note. */
int ofs_catalog_fail(const struct ofs_catalog *cat, uint32_t note,
    struct optimfs_error *err);
/* The note that says why an entry cannot be read; OFS_NONE: nothing is known
 * against it. */
uint32_t ofs_entry_error(const struct ofs_catalog *cat,
    const struct ofs_entry *e);
/* Fails with it. */
int ofs_entry_sound(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *err);
/* The number of elements. 0 when it or the number of bytes does not fit in
 * off_t (then the tensor has an error), or the dtype is none. */
uint64_t ofs_tensor_numel(const struct ofs_catalog *cat,
    const struct ofs_tensor *t);
/* Has it this shape? */
bool ofs_tensor_has_shape(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *shape, unsigned ndim);
/* numel * itemsize: the size of its file. */
uint64_t ofs_tensor_bytes(const struct ofs_catalog *cat,
    const struct ofs_tensor *t);
/* The tensor of an entry; NULL when e is another kind or NULL. */
const struct ofs_tensor *ofs_entry_tensor(const struct ofs_catalog *cat,
    const struct ofs_entry *e);
/* The part of an entry with number i that is stored, copies apart; NULL: it has
 * fewer. */
static inline const struct ofs_extent *ofs_entry_extent(const struct ofs_catalog
							    *cat,
    const struct ofs_entry *e, uint32_t i)
{
	const struct ofs_tensor *t = ofs_entry_tensor(cat, e);

	if (t != NULL)
		return i < t->nshards ? &cat->shards[t->shard + i].at : NULL;
	return e->kind == OFS_ENTRY_ITEM && i == 0 ? &cat->items[e->ref].at
						   : NULL;
}
/* Of all files that it has by now. */
struct ofs_identity ofs_catalog_identity(const struct ofs_catalog *cat);
/* It is computed from another checkpoint, with a weight. */
void ofs_catalog_from(struct ofs_catalog *cat, const struct ofs_catalog *other,
    double weight);
/* Is an extent unreadable because its file is missing, may not be opened or is
 * too short? Then why (may be NULL) gets the reason. */
bool ofs_extent_lost(const struct ofs_catalog *cat, const struct ofs_extent *at,
    struct optimfs_error *why);
/* As above, for any extent of an entry. */
bool ofs_entry_lost(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *why);
/* Is t a rounded copy of another tensor? Then it is not stored, but
 * computed. */
bool ofs_tensor_rounded(const struct ofs_catalog *cat,
    const struct ofs_tensor *t);
/* Is the file of an entry text, rather than elements? */
bool ofs_entry_is_text(const struct ofs_catalog *cat, uint32_t entry);
/* Is it a value without text, or a tensor without elements, that can be copied?
 * *doc and *node, if doc is not NULL, are what to copy. */
bool ofs_entry_is_pickled(const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct ofs_pickle **doc, uint32_t *node);
/* The offsets and sizes of the box of a shard in the grid of its tensor,
 * grid_ndim each. */
void ofs_shard_box(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const struct ofs_shard *s, uint64_t *offsets, uint64_t *sizes);

#endif
