/* check_impl.h - declarations shared by the parts of a check */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_CHECK_IMPL_H
#define OFS_ANALYZE_CHECK_IMPL_H

#include "optimfs/analyze.h"

#include "analyze/families.h"
#include "analyze/health.h"
#include "analyze/optimizers.h"

/* A finding that is not reported yet. */
struct ofs_symptom {
	char *path, *text;
	struct optimfs_error *why; /* it cannot be read; or NULL */
	int number;
	double weight; /* sorts findings of one number, largest first */
};

/* The state of a file. */
enum ofs_look { OFS_NOT_LOOKED, OFS_READ, OFS_UNREAD };

/* The state of a check. */
struct ofs_check {
	struct optimfs *fs;
	struct ofs_optimizers state;
	struct ofs_exam *exam;
	size_t nexams, exam_cap;
	struct ofs_symptom *symptom;
	size_t nsymptoms, cap;
	struct optimfs_checked checked;
	enum ofs_look *look; /* by file */
	/* The first file that this version cannot read, and the reason; NULL:
	 * none. */
	const char *unread;
	char *why_unread;
	bool bad; /* out of memory */
};

/* Plans the exams: everything that has to be read. */
void ofs_check_plan(struct ofs_check *c);
/* Reads it; the results go to the exams. */
int ofs_check_read(struct ofs_check *c, const struct optimfs_scan *how,
    struct optimfs_error *err);
/* Derives the symptoms, unsorted. */
int ofs_check_judge(struct ofs_check *c, struct optimfs_error *err);

#endif
