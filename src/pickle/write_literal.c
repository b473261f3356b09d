/* write_literal.c - Python literals as pickles */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "pickle/write.h"

/* A container begins with a MARK, although Python writes none for few items.
 * The number of items is known only at its end, where the MARK is removed
 * again. */

struct scan {
	struct ofs_pkw *w;
	const char *p; /* the rest of the text */
	bool named;    /* the last token was a global */
	va_list ap;
};

static void begin_batch(struct ofs_pkw *w, struct ofs_pkw_open *o)
{
	o->mark = w->out->len;
	ofs_pkw_op(w, OFS_PKW_MARK);
	o->item = w->out->len;
}

static void enter(struct ofs_pkw *w, char kind, bool whole)
{
	struct ofs_pkw_open *o;

	assert(w->nopen < OFS_PKW_OPEN);
	o = &w->open[w->nopen++];
	*o = (struct ofs_pkw_open){ .kind = kind, .whole = whole };
	if (kind == '<')
		o->item = w->out->len;
	else
		begin_batch(w, o);
}

static void erase_mark(struct ofs_pkw *w, const struct ofs_pkw_open *o)
{
	struct ofs_buf *b = w->out;

	if (b->bad)
		return;
	memmove(b->data + o->mark, b->data + o->mark + 1, b->len - o->mark - 1);
	b->len--;
}

static enum ofs_pkw_op add_op(const struct ofs_pkw_open *o, bool one)
{
	if (o->kind == '[')
		return one ? OFS_PKW_APPEND : OFS_PKW_APPENDS;
	return one ? OFS_PKW_SETITEM : OFS_PKW_SETITEMS;
}

/* Count what was written since the last comma, if anything, as an item. */
static void end_item(struct ofs_pkw *w, struct ofs_pkw_open *o)
{
	if (w->out->len != o->item)
		o->n++;
	o->item = w->out->len;
}

static void comma(struct ofs_pkw *w)
{
	struct ofs_pkw_open *o;

	if (w->nopen == 0)
		return;
	o = &w->open[w->nopen - 1];
	end_item(w, o);
	if ((o->kind == '[' || o->kind == '{') && !o->whole && o->n > 0 &&
	    o->n % OFS_PKW_BATCH == 0) {
		ofs_pkw_op(w, add_op(o, false));
		begin_batch(w, o);
	}
}

static void close_items(struct ofs_pkw *w, const struct ofs_pkw_open *o)
{
	bool empty = w->out->len == o->mark + 1;

	if (o->whole || (o->n > 1 && !empty)) {
		ofs_pkw_op(w, add_op(o, false));
		return;
	}
	erase_mark(w, o);
	if (o->n == 1)
		ofs_pkw_op(w, add_op(o, true));
}

/* Close a tuple, or the arguments of a call. */
static void close_tuple(struct ofs_pkw *w, const struct ofs_pkw_open *o)
{
	if (o->n <= 3)
		erase_mark(w, o);
	ofs_pkw_tuple_close(w, o->n);
	if (o->kind == 'R')
		ofs_pkw_op_put(w, OFS_PKW_REDUCE);
}

static void leave(struct ofs_pkw *w)
{
	struct ofs_pkw_open *o = &w->open[--w->nopen];

	end_item(w, o);
	if (o->kind == '[' || o->kind == '{')
		close_items(w, o);
	else if (o->kind != '<')
		close_tuple(w, o);
	else if (o->n > 0)
		ofs_pkw_op(w, OFS_PKW_BUILD);
}

/* Write 'text' or '%s'. */
static void quoted(struct scan *s)
{
	const char *end = strchr(s->p, '\'');
	const char *text = s->p;

	assert(end != NULL);
	if (end == text + 2 && memcmp(text, "%s", 2) == 0)
		ofs_pkw_known(s->w, va_arg(s->ap, const char *));
	else
		ofs_pkw_known_text(s->w, text, (size_t)(end - text));
	s->p = end + 1;
}

static void word(struct ofs_pkw *w, char first)
{
	assert(first == 'N' || first == 'T' || first == 'F');
	ofs_pkw_op(w,
	    first == 'N'       ? OFS_PKW_NONE
		: first == 'T' ? OFS_PKW_TRUE
			       : OFS_PKW_FALSE);
}

