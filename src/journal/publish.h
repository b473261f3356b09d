/* publish.h - replace files of a checkpoint atomically */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_PUBLISH_H
#define OFS_JOURNAL_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* A generation is prepared in the staging directory beside the checkpoint
 * (docs/architecture.md, "A commit"):
 *
 *     new/      new and changed files
 *     gen/      a complete directory, if it has to replace the old one
 *     publish   the plan: a record, synced before anything is changed
 *
 *     finished/ links to large files of new/ whose bytes are synced
 *     old/      the old directory, while it is removed
 *     out.N     a file that is looked at before it is removed
 *
 * It becomes the checkpoint by one rename. If it replaces at most one file (an
 * index, a single file), new names are moved in first and that file is exchanged
 * for the old one. If it replaces several, the directories are exchanged.
 * Until then nothing in the checkpoint is touched. What other programs save into
 * the checkpoint meanwhile is there afterwards (publish_look.c).
 *
 * If the process is killed before that, finished/ stays until the stage is closed
 * or dropped: the next commit takes from it what it would write again. */
struct ofs_publish;

/* source is the path of the checkpoint's directory dir, for messages and to
 * find its parent; stage is the staging directory beside it. Both descriptors
 * are borrowed. Removes the remains of an earlier commit in new/ and gen/, but not
 * what it has finished; call ofs_publish_recover first. For a checkpoint that is a
 * single file, dir is its directory. */
struct ofs_publish *ofs_publish_begin(const char *source, int dir, int stage,
    struct optimfs_error *err);
/* A new file called rel (below the checkpoint, ofs_path_stays), open for
 * reading and writing. It replaces a file of that name and inherits its mode,
 * owner and attributes; without one it inherits those of the existing file
 * like. fd belongs to p. */
int ofs_publish_file(struct ofs_publish *p, const char *rel, const char *like,
    int *fd, struct optimfs_error *err);
/* As above, with an existing file: moves it, with its contents, from directory
 * from of the same file system. */
int ofs_publish_take(struct ofs_publish *p, int from, const char *rel,
    const char *like, struct optimfs_error *err);
/* As above, with a hard link to the file in from. last: with several
 * directories, the others get theirs first. */
int ofs_publish_link(struct ofs_publish *p, int from, const char *rel,
    bool last, struct optimfs_error *err);
/* The new file rel is complete. Keeps it for a later commit if this one is killed:
 * key (OFS_PUBLISH_KEY) says which bytes it has, as a file name. Syncs its bytes;
 * if anything fails, it is not kept. Not with several directories. May be called by
 * several threads. */
#define OFS_PUBLISH_KEY 33 /* 32 letters and NUL */
void ofs_publish_finished(const struct ofs_publish *p, const char *rel,
    const char *key);
/* As ofs_publish_file, if a commit that was killed has finished the file with this
 * key: 1. 0: there is none. */
int ofs_publish_again(struct ofs_publish *p, const char *rel, const char *like,
    const char *key, struct optimfs_error *err);
/* The bytes of what commits that were killed have finished; after drop_unused, of
 * what ofs_publish_again has taken: the others are removed. */
uint64_t ofs_publish_kept(const struct ofs_publish *p, bool drop_unused);
/* Removes rel once the new generation, which does not need it, is durable. */
int ofs_publish_remove(struct ofs_publish *p, const char *rel,
    struct optimfs_error *err);
/* Makes all changes visible at once: exchanges the directories, however few
 * files are replaced. Not with several directories. */
void ofs_publish_at_once(struct ofs_publish *p);
/* Can this file system put in place what is planned so far? EOPNOTSUPP (OFS824):
 * it cannot. To ask before the new files are written. */
int ofs_publish_possible(struct ofs_publish *p, struct optimfs_error *err);
/* The files that such a generation removes: an array of *n names; NULL if there
 * are none, or no memory. Free it before p. */
const char **ofs_publish_gone(const struct ofs_publish *p, size_t *n);
/* The directory new/, with the same names as in the checkpoint. */
int ofs_publish_new(const struct ofs_publish *p);
/* Calls each for every file of the checkpoint that is replaced or removed. Stops
 * when each fails, with its result. */
int ofs_publish_each_old(const struct ofs_publish *p,
    int (*each)(void *ctx, const char *rel, struct optimfs_error *err),
    void *ctx, struct optimfs_error *err);
/* Has anything been added? */
bool ofs_publish_any(const struct ofs_publish *p);

/* Syncs the new files, moves them in place, and syncs the directories. -1:
 * nothing has changed, although new files may lie beside the old ones; they are
 * removed when p is freed, or by ofs_publish_recover. ESTALE (OFS805): another
 * program has saved one of the files that change. 1: published, but the last
 * sync failed (err, OFS803): nothing old was removed. */
int ofs_publish_commit(struct ofs_publish *p, struct optimfs_error *err);
void ofs_publish_free(struct ofs_publish *p);

/* The two halves of ofs_publish_commit, for several directories that change
 * together (cluster/commit/coordinator.h). After the first, everything that can
 * fail was tried, and the record contains id: recovery depends on whether that
 * id was decided. */
#define OFS_PUBLISH_ID 33 /* 32 letters and NUL */
int ofs_publish_prepare(struct ofs_publish *p, const char *id,
    struct optimfs_error *err);
int ofs_publish_apply(struct ofs_publish *p, struct optimfs_error *err);
/* Frees p and leaves its preparations to ofs_publish_settle. */
void ofs_publish_leave(struct ofs_publish *p);

/* Recovers from an interrupted commit: finishes it if it was published,
 * otherwise removes its files. 1: it was published, and the changes staged for
 * it are done; 0: it was not, or there was none. EBUSY (OFS840): it was a
 * commit to several directories. */
int ofs_publish_recover(const char *source, int dir, int stage,
    struct optimfs_error *err);
/* As above, for one of several directories: finishes the commit if id was
 * decided, otherwise reverts it. 1: there was such a record, which stays until
 * ofs_publish_forget; 0: there was none, or it was removed. */
int ofs_publish_settle(const char *source, int dir, int stage, const char *id,
    struct optimfs_error *err);
/* The id in the record, or ""; -1: it cannot be read. */
int ofs_publish_pending(int stage, char id[OFS_PUBLISH_ID],
    struct optimfs_error *err);
/* Removes the record of a published commit, once the journal was reset, and
 * makes sure that it does not come back. -1: it stays (err, OFS809). */
int ofs_publish_forget(int stage, struct optimfs_error *err);

/* Removes the preparations of a commit, but not what it has finished. */
void ofs_publish_sweep(int stage);
void ofs_publish_drop_finished(int stage);

/* Removes name in directory at with its contents, as far as possible. */
void ofs_publish_clear(int at, const char *name);
/* Has a program the file rel in directory at open? False where that is not
 * known: on NFS and CIFS, or for files of others. */
bool ofs_publish_opened(int at, const char *rel);

#endif
