/* error.h - filling in an error, and shortening it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_ERROR_H
#define OFS_BASE_ERROR_H

#include <stdlib.h>
#include <string.h>

#include "optimfs/error.h"

/* err, or when it is NULL one that lasts as long as the block. */
#define OFS_SOME_ERROR(err) \
 ((err) != NULL ? (err) : &(struct optimfs_error){ 0 })

/* As optimfs_fail, for a file that is lost: the text is number ("OFSnnn"), the
 * name of the file, of which at most 300 bytes are shown, and fmt. */
int ofs_fail_lost(struct optimfs_error *err, int code, enum optimfs_lost how,
    const char *number, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* Mark an error that has another reason than a file; -1. */
static inline int ofs_mark_lost(struct optimfs_error *err,
    enum optimfs_lost how)
{
	if (err != NULL)
		err->how = (unsigned short)how;
	return -1;
}

/* Mark an error whose text begins with the name of a file, of n bytes. */
static inline void ofs_mark_lost_file(struct optimfs_error *err,
    enum optimfs_lost how, size_t n)
{
	err->how = (unsigned short)how;
	err->lost = (unsigned short)(optimfs_error_words(err) - err->text);
	err->nlost = (unsigned short)n;
}

/* A malloc'ed copy, without what optimfs_error_about passes over; NULL: no
 * memory. Inline, because the program uses it, too. */
static inline struct optimfs_error *ofs_error_without(const struct optimfs_error
							  *err,
    const char *path)
{
	struct optimfs_error *copy = malloc(sizeof(*copy));
	const char *words = optimfs_error_words(err);
	const char *about = optimfs_error_about(err, path);

	if (copy == NULL)
		return NULL;
	*copy = *err;
	strcpy(copy->text + (words - err->text), about);
	if (err->nlost > 0 && err->text + err->lost >= about)
		copy->lost = (unsigned short)(err->lost - (about - words));
	else
		copy->lost = copy->nlost = 0;
	if (err->nlost > 0 && copy->nlost == 0)
		copy->how = OPTIMFS_NOT_LOST;
	return copy;
}

#endif
