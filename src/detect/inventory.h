/* inventory.h - what a directory holds, and what becomes of it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_INVENTORY_H
#define OFS_DETECT_INVENTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/error.h"

#include "base/io.h"
#include "catalog/catalog.h"

/* Every file and directory beside a checkpoint is a part of it, or left out for
 * a reason that the user can see. Decisions between files (which of two jobs,
 * which of two formats) are made by detection, which records what it leaves out
 * (ofs_parts_leave). The rest follows from a table of names in inventory.c. */

/* What is left out, in the order of paths. */
struct ofs_inventory {
	struct ofs_inventory_item {
		char
		    *path; /* below the checkpoint; a directory's ends in "/" */
		enum ofs_left_kind kind;
		char *why;
	} * item;
	size_t n, cap;
};

/* What the directory of cat holds besides the files that cat was read from.
 * Nothing for a file that the user named. Reads directories, and the beginnings
 * of files with unknown names. */
int ofs_inventory_left(const struct ofs_catalog *cat, struct ofs_inventory *out,
    struct optimfs_error *err);
void ofs_inventory_free(struct ofs_inventory *inv);
/* "foreign", "not read", ...: for people and for JSON. */
const char *ofs_left_kind_name(enum ofs_left_kind kind);

/* Why the directory with this name and these names in it is one that a save has
 * not finished, or was not able to; NULL: it is not. */
const char *ofs_unfinished(const char *name, const struct ofs_names *names);
/* Is there a file beside the checkpoint that says that its save has not finished,
 * NAME-unfinished? */
bool ofs_is_marked(const struct ofs_dir *dir, const char *name);
#define OFS_MARKED "a file beside it, with -unfinished in its name, says so"
/* Why a file with this name, or path, is one that a save or a copy has not
 * finished; NULL: its name does not say so. */
const char *ofs_unfinished_file(const char *name);
/* The program that a directory with this name is of, if none of a trainer, such as
 * wandb/; NULL: unknown. */
const char *ofs_foreign_dir(const char *name);

#endif
