/* pickle_writer.h - pickles written opcode by opcode */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PICKLE_WRITER_H
#define PICKLE_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "pickle/pickle.h"

/* Each function appends to b, in protocol 4. Nothing is checked, so a test can
 * write pickles that Python would not. */
void pw_begin(struct ofs_buf *b);
void pw_end(struct ofs_buf *b);
void pw_op(struct ofs_buf *b, int op);
void pw_none(struct ofs_buf *b);
void pw_bool(struct ofs_buf *b, int v);
void pw_int(struct ofs_buf *b, int64_t v);
/* n bytes of a little-endian two's complement number, as LONG1. */
void pw_long(struct ofs_buf *b, const void *bytes, size_t n);
void pw_float(struct ofs_buf *b, double v);
void pw_str(struct ofs_buf *b, const char *s);
void pw_strn(struct ofs_buf *b, const void *s, size_t n);
void pw_global(struct ofs_buf *b, const char *module, const char *name);

/* The items come between _open and _close; for a dict, keys and values
 * alternate. */
void pw_tuple_open(struct ofs_buf *b);
void pw_tuple_close(struct ofs_buf *b);
void pw_list_open(struct ofs_buf *b);
void pw_list_close(struct ofs_buf *b);
void pw_dict_open(struct ofs_buf *b);
void pw_dict_close(struct ofs_buf *b);

/* An instance of module.name without arguments. The items of its state, a dict,
 * come between open and close. */
void pw_object_open(struct ofs_buf *b, const char *module, const char *name);
void pw_object_close(struct ofs_buf *b);
/* torch.Size of n numbers. */
void pw_size(struct ofs_buf *b, const int64_t *v, size_t n);

/* Parses a pickle of protocol 4 with this body; the test ends if it cannot. */
struct ofs_pickle *pw_parse(const char *body, size_t n);

#endif
