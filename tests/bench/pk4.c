/* pk4.c - a pickle of protocol 4 with memo and frames, as Python writes it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pk4.h"

#include <errno.h>
#include <string.h>

#include "le.h"
#include "sink.h"

#define FRAME_SIZE 65536
#define BATCH      1000

static void end_frame(struct pk4 *p)
{
	uint8_t head[9] = { 0x95 };

	for (int i = 0; i < 8; i++)
		head[i + 1] = (uint8_t)((uint64_t)p->frame.len >> 8 * i);
	if (p->frame.bad ||
	    fwrite(head, 1, sizeof(head), p->to) != sizeof(head) ||
	    fwrite(p->frame.data, 1, p->frame.len, p->to) != p->frame.len)
		die("%s: %s", p->path, strerror(errno));
	p->frame.len = 0;
}

/* Between two objects: where a frame may end. */
static void boundary(struct pk4 *p)
{
	if (p->frame.len >= FRAME_SIZE)
		end_frame(p);
}

void pk4_open(struct pk4 *p, const char *path)
{
	*p = (struct pk4){ .path = path, .to = fopen(path, "wbe") };
	if (p->to == NULL)
		die("%s: %s", path, strerror(errno));
	setvbuf(p->to, NULL, _IOFBF, 1 << 20);
	fwrite("\x80\4", 1, 2, p->to);
}

void pk4_close(struct pk4 *p)
{
	pk4_op(p, '.');
	end_frame(p);
	if (fclose(p->to) != 0)
		die("%s: %s", p->path, strerror(errno));
	ofs_buf_fini(&p->frame);
}

void pk4_op(struct pk4 *p, int op)
{
	ofs_buf_putc(&p->frame, op);
	boundary(p);
}

uint32_t pk4_op_memo(struct pk4 *p, int op)
{
	ofs_buf_putc(&p->frame, op);
	ofs_buf_putc(&p->frame, '\x94');
	boundary(p);
	return p->memo++;
}

uint32_t pk4_str(struct pk4 *p, const char *s)
{
	size_t n = strlen(s);

	if (n < 256) {
		ofs_buf_putc(&p->frame, '\x8c');
		put_le(&p->frame, n, 1);
	} else {
		ofs_buf_putc(&p->frame, 'X');
		put_le(&p->frame, n, 4);
	}
	ofs_buf_put(&p->frame, s, n);
	ofs_buf_putc(&p->frame, '\x94');
	boundary(p);
	return p->memo++;
}

void pk4_get(struct pk4 *p, uint32_t memo)
{
	ofs_buf_putc(&p->frame, memo < 256 ? 'h' : 'j');
	put_le(&p->frame, memo, memo < 256 ? 1 : 4);
	boundary(p);
}

static bool find(struct pk4 *p, const char *module, const char *name,
    uint32_t *memo)
{
	for (size_t i = 0; i < p->nknown; i++)
		if (p->known[i].module == module && p->known[i].name == name) {
			*memo = p->known[i].memo;
			return true;
		}
	return false;
}

static void learn(struct pk4 *p, const char *module, const char *name,
    uint32_t memo)
{
	if (p->nknown == PK4_NAMES)
		die("too many names");
	p->known[p->nknown].module = module;
	p->known[p->nknown].name = name;
	p->known[p->nknown++].memo = memo;
}

void pk4_known(struct pk4 *p, const char *s)
{
	uint32_t memo;

	if (find(p, NULL, s, &memo))
		pk4_get(p, memo);
	else
		learn(p, NULL, s, pk4_str(p, s));
}

void pk4_global(struct pk4 *p, const char *module, const char *name)
{
	uint32_t memo;

	if (find(p, module, name, &memo)) {
		pk4_get(p, memo);
		return;
	}
	pk4_known(p, module);
	pk4_str(p, name);
	learn(p, module, name, pk4_op_memo(p, '\x93'));
}

void pk4_int(struct pk4 *p, uint64_t v)
{
	put_int(&p->frame, v);
	boundary(p);
}

void pk4_tuple_open(struct pk4 *p, size_t n)
{
	if (n > 3)
		pk4_op(p, '(');
}

void pk4_tuple(struct pk4 *p, size_t n)
{
	if (n == 0)
		pk4_op(p, ')');
	else
		pk4_op_memo(p, n > 3 ? 't' : "\x85\x86\x87"[n - 1]);
}

void pk4_object(struct pk4 *p, const char *module, const char *cls)
{
	pk4_global(p, module, cls);
	pk4_op(p, ')');
	pk4_op_memo(p, '\x81');
	pk4_op_memo(p, '}');
	pk4_op(p, '(');
}

void pk4_object_end(struct pk4 *p)
{
	pk4_op(p, 'u');
	pk4_op(p, 'b');
}

struct pk4_batch pk4_list(struct pk4 *p, size_t n)
{
	pk4_op_memo(p, ']');
	return (struct pk4_batch){ n, 0, n == 1 ? 'a' : 'e', n != 1 };
}

struct pk4_batch pk4_dict(struct pk4 *p, size_t n)
{
	pk4_op_memo(p, '}');
	return (struct pk4_batch){ n, 0, n == 1 ? 's' : 'u', n != 1 };
}

void pk4_next(struct pk4 *p, struct pk4_batch *b)
{
	if (b->in == BATCH) {
		pk4_op(p, b->close);
		b->in = 0;
	}
	if (b->in++ == 0 && b->mark)
		pk4_op(p, '(');
	b->left--;
}

void pk4_end(struct pk4 *p, struct pk4_batch *b)
{
	if (b->left != 0)
		die("%s: a container lacks %zu items", p->path, b->left);
	if (b->in > 0)
		pk4_op(p, b->close);
}
