/* encode.c - write compressed items */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/encode.h"

#include <errno.h>

#ifdef HAVE_ZSTD
# include <stdlib.h>
# include <zstd.h>

# include "base/memory.h"

int ofs_encoder_init(struct ofs_encoder *e, int level,
    struct optimfs_error *err)
{
	e->ctx = ZSTD_createCCtx();
	e->room = ZSTD_CStreamOutSize();
	e->out = malloc(e->room);
	if (e->ctx != NULL && e->out != NULL &&
	    !ZSTD_isError(ZSTD_CCtx_setParameter(e->ctx,
		ZSTD_c_compressionLevel, level)) &&
	    !ZSTD_isError(ZSTD_CCtx_setParameter(e->ctx, ZSTD_c_contentSizeFlag,
		0)))
		return 0;
	return ofs_no_memory(err);
}

void ofs_encoder_fini(struct ofs_encoder *e)
{
	ZSTD_freeCCtx(e->ctx);
	free(e->out);
}

int ofs_encoder_size(struct ofs_encoder *e, uint64_t n,
    struct optimfs_error *err)
{
	if (!ZSTD_isError(ZSTD_CCtx_setParameter(e->ctx, ZSTD_c_contentSizeFlag,
		1)) &&
	    !ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(e->ctx, n)))
		return 0;
	return ofs_no_memory(err);
}

int ofs_encode(struct ofs_encoder *e, const void *p, size_t n, bool last,
    struct optimfs_error *err)
{
	ZSTD_inBuffer in = { p, n, 0 };
	size_t left;

	do {
		ZSTD_outBuffer out = { e->out, e->room, 0 };

		left = ZSTD_compressStream2(e->ctx, &out, &in,
		    last ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			return optimfs_fail(err, ENOMEM, "zstd: %s",
			    ZSTD_getErrorName(left));
		if (e->write(e->fd, e->out, out.pos, e->at, err) == -1)
			return -1;
		e->at += out.pos;
	} while (last ? left > 0 : in.pos < in.size);
	return 0;
}

#else

static int no_zstd(struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS711 this build of optimfs has no zstd");
}

int ofs_encoder_init(struct ofs_encoder *e, int level,
    struct optimfs_error *err)
{
	(void)e, (void)level;
	return no_zstd(err);
}

void ofs_encoder_fini(struct ofs_encoder *e)
{
	(void)e;
}

int ofs_encoder_size(struct ofs_encoder *e, uint64_t n,
    struct optimfs_error *err)
{
	(void)e, (void)n;
	return no_zstd(err);
}

int ofs_encode(struct ofs_encoder *e, const void *p, size_t n, bool last,
    struct optimfs_error *err)
{
	(void)e, (void)p, (void)n, (void)last;
	return no_zstd(err);
}

#endif