/* Write None, True, False or module.name, which may be module.%s. */
static void name(struct scan *s)
{
	const char *p = s->p, *dot;
	struct ofs_str cls;

	s->p += strcspn(p, " ,:<>(){}[]%");
	dot = memrchr(p, '.', (size_t)(s->p - p));
	if (dot == NULL) {
		word(s->w, *p);
		return;
	}
	cls = (struct ofs_str){ dot + 1, (uint32_t)(s->p - dot - 1) };
	if (cls.len == 0) {
		cls.p = va_arg(s->ap, const char *);
		cls.len = (uint32_t)strlen(cls.p);
		s->p += 2; /* %s */
	}
	ofs_pkw_global_text(s->w, (struct ofs_str){ p, (uint32_t)(dot - p) },
	    cls);
	s->named = true;
}

static void number(struct scan *s)
{
	char *end;

	ofs_pkw_int(s->w, strtoll(s->p, &end, 10));
	s->p = end;
}

static void string(struct scan *s, bool sized)
{
	/* the length, an int as printf wants it */
	uint32_t n = sized ? (uint32_t)va_arg(s->ap, int) : 0;
	const char *p = va_arg(s->ap, const char *);

	ofs_pkw_str(s->w, p, sized ? n : strlen(p));
}

/* Write the argument of a % conversion. */
static void hole(struct scan *s)
{
	int longs = 0;

	for (; *s->p == 'l'; s->p++)
		longs++;
	switch (*s->p++) {
	case 'd':
		ofs_pkw_int(s->w,
		    longs == 0       ? va_arg(s->ap, int)
			: longs == 1 ? va_arg(s->ap, long)
				     : va_arg(s->ap, long long));
		break;
	case 'u':
		ofs_pkw_int(s->w,
		    longs == 0       ? (int64_t)va_arg(s->ap, unsigned)
			: longs == 1 ? (int64_t)va_arg(s->ap, unsigned long)
				     : va_arg(s->ap, long long));
		break;
	case 'f':
		ofs_pkw_float(s->w, va_arg(s->ap, double));
		break;
	case '.':
		s->p += 2; /* *s */
		string(s, true);
		break;
	case 's':
		string(s, false);
		break;
	case 'n':
		*va_arg(s->ap, int *) = (int)s->w->memo - 1;
		break;
	default:
		assert(false);
	}
}

/* The length of the call that p begins with. */
static size_t call_length(const char *p)
{
	const char *q = p;
	int depth = 0;

	do {
		q += strcspn(q, "()");
		depth += *q == '(' ? 1 : -1;
	} while (*q++ != '\0' && depth > 0);
	return (size_t)(q - p);
}

static void one(struct scan *s);

/* $call: write it the first time, then get it from the memo. */
static void shared(struct scan *s)
{
	size_t n = call_length(s->p);
	const char *text = s->p, *end = text + n;

	if (ofs_pkw_get_call(s->w, text, n)) {
		s->p = end;
		return;
	}
	while (s->p < end)
		one(s);
	ofs_pkw_learn_call(s->w, text, n);
}

static void open_items(struct scan *s, char kind)
{
	bool whole = *s->p == '*';

	s->p += whole;
	enter(s->w, kind, whole);
}

static inline void one(struct scan *s)
{
	bool named = s->named;
	char c = *s->p++;

	s->named = false;
	switch (c) {
	case ' ':
	case ':':
		break;
	case ',':
		comma(s->w);
		break;
	case '(':
		enter(s->w, named ? 'R' : '(', false);
		break;
	case '[':
		ofs_pkw_op_put(s->w, OFS_PKW_LIST);
		open_items(s, c);
		break;
	case '{':
		ofs_pkw_op_put(s->w, OFS_PKW_DICT);
		open_items(s, c);
		break;
	case '<':
		ofs_pkw_op(s->w, OFS_PKW_UNIT);
		ofs_pkw_op_put(s->w, OFS_PKW_NEWOBJ);
		enter(s->w, c, false);
		break;
	case ')':
		leave(s->w);
		if (*s->p == '{') { /* items of the result follow */
			s->p++;
			open_items(s, '{');
		}
		break;
	case ']':
	case '}':
	case '>':
		leave(s->w);
		break;
	case '\'':
		quoted(s);
		break;
	case '%':
		hole(s);
		break;
	case '$':
		shared(s);
		break;
	case '@':
		s->p += 2; /* %d */
		ofs_pkw_get(s->w, (uint32_t)va_arg(s->ap, int));
		break;
	default:
		s->p--;
		if (c >= '0' && c <= '9')
			number(s);
		else
			name(s);
	}
}

void ofs_pkw_lit(struct ofs_pkw *w, const char *fmt, ...)
{
	struct scan s = { .w = w, .p = fmt };

	va_start(s.ap, fmt);
	while (*s.p != '\0')
		one(&s);
	va_end(s.ap);
}
