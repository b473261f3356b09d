/* check_impl.h - what the files of a check share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_CHECK_IMPL_H
#define OFS_ANALYZE_CHECK_IMPL_H

#include "optimfs/analyze.h"

#include "analyze/families.h"
#include "analyze/health.h"
#include "analyze/optimizers.h"

/* A finding that is not told yet. */
struct ofs_symptom {
	char *path, *text;
	int number;
	double weight; /* of one number: the greater first */
};

/* What became of a file. */
enum ofs_look { OFS_NOT_LOOKED, OFS_READ, OFS_UNREAD };

/* From the plan to the verdict. */
struct ofs_check {
	struct optimfs *fs;
	struct ofs_optimizers state;
	struct ofs_exam *exam;
	size_t nexams, exam_cap;
	struct ofs_symptom *symptom;
	size_t nsymptoms, cap;
	struct optimfs_checked checked;
	enum ofs_look *look; /* of each file */
	/* The first that this version cannot read, and why; NULL: none. */
	const char *unread;
	char *why_unread;
	bool bad; /* no memory */
};

/* The exams: all that is to be read. */
void ofs_check_plan(struct ofs_check *c);
/* Read it; what was found is in the exams. */
int ofs_check_read(struct ofs_check *c, const struct optimfs_scan *how,
    struct optimfs_error *err);
/* The text of an error, without the path that is told anyway. */
char *ofs_check_why(const struct optimfs_error *err, const char *path);
/* The symptoms, in no order. */
int ofs_check_judge(struct ofs_check *c, struct optimfs_error *err);

#endif
