/* pins.h - objects whose bytes can be read while they are pinned */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_PINS_H
#define OFS_STORE_PINS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "store/gather.h"
#include "store/transport.h"

/* Where the objects of a catalog are: in files of this machine (files.h), on a
 * server (http/transport.c). Thread-safe. */
struct ofs_pins_ops {
	/* cat, counters and ctx, which is known to the instance, must outlive
	 * it. */
	void *(*new)(void *ctx, const struct ofs_catalog *cat,
	    struct ofs_counters *counters, struct optimfs_error *err);
	void (*free)(void *files);
	/* Pins an object until put. A thread may pin one at a time: when all
	 * descriptors are in use, get waits for another thread's put. EIO: it
	 * is missing (OFS140) or was removed (OFS754); ESTALE (OFS751): it is
	 * not the mounted one; EACCES (OFS756). */
	void *(*get)(void *files, uint32_t object, struct optimfs_error *err);
	void (*put)(void *files, void *file);
	/* A pinned object as a source. EIO when it ends early (OFS603) or cannot
	 * be read (OFS755; that page is then not read again for some seconds),
	 * ESTALE when it was truncated. */
	struct ofs_source (*source)(void *files, void *file);
	/* Is it still the mounted one? Called after a read, to confirm that the
	 * bytes belong to it. ESTALE (OFS751). */
	int (*check)(void *files, void *file, struct optimfs_error *err);
	/* A hint that these bytes will be read soon. */
	void (*willneed)(void *file, uint64_t off, uint64_t len);
	/* Are len bytes from off on, inside a pinned object, in a hole of it?
	 * false: it is not known. */
	bool (*hole)(void *files, void *file, uint64_t off, uint64_t len);
};

#endif
