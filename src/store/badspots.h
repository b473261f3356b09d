/* badspots.h - places where a disk failed recently */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_BADSPOTS_H
#define OFS_STORE_BADSPOTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define OFS_BADSPOTS     64
#define OFS_BADSPOT_PAGE 4096
#define OFS_BADSPOT_NS   (5 * INT64_C(1000000000))

/* A failing disk may take seconds for each bad sector. A page that failed is
 * therefore not read again for five seconds, so that a scan of a damaged file
 * ends. Thread-safe. */
struct ofs_badspots {
	pthread_mutex_t lock;
	_Atomic unsigned n; /* number ever added; the last 64 are kept */
	struct {
		uint32_t object;
		uint64_t page; /* offset of the bad page */
		int64_t until; /* CLOCK_MONOTONIC */
	} spot[OFS_BADSPOTS];
};

void ofs_badspots_init(struct ofs_badspots *b);
void ofs_badspots_fini(struct ofs_badspots *b);
void ofs_badspots_add(struct ofs_badspots *b, uint32_t object, uint64_t off);
/* Does [off, off + len) of object touch a bad page? *at gets the offset of that
 * page. */
bool ofs_badspots_hit(struct ofs_badspots *b, uint32_t object, uint64_t off,
    uint64_t len, uint64_t *at);

#endif
