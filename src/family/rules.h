/* rules.h - the names that two programs give the same tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FAMILY_RULES_H
#define OFS_FAMILY_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/types.h"

/* A family of models is a list of rules. Each says how a tensor of the training
 * program (left) is called and cut by Hugging Face (right): docs/names.md has
 * the syntax, and data/names/ the families that the program knows. */

#define OFS_FAMILY_STARS 3 /* in one name */
#define OFS_FAMILY_PARTS 8 /* of one tensor */
#define OFS_FAMILY_NAME  512

struct ofs_family_rule {
	struct ofs_str left;
	struct ofs_str right[OFS_FAMILY_PARTS];
	unsigned nright;        /* 0: the tensor is left out */
	/* right must have, and must not have, this name; p NULL: always */
	struct ofs_str only_if, unless;
	/* the last axis of this right name counts the rows; p NULL: unknown */
	struct ofs_str rows;
	bool anything; /* left is the end of a name that begins anyhow */
	bool stacked;  /* its first axis is the last star of the right names */
	bool stacks;   /* the first axis of both sides counts the same */
	bool qkv, transpose, vocab;
	/* right: the rows of the first half alternate with those of the second */
	bool alternate;
};

struct ofs_family {
	struct ofs_str name;
	uint32_t first, n; /* of the rules */
};

struct ofs_families {
	struct ofs_arena arena;
	struct ofs_buf text; /* of the file of the user */
	struct ofs_family_rule *rule;
	struct ofs_family *family;
	uint32_t nrules, rule_cap, nfamilies, family_cap;
	uint32_t nbuiltin; /* families of the program, which come first */
};

/* The families of the program, and those of a file (NULL: none), which replace
 * them where the names are equal.
 * OFS891: EINVAL or ENOENT, with the line. On failure *f needs no _fini. */
int ofs_families_init(struct ofs_families *f, const char *file,
    struct optimfs_error *err);
void ofs_families_fini(struct ofs_families *f);
/* Adds the families of a text, whose name is for messages. *f borrows the text.
 * On failure (OFS891: EINVAL, with the line) some may have been added. */
int ofs_families_parse(struct ofs_families *f, const char *name,
    struct ofs_str text, struct optimfs_error *err);
/* The family with this name, or with "file" the first one of the file of the
 * user; NULL: none. */
const struct ofs_family *ofs_family_find(const struct ofs_families *f,
    struct ofs_str name);

/* Does the pattern, in which each star stands for a decimal number, match?
 * star[] gets the numbers; *n how many. */
bool ofs_family_match(struct ofs_str pattern, struct ofs_str name,
    uint32_t star[OFS_FAMILY_STARS], unsigned *n);
/* The name that a pattern gives with these numbers; false: it is too long. */
bool ofs_family_expand(struct ofs_str pattern, const uint32_t *star,
    char name[OFS_FAMILY_NAME]);

/* builtin.c: the text of the families of the program, lines with their ends;
 * NULL at the end. */
extern const char *const ofs_family_builtin[];

#endif
