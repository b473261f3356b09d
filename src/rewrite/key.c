/* key.c - what a new file of a commit is made of, as one hash */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/memory.h"
#include "journal/lock.h"
#include "journal/stage.h"
#include "rewrite/rewrite_impl.h"

/* A commit of a large checkpoint takes long, and may be killed. What it had
 * finished is good for the next one if that would write the same bytes. They
 * follow from
 *
 *     the files of the checkpoint: names, sizes, times, inodes
 *     the staged changes: the texts, and which bytes of which tensors
 *     the files with the staged bytes: sizes, times, inodes
 *     the composition of the new file
 *     this version of the program
 *
 * and all that is in the key. After a reboot, staged bytes may be older than their
 * times say: the boot is in it, too. */

static void put(XXH3_state_t *h, const void *p, size_t n)
{
	XXH3_128bits_update(h, p, n);
}

static void put_number(XXH3_state_t *h, uint64_t v)
{
	put(h, &v, sizeof(v));
}

static void put_text(XXH3_state_t *h, const char *s)
{
	put(h, s, strlen(s) + 1);
}

static void put_change(XXH3_state_t *h, const struct ofs_change *ch)
{
	put_number(h, ch->kind);
	put_text(h, ch->path);
	put_number(h, (uint64_t)ch->from << 32 | ch->entry);
	put_number(h, (uint64_t)ch->dtype << 8 | ch->ndim);
	if (ch->ndim > 0 && ch->shape != NULL)
		put(h, ch->shape, ch->ndim * sizeof(*ch->shape));
	put_number(h, ch->size);
	put_number(h, ch->written.n);
	for (size_t i = 0; i < ch->written.n; i++) {
		put_number(h, ch->written.v[i].off);
		put_number(h, ch->written.v[i].end);
	}
	put_number(h, ch->text == NULL ? UINT64_MAX : ch->ntext);
	if (ch->text != NULL)
		put(h, ch->text, ch->ntext);
}

static uint64_t hash_staged(const char *name, const struct stat *st)
{
	const uint64_t v[] = { (uint64_t)st->st_size, st->st_ino,
		(uint64_t)ofs_time_ns(&st->st_mtim),
		(uint64_t)ofs_time_ns(&st->st_ctim) };

	return XXH3_64bits_withSeed(v, sizeof(v),
	    XXH3_64bits(name, strlen(name)));
}

/* The files with staged bytes, which a directory lists in any order. */
static int put_staged(XXH3_state_t *h, const struct ofs_stage *stage,
    struct optimfs_error *err)
{
	int fd = openat(ofs_stage_dir(stage), "data",
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd == -1 ? NULL : fdopendir(fd);
	uint64_t sum = 0, n = 0;
	struct dirent *d;
	struct stat st;

	if (dir == NULL) {
		optimfs_fail(err, errno, "OFS809 %s/data: %m",
		    ofs_stage_path(stage));
		if (fd != -1)
			close(fd);
		return -1;
	}
	while ((d = readdir(dir)) != NULL)
		if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode)) {
			sum += hash_staged(d->d_name, &st);
			n++;
		}
	closedir(dir);
	put_number(h, sum);
	put_number(h, n);
	return 0;
}

int ofs_commit_inputs(const struct ofs_commit *c, uint64_t inputs[2],
    struct optimfs_error *err)
{
	struct ofs_identity source = ofs_catalog_identity(c->cat);
	XXH3_state_t *h = XXH3_createState();
	char boot[OFS_BOOT_ID];
	XXH128_hash_t hash;
	int ret;

	if (h == NULL)
		return ofs_no_memory(err);
	XXH3_128bits_reset(h);
	ofs_boot_id(boot);
	put_text(h, boot);
	put_text(h, optimfs_version());
	put(h, source.hash, sizeof(source.hash));
	for (size_t i = 0; i < c->changes->n; i++)
		put_change(h, &c->changes->v[i]);
	ret = put_staged(h, ofs_overlay_stage(c->job->overlay), err);
	hash = XXH3_128bits_digest(h);
	inputs[0] = hash.low64;
	inputs[1] = hash.high64;
	XXH3_freeState(h);
	return ret;
}

static void put_piece(XXH3_state_t *h, const struct ofs_catalog *cat,
    const struct ofs_piece *p)
{
	put_number(h, p->kind);
	put_number(h, p->len);
	switch (p->kind) {
	case OFS_PIECE_BYTES:
		put(h, p->bytes, p->len);
		break;
	case OFS_PIECE_BOX:
		put_number(h, (uint64_t)p->dtype << 32 | p->tensor);
		put_number(h, p->first);
		break;
	case OFS_PIECE_CRC:
		put_number(h, p->crc.from);
		put_number(h, p->crc.n);
		break;
	case OFS_PIECE_STORED:
		put_text(h, cat->objects[p->stored.at->object].path);
		put_number(h, p->stored.at->off);
		put_number(h, p->stored.at->len);
		put_number(h, p->stored.at->codec);
		put_number(h, p->stored.from);
		break;
	}
}

int ofs_commit_key(const struct ofs_commit_file *f, const uint64_t inputs[2],
    char key[OFS_PUBLISH_KEY], struct optimfs_error *err)
{
	XXH3_state_t *h = XXH3_createState();
	XXH128_hash_t hash;

	if (h == NULL)
		return ofs_no_memory(err);
	XXH3_128bits_reset(h);
	put(h, inputs, 2 * sizeof(*inputs));
	put_text(h, f->rel);
	put_text(h, f->like == NULL ? "" : f->like);
	for (size_t i = 0; i < f->comp.n; i++)
		put_piece(h, f->commit->cat, &f->comp.piece[i]);
	hash = XXH3_128bits_digest(h);
	XXH3_freeState(h);
	snprintf(key, OFS_PUBLISH_KEY, "%016" PRIx64 "%016" PRIx64, hash.high64,
	    hash.low64);
	return 0;
}
