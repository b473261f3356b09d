/* cmd_report.h - the page of optimfs report */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CMD_REPORT_H
#define OFS_CMD_REPORT_H

#include "base/buf.h"

/* What report.html gets: text, HTML that needs no script, and the data. */
struct ofs_report_page {
	struct ofs_buf title, head, json;
};

/* Appends text of a checkpoint to HTML. */
void ofs_report_html(struct ofs_buf *b, const char *text);

#endif
