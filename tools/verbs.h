/* verbs.h - the verbs of optimfs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_VERBS_H
#define OFS_VERBS_H

#include "cli/tools.h"

extern const struct ofs_verb ofs_verb_mount;        /* cmd_mount.c */
extern const struct ofs_verb ofs_verb_umount;       /* cmd_umount.c */
extern const struct ofs_verb ofs_verb_ls;           /* cmd_ls.c */
extern const struct ofs_verb ofs_verb_cat;          /* cmd_cat.c */
extern const struct ofs_verb ofs_verb_show;         /* cmd_show.c */
extern const struct ofs_verb ofs_verb_cp;           /* cmd_cp.c */
extern const struct ofs_verb ofs_verb_info;         /* cmd_info.c */
extern const struct ofs_verb ofs_verb_log;          /* cmd_log.c */
extern const struct ofs_verb ofs_verb_average;      /* cmd_reshard.c */
extern const struct ofs_verb ofs_verb_thin;         /* cmd_thin.c */
extern const struct ofs_verb ofs_verb_sum;          /* cmd_sum.c */
extern const struct ofs_verb ofs_verb_tar;          /* cmd_tar.c */
extern const struct ofs_verb ofs_verb_serve;        /* cmd_serve.c */
extern const struct ofs_verb ofs_verb_fsck;         /* cmd_fsck.c */
extern const struct ofs_verb ofs_verb_diff;         /* cmd_diff.c */
extern const struct ofs_verb ofs_verb_explain;      /* cmd_explain.c */
extern const struct ofs_verb ofs_verb_stat;         /* cmd_stat.c */
extern const struct ofs_verb ofs_verb_check;        /* cmd_check.c */
extern const struct ofs_verb ofs_verb_plan;         /* cmd_plan.c */
extern const struct ofs_verb ofs_verb_map;          /* cmd_map.c */
extern const struct ofs_verb ofs_verb_report;       /* cmd_report.c */
extern const struct ofs_verb ofs_verb_units_script; /* cmd_units.c */
extern const struct ofs_verb ofs_verb_reshard;      /* cmd_reshard.c */
extern const struct ofs_verb ofs_verb_mkfs;         /* cmd_mkfs.c */
extern const struct ofs_verb ofs_verb_commit;       /* cmd_commit.c */
extern const struct ofs_verb ofs_verb_abort;

#endif
