/* family.h - a checkpoint with the names of another program */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FAMILY_H
#define OFS_FAMILY_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"
#include "family/model_files.h"
#include "family/rules.h"
#include "read/reader.h"

/* What the user asks for: the names of a family, or with "megatron:" before it
 * the way back. Numbers are 0 if the user gives none. */
#define OFS_FAMILY_CHOICE 48
struct ofs_family_choice {
	char name[OFS_FAMILY_CHOICE]; /* "": the names as they are */
	uint32_t heads, groups, vocab;
	uint32_t lean; /* what the family has no name for is left out */
	uint32_t bare; /* so is the optimizer */
};

/* A checkpoint with other names. */
struct ofs_renamed {
	struct ofs_catalog *cat;  /* borrows from that of the source */
	struct ofs_reader reader; /* of cat; its transport is the source's */
	/* Names that no rule covers, each NUL-terminated: they are kept. */
	struct ofs_buf kept;
	uint32_t nkept;
	/* rows of the vocabulary that may be padding; 0: none */
	uint64_t padded;
	uint64_t hash; /* of all that decides what tensors consist of */
};

/* Renames and cuts what is read there, as the rules of the family say: docs/names.md.
 * Nothing is read but what describes the model; tensors become boxes of those
 * that are stored. Errors: OFS892 to OFS895. */
struct ofs_renamed *ofs_rename(const struct ofs_model_files *source,
    const struct ofs_family_choice *choice, const struct ofs_families *families,
    struct optimfs_error *err);
void ofs_renamed_free(struct ofs_renamed *renamed);

#endif
