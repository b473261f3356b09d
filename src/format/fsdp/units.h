/* units.h - the units= file: what FSDP1 knew of its flat parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_UNITS_H
#define OFS_FORMAT_FSDP_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/arena.h"
#include "catalog/catalog.h"
#include "layout/flat.h"

/* A job that saves what FSDP1 flattened can also write down, with
 * contrib/dump_units.py, which parameters are in which flat parameter. The
 * file is JSON; docs/formats/fsdp.md, "The units file", has its members. */

struct ofs_unit_param {
	struct ofs_str fqn; /* whole, without the prefixes of wrappers */
	const uint64_t *shape;
	uint8_t ndim;
	int8_t grad; /* requires_grad; -1: not known */
};

/* One FSDP unit. */
struct ofs_unit {
	struct ofs_str prefix; /* of its module, without wrappers; "": root */
	struct ofs_unit_param *param;
	uint64_t *numel;      /* of each */
	struct ofs_flat flat; /* of all; flat.world is 1 when whole */
	bool whole;           /* NO_SHARD: every rank has all of it */
	/* elements that parameters are aligned to; OFS_FLAT_PACKED */
	uint32_t align;
	int orig;       /* use_orig_params: 0, 1; -1: both give this layout */
	uint32_t dtype; /* enum ofs_dtype that the record says, or none */
	uint64_t line;  /* where it stands in the file */
};

/* A parameter's other name. */
struct ofs_unit_tie {
	struct ofs_str name, target;
};

struct ofs_units {
	struct ofs_arena arena;
	const char *file; /* for messages; borrowed */
	struct ofs_unit *unit;
	uint32_t n;
	struct ofs_unit_tie *tie;
	uint32_t nties;
	/* Names in the order of model.named_parameters(), and those of the
	 * optimizer's parameters in the order of its groups; NULL where the
	 * file has none. */
	struct ofs_str *order, *ids;
	uint32_t norder, nids;
	bool named;   /* ids are those of the very optimizer that is read */
	bool implied; /* nobody asked for the file: it lay there */
};

/* Parse n bytes of text; file is for later messages, those of this one do not
 * name it. What a unit records beyond names, shapes and world
 * size is held against what these say. EINVAL (OFS162) for a file that is not
 * one of units, or leaves the layout open; EUCLEAN for one that contradicts
 * itself: OFS160 (sizes), OFS161 (padding), OFS163 (a name in two units). On
 * failure nothing is left to free. */
int ofs_units_parse(struct ofs_units *u, const char *file, const void *text,
    uint32_t n, struct optimfs_error *err);
/* The same for the file of that name, which messages name. */
int ofs_units_read(struct ofs_units *u, const char *file,
    struct optimfs_error *err);

/* The units of the rank files in the directory of rel: those of the option
 * units=, else of the file OFS_UNITS_FILE beside them. 0; 1: there are none, or
 * units=none; -1. Their text is kept with the catalog. A file that was not
 * asked for and is none of units is a warning. */
#define OFS_UNITS_FILE "units.json"
int ofs_units_of(struct ofs_units *u, struct ofs_catalog *cat, const char *rel,
    const struct optimfs_options *opt, struct optimfs_error *err);
/* Keep such a text as what is known of units; file is for messages. */
int ofs_units_remember(struct ofs_catalog *cat, const char *file,
    const void *text, uint32_t n, struct optimfs_error *err);
/* Those that were kept: 0; 1: none. */
int ofs_units_recall(struct ofs_units *u, const struct ofs_catalog *cat,
    struct optimfs_error *err);
/* When all is read: keep those of units=FILE that nobody has used. */
int ofs_units_option(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err);
void ofs_units_fini(struct ofs_units *u);

/* What a unit's record may say of its layout besides names and shapes. A table
 * is a list of numbers or of such lists; null is -1 and true is 1. */
struct ofs_unit_table {
	int64_t *v;
	uint32_t n, cap;
	uint32_t *end; /* of each inner list, in v */
	uint32_t nrows, row_cap;
	bool given;
};
struct ofs_unit_record {
	struct ofs_unit_table numels, padded, mask, size, sharded, right, infos,
	    contiguous;
	int64_t world, rank; /* -1: not given */
	int64_t orig;        /* use_orig_params */
	uint32_t dtype;      /* enum ofs_dtype of the flat parameter */
};

/* src/format/fsdp/units_layout.c */

/* The layout of a unit of n parameters; one that is not sharded (whole) is
 * padded as if it were. */
int ofs_unit_lay(const struct ofs_unit *unit, uint32_t n, bool whole,
    uint32_t align, uint32_t world, struct ofs_flat *f,
    struct optimfs_error *err);
/* The lengths of parameters and of the padding between them, in order. */
struct ofs_unit_pieces {
	const struct ofs_flat *f;
	uint32_t param;
	uint64_t at;
};
bool ofs_unit_next(struct ofs_unit_pieces *p, uint64_t *len, bool *pad);
/* Find the one layout that agrees with the record
 * and set unit->flat. Codes as ofs_units_parse has them. */
int ofs_unit_layout(struct ofs_unit *unit, uint32_t nparams,
    const struct ofs_unit_record *r, struct optimfs_error *err);

#endif
