/* cmd_log.h - the steps of a run: what was read of them, and its output */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CMD_LOG_H
#define OFS_CMD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/statistics.h"

#include "tools/command.h"

/* What a path is in a step: statistics, without the histogram; or else the text
 * of a file; or else why it cannot be read. */
struct ofs_log_cell {
	struct optimfs_statistics s;
	char *text;
	struct optimfs_error *error;
};

struct ofs_log_row {
	char *name;
	char *path; /* in the run; NULL: it is not shown */
	int64_t step, mtime_ns;
	char *problems; /* "": none */
	bool in_steps;
	/* Without paths: */
	bool read;
	uint64_t bytes;
	double *lr; /* of the groups, each once */
	size_t nlr, caplr;
	/* With paths, one for each; NULL: it was not read. */
	struct ofs_log_cell *cell;
};

#define OFS_LOG_STATS_MAX 32

struct ofs_log {
	struct ofs_command *c;
	struct ofs_log_row *row;
	size_t n, cap;
	char *stat[OFS_LOG_STATS_MAX];
	size_t nstats;
};

/* Lists the steps of the run in row. OFS852: there is none. */
int ofs_log_list(struct ofs_log *log, struct optimfs_error *err);
/* Reads bytes, lr and problems of a row. What is wrong with the checkpoint is a
 * problem of the row. */
int ofs_log_read_index(struct ofs_log *log, struct ofs_log_row *r,
    struct optimfs_error *err);
/* Adds to why a row has no values, or what is wrong with it. */
int ofs_log_add_problem(struct ofs_log_row *r, const char *text,
    struct optimfs_error *err);
void ofs_log_fini(struct ofs_log *log);

/* A statistic of a cell: of a text, what number it is. NaN: none. */
double ofs_log_value(const struct ofs_log_cell *cell, const char *stat);
#endif
