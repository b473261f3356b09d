/* detect.h - recognising checkpoints */
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

/* Finds the parts of the checkpoint that the user named: dir, or the file rel
 * in it (rel "": the directory itself). opt->type overrides detection. Errors
 * are written for people: for a directory of several checkpoints the candidates
 * are named (ENOENT). */
int ofs_detect(const struct ofs_dir *dir, const char *rel,
    const struct optimfs_options *opt, struct ofs_parts *parts,
    struct optimfs_error *err);

/* The same for two directories or files below dir, as one checkpoint: names that
 * say which part each is are prefixes (src/detect/members.c). */
int ofs_detect_both(const struct ofs_dir *dir, const char *rel,
    const char *other, const struct optimfs_options *opt,
    struct ofs_parts *parts, struct optimfs_error *err);

/* The format of files with this name; NULL: none. src/detect/file.c */
const struct ofs_format *ofs_detect_name(const char *name);
/* The format of the file rel, by the highest bid, or by its name if the disk
 * fails; NULL: unknown format, or unreadable. *err is only set if the file is
 * valid in two formats (EUCLEAN, OFS662), or if the disk fails and the name says
 * nothing (OFS755). */
const struct ofs_format *ofs_detect_file(const struct ofs_dir *dir,
    const char *rel, struct optimfs_error *err);

/* The format of the directory dir with these names, by the highest bid: 1; 0:
 * unknown; -1: err. The second one for directory rel below dir. */
int ofs_detect_dir(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format **format, struct optimfs_error *err);
int ofs_detect_sub(const struct ofs_dir *dir, const char *rel,
    const struct ofs_format **format, struct optimfs_error *err);
/* Adds dir as a part in this format, with the file beside it that belongs to
 * it. */
int ofs_detect_add(const struct ofs_dir *dir, const struct ofs_format *format,
    struct ofs_parts *parts, struct optimfs_error *err);
/* Adds the checkpoint that a file of dir names as the latest: 1; 0: no such
 * file; -1: err. */
int ofs_detect_latest(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format *format, struct ofs_parts *parts,
    struct optimfs_error *err);
/* Adds a file that the writer of dir always saves in this format, if it exists.
 * prefix may be NULL. */
int ofs_detect_lone(const struct ofs_dir *dir, const char *name,
    const char *format, const char *prefix, struct ofs_parts *parts,
    struct optimfs_error *err);

/* Extends *spec, the format of the file at index i, to a series: the files of
 * dir whose names differ only by a rank number; at least two, or one beside a
 * units file. 1: spec->file is a malloc'ed list in the order of ranks (strings
 * borrowed from names), and stem (size bytes) gets the common part of their
 * names. 0: no series; -1: ENOMEM. A number after "checkpoint" is only a rank
 * if the contents confirm it. Files of other jobs are left out of parts, and of
 * the list (format/jobs.h). src/detect/series.c */
int ofs_detect_series(const struct ofs_dir *dir, const struct ofs_names *names,
    size_t i, struct ofs_part_spec *spec, char *stem, size_t size,
    struct ofs_parts *parts, struct optimfs_error *err);

/* Adds the files of the directories of ranks in dir: rank_0/ck.pt, rank_1/ck.pt.
 * There must be one for each rank and no other directory, with files of the
 * same names, which are the files of a set; else nothing is added.
 * src/detect/series.c */
int ofs_detect_rank_dirs(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err);

/* Adds the file rel, and those of the other ranks if it belongs to a series.
 * EOPNOTSUPP (OFS678): unknown format. src/detect/many.c */
int ofs_detect_one(const struct ofs_dir *dir, const char *rel,
    struct ofs_parts *parts, struct optimfs_error *err);

/* Adds the files of dir that have a known format, each as a part with the file
 * name as prefix. as (may be NULL) forces a format. src/detect/many.c */
int ofs_detect_files(const struct ofs_dir *dir, const struct ofs_names *names,
    const struct ofs_format *as, struct ofs_parts *parts,
    struct optimfs_error *err);

/* Was dir, with these names, written by a known trainer? 1: parts are added; 0:
 * no; -1: err. */
