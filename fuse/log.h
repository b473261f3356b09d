/* log.h - the messages of a daemon */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_LOG_H
#define OFS_FUSE_LOG_H

#include <stdbool.h>

#include "optimfs/error.h"

/* where: "stderr", "syslog" or a file name to append to. It takes effect with
 * ofs_log_begin; before, messages go to standard error. Messages of libfuse are
 * included; its debug messages only with stderr. */
int ofs_log_open(const char *where, struct optimfs_error *err);
void ofs_log_begin(void);
void ofs_log_close(void);
/* Logs one line. */
void ofs_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* While on, messages of libfuse are kept for ofs_log_kept instead: the reason
 * when a mount fails. */
#define OFS_LOG_KEPT 300
void ofs_log_keep(bool on);
/* The last kept message, in text; "" if there is none. */
const char *ofs_log_kept(char text[OFS_LOG_KEPT]);

#endif
