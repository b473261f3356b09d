/* lost.h - causes that many tensors share, and lost files above all */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LOST_H
#define OFS_LOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/keys.h"

/* A stored file that is missing, too short, without permission to read, or not the
 * one that the index describes is the reason why many tensors with a part in it
 * cannot be read; others are a file that is not even named, so that elements are
 * in none, and an option that is not given. Starts as zeros. */
struct ofs_lost {
	/* whose files they are, for messages; or NULL */
	const char *checkpoint;
	const char *list; /* the verb whose --json lists the tensors */
	struct ofs_lost_file {
		int number;        /* of the OFSnnn that says what is wrong */
		const char *words; /* the message for all its tensors */
		char *name;        /* of the file, or of the kind */
		/* The message that was added first, and its path: "" if it was
		 * about the file itself. */
		char *path, *text;
		uint64_t n; /* tensors and values */
	} * file;
	size_t n, cap;
	struct ofs_keys keys; /* of files: what is wrong, and the name */
};

/* Is such a file the reason why? Then it is counted. text: the message. path: of
 * the tensor or value; "": of none; NULL: of one whose path is in the message.
 * why may be NULL. */
bool ofs_lost_add(struct ofs_lost *l, const char *path, const char *text,
    const struct optimfs_error *why);
/* Calls each with one message for each file: the message that was added if there
 * is only one, else a sentence with the number of tensors. Empties l. */
void ofs_lost_tell(struct ofs_lost *l,
    void (*each)(void *ctx, const char *text), void *ctx);
/* For each: prints the message to standard output. */
void ofs_lost_print(void *ctx, const char *text);
/* Empties l without a message. */
void ofs_lost_fini(struct ofs_lost *l);

#endif