int ofs_detect_trainer(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err);

/* As above, for the index of torch_checkpointing.
 * src/detect/torch_checkpointing.c */
int ofs_detect_torch_checkpointing(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err);
/* As above, for verl's table of contents. src/detect/verl.c */
int ofs_detect_verl(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err);

/* Adds what verl keeps beside the directory role, if that is one of its roles:
 * the state of the data loader. */
int ofs_detect_role_data(const struct ofs_dir *dir, const char *role,
    struct ofs_parts *parts, struct optimfs_error *err);

/* What the entries of a part are, where names say it. */
enum ofs_role {
	OFS_ROLE_OTHER,
	OFS_ROLE_MODEL,
	OFS_ROLE_OPTIM,
	OFS_ROLE_ADAPTER,
};
/* Is one of the parts the model, or the optimizer, of the checkpoint?
 * src/detect/copies.c */
bool ofs_detect_has_role(const struct ofs_parts *parts, enum ofs_role role);
/* Of several parts that say they are the model, or the optimizer, leaves one
 * form, and of shards those of one save. src/detect/copies.c */
int ofs_detect_copies(const struct ofs_dir *dir, struct ofs_parts *parts,
    struct optimfs_error *err);
/* Adds the directories of dir that are parts of the checkpoint that the parts
 * before are of, or of one together: 1; 0: there are none; -1: err.
 * src/detect/members.c */
int ofs_detect_members(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err);
/* Adds the adapters of PEFT that the Trainer saved in directories of dir: one
 * alone as the model, if the parts before have none. src/detect/members.c */
int ofs_detect_adapters(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err);
/* Puts the prefix that the name of their directory, rel, says before parts, if
 * it says one. src/detect/members.c */
int ofs_detect_prefix(struct ofs_parts *parts, const char *rel,
    struct optimfs_error *err);
/* Are there checkpoints in directories of dir that belong to no part? Then it
 * fails with their names (OFS681, ENOENT), or leaves them out where that is no
 * question: those of a save that has not finished, and all if dir itself is a
 * part. src/detect/members.c */
int ofs_detect_others(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err);

/* The checkpoint that the file rel of dir names as the latest, malloc'ed; NULL:
 * it is not such a file. src/detect/parents.c */
int ofs_detect_named(const struct ofs_dir *dir, const char *rel, char **name,
    struct optimfs_error *err);

/* Was the file rel, or the directory dir, written by a program whose format is
 * not read, or compressed? Then err says by which, and what to do (OFS667,
 * OFS668, OFS678). src/detect/foreign.c */
bool ofs_detect_foreign(const struct ofs_dir *dir, const char *rel,
    struct optimfs_error *err);
/* alone: only of a program none of whose files is read. */
bool ofs_detect_foreign_dir(const struct ofs_dir *dir,
    const struct ofs_names *names, bool alone, struct optimfs_error *err);
/* The same for dir, or for one of the first directories below it. */
bool ofs_detect_foreign_below(const struct ofs_dir *dir,
    const struct ofs_names *names, bool alone, struct optimfs_error *err);
/* Are there files of dir that each hold a piece of every tensor, in a way of
 * another program that is not read? Then it fails with its name (OFS641,
 * EOPNOTSUPP). */
int ofs_detect_pieces(const struct ofs_dir *dir, const struct ofs_names *names,
    struct optimfs_error *err);
/* In few words, for a file that is left out. */
const char *ofs_detect_foreign_words(const struct optimfs_error *why);

/* Reports that a directory is not a checkpoint, and names those in it. If there
 * is exactly one that is finished, or a file names the one that its trainer
 * would load (chosen): returns 0 with its name (malloc'ed) in *only. Otherwise
 * -1. */
int ofs_detect_parent(const struct ofs_dir *dir, const struct ofs_names *names,
    char **only, bool *chosen, struct optimfs_error *err);
/* If the first of parts was chosen because a file names it as the latest one, a
 * warning names the other checkpoints of dir. */
int ofs_detect_say_chosen(const struct ofs_dir *dir,
    const struct ofs_names *names, struct ofs_parts *parts,
    struct optimfs_error *err);

#endif
