/* units.h - the units= file: FSDP1's facts about its flat parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_UNITS_H
#define OFS_FORMAT_FSDP_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/arena.h"
#include "base/keys.h"
#include "catalog/catalog.h"
#include "layout/flat.h"

/* A job that saves FSDP1's flat parameters can also run contrib/dump_units.py,
 * which writes down the parameters of each flat parameter. The file is JSON;
 * docs/formats/fsdp.md, "The units file", describes its members. */

/* For messages: how to get it. */
#define OFS_DUMP_UNITS "the script of `optimfs units-script`"

struct ofs_unit_param {
	struct ofs_str fqn; /* full name, without the prefixes of wrappers */
	const uint64_t *shape;
	uint8_t ndim;
	int8_t grad; /* requires_grad; -1: unknown */
};

/* One FSDP unit. */
struct ofs_unit {
	struct ofs_str prefix; /* of its module, without wrappers; "": root */
	uint32_t first;        /* the number of its first parameter in names */
	struct ofs_unit_param *param;
	uint64_t *numel;      /* of each */
	struct ofs_flat flat; /* of all parameters; flat.world is 1 if whole */
	uint32_t first_tie, nties; /* its shared parameters, in units->tie */
	bool whole;                /* NO_SHARD: every rank has the whole unit */
	/* alignment of parameters in elements; OFS_FLAT_PACKED: none */
	uint32_t align;
	int orig;       /* use_orig_params: 0, 1; -1: both give this layout */
	uint32_t dtype; /* enum ofs_dtype of the record, or OFS_DTYPE_NONE */
};

/* A parameter: its unit, and its number there. unit OFS_NONE: none. */
struct ofs_unit_place {
	uint32_t unit, param;
};

/* Another name of a parameter. */
struct ofs_unit_tie {
	struct ofs_str name, target;
};

struct ofs_units {
	struct ofs_arena arena;
	const char *file; /* for messages; borrowed */
	struct ofs_unit *unit;
	uint32_t n;
	struct ofs_keys names; /* of the parameters of all units, in order */
	struct ofs_unit_tie *tie;
	uint32_t nties;
	/* Names in the order of model.named_parameters(), and names of the
	 * optimizer's parameters in the order of its groups; NULL if the file
	 * has none. */
	struct ofs_str *order, *ids;
	uint32_t norder, nids;
	bool named; /* ids are of the optimizer that is being read */
};

/* Parses n bytes of text. file is for later messages; those of this call do not
 * name it. What a unit records beyond names, shapes and world size is checked
 * against these. EINVAL (OFS162): not a units file, or its layout is ambiguous.
 * EUCLEAN: the file contradicts itself: OFS160 (sizes), OFS161 (padding),
 * OFS163 (a name in two units). After a failure there is nothing to free. */
int ofs_units_parse(struct ofs_units *u, const char *file, const void *text,
    uint32_t n, struct optimfs_error *err);

/* The units of the rank files in the directory of rel: those of the option
 * units=, else those of OFS_UNITS_FILE in that directory. 0; 1: none, or
 * units=none; -1. Their text is kept with the catalog. A file that was not
 * named with units= and is not a units file causes only a warning. */
#define OFS_UNITS_FILE "units.json"
#define OFS_UNITS_MAX  (64u << 20) /* the most bytes of a units file */
#define OFS_UNITS_NONE "none"
int ofs_units_of(struct ofs_units *u, struct ofs_catalog *cat, const char *rel,
    const struct optimfs_options *opt, struct optimfs_error *err);
/* Keeps the text of a units file in the catalog; file is for messages. */
int ofs_units_remember(struct ofs_catalog *cat, const char *file,
    const void *text, uint32_t n, struct optimfs_error *err);
/* Parses the kept text: 0; 1: none was kept. */
int ofs_units_recall(struct ofs_units *u, const struct ofs_catalog *cat,
    struct optimfs_error *err);
/* After reading: keeps units=FILE if no reader used it. */
int ofs_units_option(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err);
void ofs_units_fini(struct ofs_units *u);

/* What a unit's record may hold besides names and shapes. A table is a list of
 * numbers or of lists of numbers; null is -1 and true is 1. */
struct ofs_unit_table {
	int64_t *v;
	uint32_t n, cap;
	uint32_t *end; /* end of each inner list in v */
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

/* The layout of a unit of n parameters. A unit that is not sharded (whole) gets
 * the padding of a sharded one. */
int ofs_unit_lay(const struct ofs_unit *unit, uint32_t n, bool whole,
    uint32_t align, uint32_t world, struct ofs_flat *f,
    struct optimfs_error *err);
/* Iterates over the lengths of parameters and of the padding between them. */
struct ofs_unit_pieces {
	const struct ofs_flat *f;
	uint32_t param;
	uint64_t at;
};
bool ofs_unit_next(struct ofs_unit_pieces *p, uint64_t *len, bool *pad);
/* Finds the only layout that agrees with the record and sets unit->flat. Error
 * codes as for ofs_units_parse. */
int ofs_unit_layout(struct ofs_unit *unit, uint32_t nparams,
    const struct ofs_unit_record *r, struct optimfs_error *err);

#endif
