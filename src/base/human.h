/* human.h - numbers in a form for people */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_HUMAN_H
#define OFS_HUMAN_H

#include <stdint.h>

#define OFS_HUMAN_SIZE 24

/* Print "576 B", "9.2 kB" or "782 GB" into text, which is returned. */
const char *ofs_human_bytes(uint64_t n, char text[OFS_HUMAN_SIZE]);
/* As above: "723", "8.03 billion". */
const char *ofs_human_count(uint64_t n, char text[OFS_HUMAN_SIZE]);

#endif
