/* options.h - "-o name=value,..." and "--name=value": one table, one parser */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_OPTIONS_H
#define OFS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

enum ofs_option_kind {
	OFS_OPTION_FLAG,   /* bool: name, noname */
	OFS_OPTION_STRING, /* const char * */
	OFS_OPTION_SIZE,   /* uint64_t: 4096, 64k, 2g, 1GiB */
	OFS_OPTION_COUNT,  /* unsigned */
	OFS_OPTION_TIME,   /* unsigned, seconds: 30, 30s, 5m, 1h */
	OFS_OPTION_CHOICE, /* int: index into choices */
};
struct ofs_option {
	const char *name;
	enum ofs_option_kind kind;
	size_t offset;              /* of the target member */
	const char *const *choices; /* ends with NULL */
	uint64_t min, max;          /* for numbers; max 0: no limit */
};

/* Parses options into a struct described by a table. Zero the struct or fill in
 * defaults first. table ends with name NULL. Strings are owned by this struct
 * and valid until ofs_options_fini. */
struct ofs_options {
	const struct ofs_option *table;
	void *target;
	/* Names that are accepted, with or without a value, and ignored:
	 * NUL-terminated strings, ended by an empty one; or NULL. A string that
	 * ends in '-' is the beginning of names. */
	const char *ignored;
	bool sloppy; /* accept any unknown name */
	char **owned;
	size_t nowned, owned_cap;
};

void ofs_options_fini(struct ofs_options *o);
/* Sets one option; value is NULL if none was given. EINVAL names the unknown
 * option and the nearest known one; ENOMEM. */
int ofs_options_set(struct ofs_options *o, const char *name, const char *value,
    struct optimfs_error *err);
/* Parses a list "a,b=c". "\," is a comma and "\\" a backslash within a value;
 * any other backslash is literal. Empty words are skipped. */
int ofs_options_parse(struct ofs_options *o, const char *list,
    struct optimfs_error *err);
/* Offers the names of the table to near. */
struct ofs_nearest;
void ofs_options_nearest(const struct ofs_options *o, struct ofs_nearest *near);
/* Does the table have this name ("noname" included)? */
bool ofs_options_known(const struct ofs_options *o, const char *name);

/* Does the option need "=value"? */
bool ofs_options_wants_value(const struct ofs_options *o, const char *name);

/* The options of optimfs_open, for every verb: a table for a struct
 * optimfs_options at offset 0. The macro has its rows, for larger tables whose
 * struct contains a struct optimfs_options at offset at. */
extern const struct ofs_option ofs_open_options[];
/* In the order of optimfs_run_mode. */
extern const char *const ofs_run_names[];
#define OFS_OPTION_ROW(row_name, row_kind, row_offset)           \
 {                                                               \
  .name = (row_name), .kind = (row_kind), .offset = (row_offset) \
 }
#define OFS_OPEN_ROW(base, row_name, row_kind, member) \
 OFS_OPTION_ROW(row_name, row_kind,                    \
     (base) + offsetof(struct optimfs_options, member))
#define OFS_OPEN_OPTIONS(at)                                            \
 OFS_OPEN_ROW(at, "type", OFS_OPTION_STRING, type),                     \
     OFS_OPEN_ROW(at, "optim_key", OFS_OPTION_STRING, optim_key),       \
     OFS_OPEN_ROW(at, "model_key", OFS_OPTION_STRING, model_key),       \
     OFS_OPEN_ROW(at, "ids", OFS_OPTION_STRING, ids),                   \
     OFS_OPEN_ROW(at, "units", OFS_OPTION_STRING, units),               \
     OFS_OPEN_ROW(at, "subtree", OFS_OPTION_STRING, subtree),           \
     OFS_OPEN_ROW(at, "fill", OFS_OPTION_STRING, fill),                 \
     OFS_OPEN_ROW(at, "join", OFS_OPTION_STRING, join),                 \
     OFS_OPEN_ROW(at, "base", OFS_OPTION_STRING, base),                 \
     OFS_OPEN_ROW(at, "names", OFS_OPTION_STRING, names),               \
     OFS_OPEN_ROW(at, "cache", OFS_OPTION_SIZE, cache),                 \
     OFS_OPEN_ROW(at, "cache_dir", OFS_OPTION_STRING, cache_dir),       \
     OFS_OPEN_ROW(at, "cache_disk", OFS_OPTION_SIZE, cache_disk),       \
     OFS_OPEN_ROW(at, "max_metadata", OFS_OPTION_SIZE, max_metadata),   \
     OFS_OPEN_ROW(at, "parse_mem", OFS_OPTION_SIZE, parse_mem),         \
     OFS_OPEN_ROW(at, "strict", OFS_OPTION_FLAG, strict),               \
     OFS_OPEN_ROW(at, "follow", OFS_OPTION_FLAG, follow),               \
     { .name = "run",                                                   \
	     .kind = OFS_OPTION_CHOICE,                                 \
	     .choices = ofs_run_names,                                  \
	     .offset = (at) + offsetof(struct optimfs_options, run) },  \
 {                                                                      \
  .name = "requests", .kind = OFS_OPTION_COUNT, .min = 1, .max = 64,    \
  .offset = (at) + offsetof(struct optimfs_options, requests)           \
 },                                                                     \
 {                                                                      \
  .name = "request_size", .kind = OFS_OPTION_SIZE, .min = 128 << 10,    \
  .max = 64 << 20,                                                      \
  .offset = (at) + offsetof(struct optimfs_options, request_size)       \
 },                                                                     \
 {                                                                      \
  .name = "runs_open", .kind = OFS_OPTION_COUNT, .min = 1, .max = 1024, \
  .offset = (at) + offsetof(struct optimfs_options, runs_open)          \
 }

#endif
