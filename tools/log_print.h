/* log_print.h - the steps of a run as a table, JSON and CSV */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LOG_PRINT_H
#define OFS_LOG_PRINT_H

struct ofs_log; /* tools/cmd_log.h */

/* Each prints all rows. */
void ofs_log_print_table(const struct ofs_log *log);
void ofs_log_print_json(const struct ofs_log *log);
void ofs_log_print_csv(const struct ofs_log *log);

#endif
