/* renew.h - all ranks go on with what a commit has made */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_RENEW_H
#define OFS_CLUSTER_RENEW_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "base/cursor.h"

struct ofs_manifest;

/* Ranks have agreed about the files that there are. When rank 0 has committed,
 * they do so again, led by rank 0, and by messages from rank to rank rather
 * than all at once, so that one which has died keeps nobody: each looks at what
 * it has (a share of its own, beside the one that is shown), all hear of all
 * lists, and who has a mount reads the index. When all have come so far, each
 * exchanges what it shows; when one has not, all drop what they began. This is
 * what is answered to RENEW:
 *
 *   ALERT    1 or 0 (1): files may be replaced from now on; or nothing was
 *   LOOK     nothing: an errand, that ends with the index read. The number of
 *            the share is that of the next generation
 *   HEAR     a round (1); answered with whether something is said in it (1),
 *            and how many bytes (8)
 *   HEAR_AT  a round (1), an offset (8); answered with bytes from there on
 *   TELL     a round (1), how many bytes all have said (8), an offset (8), some
 *            of them. What all have said: of each rank its length (8) and bytes
 *   POLL     answered with 1 (1) when the errand is over, or how it failed
 *   SHOW     an errand: show what was read
 *   DROP     why (string): show what was shown before
 *
 * The share that was shown before is still there for others to ask about, until
 * the next time. */
enum ofs_renew_op {
	OFS_RENEW_ALERT,
	OFS_RENEW_LOOK,
	OFS_RENEW_HEAR,
	OFS_RENEW_HEAR_AT,
	OFS_RENEW_TELL,
	OFS_RENEW_POLL,
	OFS_RENEW_SHOW,
	OFS_RENEW_DROP,
};
struct ofs_renewal;

/* On every rank, for the share that is written. */
struct ofs_renewal *ofs_renewal_new(struct optimfs_group *w,
    struct ofs_manifest *share, struct optimfs_error *err);
/* Stopped, and nobody asks any more; before the shares go. */
void ofs_renewal_free(struct ofs_renewal *r);
/* Behind the number of the share. */
int ofs_renewal_answer(struct ofs_renewal *r, uint32_t number,
    struct ofs_cursor *c, uint8_t *out, uint64_t want,
    struct optimfs_error *err);

/* A rank that does not write opens fs between begin and follow, which is then
 * kept up to date until leave; fs is NULL where it could not be opened. */
void ofs_renewal_begin(struct ofs_renewal *r);
void ofs_renewal_follow(struct ofs_renewal *r, struct optimfs *fs);
void ofs_renewal_leave(struct ofs_renewal *r);
/* What such a rank shows, for .optimfs/control: a line or two. */
void ofs_renewal_said(struct ofs_renewal *r, struct ofs_buf *out);
/* The share that is opened now. */
struct ofs_manifest *ofs_renewal_share(const struct ofs_renewal *r);
/* No commit is followed any more, and none is being. */
void ofs_renewal_stop(struct ofs_renewal *r);
/* What fs is read from: the offered path. */
const char *ofs_renewal_path(const struct ofs_renewal *r);
struct optimfs_group *ofs_renewal_world(const struct ofs_renewal *r);

/* Of rank 0. Tell all that files may be replaced, or that none was. */
void ofs_renew_alert(struct ofs_renewal *r, bool on);
/* After a commit, with fs' gate held: let all ranks agree, and show it. fs is
 * exchanged too, if it is read from the share (reopen), or else it has been.
 * -1: nobody shows it. */
int ofs_renew(struct ofs_renewal *r, struct optimfs *fs, bool reopen,
    struct optimfs_error *err);

#endif
