/* detect.h - what the recognition of checkpoints is made of */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_H
#define OFS_DETECT_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/io.h"
#include "format/format.h"
#include "format/part.h"

/* Which parts make up what the user pointed at: dir, or the file rel in it
 * (rel "" for the directory itself). opt->type overrides. Failure is for
 * people: a parent of several checkpoints names the candidates (ENOENT). */
int ofs_detect(const struct ofs_dir *dir, const char *rel,
    const struct optimfs_options *opt, struct ofs_parts *parts,
    struct optimfs_error *err);

/* The format of the file rel, the highest bidder; NULL when it is none of ours,
 * or cannot be read. *err is only for EUCLEAN (OFS662): it is two formats at
 * once. */
const struct ofs_format *ofs_detect_file(const struct ofs_dir *dir,
    const char *rel, struct optimfs_error *err);

/* The format of the directory dir with these names, the highest bidder: 1; 0:
 * none; -1: err. The same for rel beneath dir. */
int ofs_detect_dir(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format **format, struct optimfs_error *err);
int ofs_detect_sub(const struct ofs_dir *dir, const char *rel,
    const struct ofs_format **format, struct optimfs_error *err);
/* Add dir as a directory in format, with the file beside that is part of it. */
int ofs_detect_add(const struct ofs_dir *dir, const struct ofs_format *format,
    struct ofs_parts *parts, struct optimfs_error *err);
/* Add the checkpoint in format that a file of dir says is the last: 1; 0: none
 * does; -1. */
int ofs_detect_latest(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format *format, struct ofs_parts *parts,
    struct optimfs_error *err);
/* Add a file that torch.save wrote, as who made dir always uses it, if it is
 * there. prefix may be NULL. */
int ofs_detect_torch(const struct ofs_dir *dir, const char *name,
    const char *prefix, struct ofs_parts *parts, struct optimfs_error *err);

/* Make *spec, which has the format of the file at index i, that of the files
 * of dir that differ from it by nothing but a rank's number, at least two, or
 * one beside a units file: 1, spec->file is a malloc'ed list in the order of
 * ranks (strings borrowed from names), and stem, which has room for size
 * bytes, is what they are called without the number; 0 when there is no such
 * set; -1: ENOMEM. A number behind "checkpoint" is a rank's where the files
 * themselves say so. src/detect/series.c */
int ofs_detect_series(const struct ofs_dir *dir, const struct ofs_names *names,
    size_t i, struct ofs_part_spec *spec, char *stem, size_t size,
    struct optimfs_error *err);

/* Is the name at index i that of rank 0's file, and no other rank's there? Then
 * stem gets what it is called without the number. src/detect/series.c */
bool ofs_detect_only_rank(const struct ofs_names *names, size_t i, char *stem,
    size_t size);

/* Add the file rel; with the other ranks' if it is one of a set.
 * EOPNOTSUPP (OFS678): it is no format's. src/detect/many.c */
int ofs_detect_one(const struct ofs_dir *dir, const char *rel,
    struct ofs_parts *parts, struct optimfs_error *err);

/* Add those files of dir that some format takes, each as a part with the name
 * of the file before what it holds. as, when it is not NULL, is what they all
 * are read as. src/detect/many.c */
int ofs_detect_files(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format *as, struct ofs_parts *parts,
    struct optimfs_error *err);

/* Is dir, with these names in it, one that a trainer wrote? 1: parts are
 * added; 0: no; -1: err. */
int ofs_detect_trainer(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err);

/* Has verl saved several models there, each in a directory of its own, and but
 * its data loader's state beside them? */
bool ofs_detect_is_roles(const struct ofs_dir *dir,
    const struct ofs_names *names);

/* A directory that is no checkpoint: say so, and name those in it. One alone
 * is taken: 0, with its name (malloc'ed) in *only. Otherwise -1. */
int ofs_detect_parent(const struct ofs_dir *dir, const struct ofs_names *names,
    char **only, struct optimfs_error *err);

#endif
