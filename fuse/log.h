/* log.h - what a daemon has to say, wherever it is heard */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_LOG_H
#define OFS_FUSE_LOG_H

#include <stdbool.h>

#include "optimfs/error.h"

/* where: "stderr", "syslog" or the name of a file, which is appended to; from
 * ofs_log_begin on, before it is standard error. Also takes over what libfuse
 * says; of that, debug is only for standard error. */
int ofs_log_open(const char *where, struct optimfs_error *err);
void ofs_log_begin(void);
void ofs_log_close(void);
/* One line. */
void ofs_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* While on, what libfuse says is kept instead, for ofs_log_kept: the reason
 * when a mount fails. */
#define OFS_LOG_KEPT 300
void ofs_log_keep(bool on);
/* The last of it, in text; "" when there is none. */
const char *ofs_log_kept(char text[OFS_LOG_KEPT]);

#endif
