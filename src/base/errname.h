/* errname.h - the names of errno values */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ERRNAME_H
#define OFS_ERRNAME_H

/* "ENOENT"; NULL for a value without a known name. */
const char *ofs_errname(int code);

#endif
