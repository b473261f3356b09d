/* natural.h - the order in which people expect names */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NATURAL_H
#define OFS_NATURAL_H

/* Compares two paths: numbers by value ("layers.2" before "layers.10"), a
 * directory right before what is in it. 0 for equal strings only. */
int ofs_natural(const char *a, const char *b);

#endif
