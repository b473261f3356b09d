/* sample.h - a hand-made checkpoint with tensors and values of all kinds */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SAMPLE_H
#define SAMPLE_H

#include "optimfs/optimfs.h"

#include "handmade.h"

/*
 * model/w                  float32 (5,3)  rows 0-2 of rank 0, 3-4 of rank 1
 * model/t                  int16 (2,4)    columns 0-1 of rank 0, 2-3 of rank 1
 * model/conj               complex64 (2)  conjugated when read; in s.bin
 * model/swap               int32 (3)      big-endian in s.bin
 * model/empty              float32 (0,3)
 * model/rep                uint8 (4)      the same on ranks 0 and 1
 * model/odd                uint8 (4)      ranks 0 and 1 do not agree
 * model/bad                uint8 (4)      boxes overlap: EUCLEAN
 * optim/state/w/exp_avg    float32 (4)    half on rank 0, half in a lost file
 * optim/state/w/step       float32 ()     3.5
 * optim/param_groups/0/lr      an item: 0.001
 * optim/param_groups/0/params  an item: ["w", "t"]
 * extra/note               a value: "hi"
 * extra/epoch              a value: 3
 */
struct sample {
	struct handmade h;
	struct optimfs *fs;
	uint8_t w[60], t[16], conj[16], swap[12], rep[4], exp_avg[16];
};

/* Makes the checkpoint and opens it; options may be NULL. If opening fails, fs is
 * NULL, with err. */
void sample_init(struct sample *s, const struct optimfs_options *options,
    struct optimfs_error *err);
void sample_fini(struct sample *s);
/* The node at path; if there is none, the test ends. */
uint64_t sample_node(struct sample *s, const char *path);
/* The contents of the file at path, followed by NUL, malloc'ed; NULL with err if
 * it cannot be read. */
char *sample_read(struct sample *s, const char *path, size_t *len,
    struct optimfs_error *err);
/* The number after name in .optimfs/stats. */
uint64_t sample_stat(struct sample *s, const char *name);

#endif
