/* update_recompress.c - changed items, encoded again */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "format/dcp/update.h"

#ifdef HAVE_ZSTD
# include <zstd.h>

# include "base/copy.h"
# include "base/io.h"

# define PIECE (1u << 20)

/* Encode one piece of input and append it to the output. */
static int encode_piece(ZSTD_CCtx *z, ZSTD_inBuffer *in, bool last,
    uint8_t *buf, size_t size, int out, uint64_t *at, struct optimfs_error *err)
{
	size_t left;

	do {
		ZSTD_outBuffer o = { buf, size, 0 };

		left = ZSTD_compressStream2(z, &o, in,
		    last ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			return optimfs_fail(err, ENOMEM, "zstd: %s",
			    ZSTD_getErrorName(left));
		if (ofs_write_all(out, buf, o.pos, *at, err) == -1)
			return -1;
		*at += o.pos;
	} while (last ? left > 0 : in->pos < in->size);
	return 0;
}

int ofs_dcp_commit_encode(int in, uint64_t size, int out, uint64_t off,
    uint64_t *len, struct optimfs_error *err)
{
	ZSTD_CCtx *z = ZSTD_createCCtx();
	size_t room = ZSTD_CStreamOutSize();
	uint8_t *piece = malloc(PIECE), *buf = malloc(room);
	uint64_t at = off, done = 0;
	int ret = 0;

	if (z == NULL || piece == NULL || buf == NULL)
		ret = ofs_no_memory(err);
	do {
		uint64_t n = size - done < PIECE ? size - done : PIECE;
		ZSTD_inBuffer from = { piece, n, 0 };

		if (ret == 0)
			ret = ofs_pread_all(in, piece, n, done, err);
		done += n;
		if (ret == 0)
			ret = encode_piece(z, &from, done == size, buf, room,
			    out, &at, err);
	} while (ret == 0 && done < size);
	ZSTD_freeCCtx(z);
	free(piece);
	free(buf);
	*len = at - off;
	return ret;
}

#else

int ofs_dcp_commit_encode(int in, uint64_t size, int out, uint64_t off,
    uint64_t *len, struct optimfs_error *err)
{
	(void)in;
	(void)size;
	(void)out;
	(void)off;
	*len = 0;
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS711 this build of optimfs has no zstd");
}

#endif
