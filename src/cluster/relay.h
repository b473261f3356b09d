/* relay.h - bytes that many ranks read while they open a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_RELAY_H
#define OFS_CLUSTER_RELAY_H

#include <stdint.h>

#include "optimfs/error.h"

#include "cluster/group.h"

struct ofs_manifest;

/* All ranks that open a checkpoint read its index, which may be gigabytes, and
 * often one rank has it. So they form a tree for each file, with its owner on top
 * (or the next rank that opens): a binary tree of machines, of which one rank
 * stands for all, and below it a binary tree of the ranks of its machine. Each
 * asks the one above for pieces and keeps them until those below have asked for
 * them: a piece reaches each machine once, and each sends it to two others. A
 * piece that somebody above is still waiting for comes as the result of a call, so
 * the time for an answer does not grow with the tree. What cannot be had in this
 * way, and all that is read later, is read from the owner. */
struct ofs_relay;

struct ofs_relay *ofs_relay_new(struct optimfs_error *err);
void ofs_relay_free(struct ofs_relay *r);
/* To be called when the ranks have agreed on the files of s, or have failed to:
 * then requests of ranks below are answered. */
void ofs_relay_agreed(struct ofs_manifest *s, int ret);
/* Reads a range of a file that is not on this rank. Small ones, and what cannot be
 * had from the tree, come from the owner. If a rank does not answer while
 * checkpoints are opened, it is lost: ofs_group_set_lost. */
int ofs_relay_read(struct ofs_manifest *s, uint32_t file, uint8_t *buf,
    uint64_t n, uint64_t off, struct optimfs_error *err);
/* All ranks have opened their checkpoints: keeps nothing any longer. */
void ofs_relay_end(struct optimfs_group *w);

/* For group.c: the handler of RELAY. */
ofs_handler_fn ofs_relay_answer;

#endif
