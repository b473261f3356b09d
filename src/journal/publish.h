/* publish.h - new files that take the place of old ones, all of them or none */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_PUBLISH_H
#define OFS_JOURNAL_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* A generation is prepared in two directories of the staging directory beside
 * the checkpoint (docs/architecture.md, "A commit"):
 *
 *     new/      the files that the checkpoint has not, or not like that
 *     gen/      a complete directory, where it has to take the old one's place
 *     publish   what is about to be done: a record, synced before anything is
 *
 * and becomes the checkpoint by one rename, whose kind depends on how many
 * files it replaces: none or one (an index, a single file): new names are moved
 * in first and that one is renamed over the old; several: the directories are
 * exchanged. Until then nothing in the checkpoint is touched. */
struct ofs_publish;

/* source is the checkpoint's directory dir, for messages and to find its
 * parent; stage the staging directory beside it. Both are borrowed. What an
 * earlier commit left in new/ and gen/ is removed; call ofs_publish_recover
 * before. A checkpoint that is a single file has its directory as dir. */
struct ofs_publish *ofs_publish_begin(const char *source, int dir, int stage,
    struct optimfs_error *err);
/* A new file called rel (beneath the checkpoint, ofs_path_stays), open for
 * reading and writing. One that is there is replaced by it, and gives its mode,
 * owner and attributes; else those of like, which is there, do. fd is p's. */
int ofs_publish_file(struct ofs_publish *p, const char *rel, const char *like,
    int *fd, struct optimfs_error *err);
/* The same with a file that is there: it is moved from directory from of the
 * same file system, with its bytes. */
int ofs_publish_take(struct ofs_publish *p, int from, const char *rel,
    const char *like, struct optimfs_error *err);
/* The same with another name for the file from has, which keeps its own; last:
 * where several directories are published, the others have theirs before. */
int ofs_publish_link(struct ofs_publish *p, int from, const char *rel,
    bool last, struct optimfs_error *err);
/* Remove rel once the new generation is safe: nothing in it needs that file. */
int ofs_publish_remove(struct ofs_publish *p, const char *rel,
    struct optimfs_error *err);
/* Names come and go with what takes their places, all at once: the directories
 * are exchanged, however few files are replaced. Not where
 * several directories are published. */
void ofs_publish_at_once(struct ofs_publish *p);
/* Of such a generation, the files that are removed: an array, *n of them. NULL
 * when there are none, or no memory. Free it before p. */
const char **ofs_publish_gone(const struct ofs_publish *p, size_t *n);
/* new/: the same names as in the checkpoint. */
int ofs_publish_new(const struct ofs_publish *p);
/* Has anything been added? */
bool ofs_publish_any(const struct ofs_publish *p);

/* Sync what is new, put it in place, sync that. -1: nothing has
 * changed, though new files may stand beside the old ones; they are removed
 * when p is freed, or by ofs_publish_recover. 1: published, but the last sync
 * failed (err, OFS803): nothing superseded was removed. */
int ofs_publish_commit(struct ofs_publish *p, struct optimfs_error *err);
void ofs_publish_free(struct ofs_publish *p);

/* The two halves of ofs_publish_commit, where several directories are to change
 * or none (cluster/commit/coordinator.h). Behind the first, all that can fail has been tried,
 * and the record has id: whoever recovers must know what was decided. */
#define OFS_PUBLISH_ID 33 /* 32 letters and NUL */
int ofs_publish_prepare(struct ofs_publish *p, const char *id,
    struct optimfs_error *err);
int ofs_publish_apply(struct ofs_publish *p, struct optimfs_error *err);
/* Free p, and leave what it prepared to ofs_publish_settle. */
void ofs_publish_leave(struct ofs_publish *p);

/* After a commit that did not come to its end: finish it if it was published,
 * or else remove what it left. 1: it was published, what was staged for it is
 * done; 0: it was not, or there was none. EBUSY (OFS840): it was one of several
 * directories. */
int ofs_publish_recover(const char *source, int dir, int stage,
    struct optimfs_error *err);
/* The same for one of several directories: do what is left to be done if id was
 * decided, take back what was done for any other. 1: there was such a record,
 * which stays until ofs_publish_forget; 0: there was none, or it is gone. */
int ofs_publish_settle(const char *source, int dir, int stage, const char *id,
    struct optimfs_error *err);
/* The id that a record has, or ""; -1: it cannot be read. */
int ofs_publish_pending(int stage, char id[OFS_PUBLISH_ID],
    struct optimfs_error *err);
/* Forget that it was published, once nobody needs to know (the journal was
 * reset). */
void ofs_publish_forget(int stage);

/* Remove what a commit has left of its preparations. */
void ofs_publish_sweep(int stage);

/* Remove what is called name in directory at, and all that is in it, as far as
 * it can be. */
void ofs_publish_clear(int at, const char *name);

#endif
