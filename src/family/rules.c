/* rules.c - tables of names: the syntax of docs/names.md */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "family/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/str.h"

#define FILE_MAX   (1u << 20)
#define LINE_BYTES 1024u
/* A table of tables would double with each line. */
#define RULES_MAX 4096u

struct parse {
	struct ofs_families *f;
	const char *file; /* for messages */
	uint32_t line;
	uint32_t open; /* the first family of the statement in use; OFS_NONE */
	struct optimfs_error *err;
};

static int wrong(struct parse *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static int wrong(struct parse *p, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return optimfs_fail(p->err, EINVAL, "OFS891 %s: line %" PRIu32 ": %s",
	    p->file, p->line, text);
}

/* Words. */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* The next word of *rest; len 0: there is none. */
static struct ofs_str take_word(struct ofs_str *rest)
{
	struct ofs_str word;
	uint32_t n = 0;

	while (rest->len > 0 && is_blank(*rest->p))
		*rest = ofs_str_after(*rest, 1);
	while (n < rest->len && !is_blank(rest->p[n]))
		n++;
	word = (struct ofs_str){ rest->p, n };
	*rest = ofs_str_after(*rest, n);
	return word;
}

static unsigned count_stars(struct ofs_str s)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < s.len; i++)
		n += s.p[i] == '*';
	return n;
}

/* A name is components joined by dots, none of them empty, so it is never a
 * path. */
static bool is_name(struct ofs_str s)
{
	char before = '.';

	if (s.len == 0 || s.len >= OFS_FAMILY_NAME / 2)
		return false;
	for (uint32_t i = 0; i < s.len; before = s.p[i++]) {
		char c = s.p[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

		bool digit = c >= '0' && c <= '9';

		if (!letter && !digit && c != '_' && c != '-' && c != '.' &&
		    c != '*')
			return false;
		/* where would the number of a star end? */
		if ((c == '.' && before == '.') ||
		    ((c == '*' || digit) && before == '*'))
			return false;
	}
	return before != '.';
}

static int check_name(struct parse *p, struct ofs_str s)
{
	if (!is_name(s))
		return wrong(p,
		    "'%.*s' is no name: letters, digits, '_', '-' and '*', "
		    "joined by single dots, no digit behind a '*'",
		    OFS_STR_ARGS(s, 80));
	return count_stars(s) <= OFS_FAMILY_STARS
	    ? 0
	    : wrong(p, "'%.*s' has more than %d stars", OFS_STR_ARGS(s, 80),
		  OFS_FAMILY_STARS);
}

/* Rules. */

/* NAME[*]: is it a stack? *s is without it then. */
static bool take_axis(struct ofs_str *s)
{
	static const char axis[] = "[*]";
	bool stack = ofs_str_ends(*s, axis);

	if (stack)
		s->len -= (uint32_t)strlen(axis);
	return stack;
}

static int parse_left(struct parse *p, struct ofs_str s,
    struct ofs_family_rule *r)
{
	r->left = s;
	r->stacked = take_axis(&r->left);
	r->anything = r->left.len > 2 && memcmp(s.p, "*.", 2) == 0;
	if (r->anything)
		r->left = ofs_str_after(r->left, 2);
	if (check_name(p, r->left) == -1)
		return -1;
	return r->anything && (r->stacked || count_stars(r->left) > 0)
	    ? wrong(p, "after a '*' at the start no other may follow")
	    : 0;
}

/* before{one,two}after: a name for each word between the braces. */
static int add_part(struct parse *p, struct ofs_family_rule *r,
    struct ofs_str before, struct ofs_str word, struct ofs_str after)
{
	char name[3 * LINE_BYTES + 1];
	struct ofs_str part = { NULL, before.len + word.len + after.len };

	if (r->nright == OFS_FAMILY_PARTS)
		return wrong(p, "more than %d parts", OFS_FAMILY_PARTS);
	memcpy(name, before.p, before.len);
	memcpy(name + before.len, word.p, word.len);
	memcpy(name + before.len + word.len, after.p, after.len);
	part.p = ofs_arena_strndup(&p->f->arena, name, part.len);
	if (part.p == NULL)
		return ofs_no_memory(p->err);
	r->right[r->nright++] = part;
	return check_name(p, part);
}

static int parse_right(struct parse *p, struct ofs_str s,
    struct ofs_family_rule *r)
{
	const char *open, *close, *comma;

	if (ofs_str_is(s, "-"))
		return 0;
	if (take_axis(&s)) {
		if (!r->stacked)
			return wrong(p, "a '[*]' on the right side only");
		r->stacks = true;
		r->stacked = false;
	}
	open = s.len == 0 ? NULL : memchr(s.p, '{', s.len);
	close = s.len == 0 ? NULL : memchr(s.p, '}', s.len);
	if (open == NULL && close == NULL)
		return add_part(p, r, s, (struct ofs_str){ s.p, 0 },
		    (struct ofs_str){ s.p, 0 });
	if (open == NULL || close == NULL || close < open)
		return wrong(p, "'%.*s' has a brace without the other one",
		    OFS_STR_ARGS(s, 80));
	for (const char *at = open + 1; at <= close; at = comma + 1) {
		comma = memchr(at, ',', (size_t)(close - at));
		if (comma == NULL)
			comma = close;
		if (add_part(p, r,
			(struct ofs_str){ s.p, (uint32_t)(open - s.p) },
			(struct ofs_str){ at, (uint32_t)(comma - at) },
			ofs_str_after(s, (size_t)(close + 1 - s.p))) == -1)
			return -1;
	}
	return 0;
}

static int take_name(struct parse *p, struct ofs_str *rest,
    struct ofs_str *name)
{
	*name = take_word(rest);
	return check_name(p, *name);
}

static int parse_words(struct parse *p, struct ofs_str rest,
    struct ofs_family_rule *r)
{
	struct ofs_str word;

	while ((word = take_word(&rest)).len > 0) {
		if (ofs_str_is(word, "qkv"))
			r->qkv = true;
		else if (ofs_str_is(word, "transpose"))
			r->transpose = true;
		else if (ofs_str_is(word, "vocab"))
			r->vocab = true;
		else if (ofs_str_is(word, "alternate"))
			r->alternate = true;
		else if (ofs_str_is(word, "if")) {
			if (take_name(p, &rest, &r->only_if) == -1)
				return -1;
		} else if (ofs_str_is(word, "unless")) {
			if (take_name(p, &rest, &r->unless) == -1)
				return -1;
		} else if (ofs_str_is(word, "rows")) {
			if (take_name(p, &rest, &r->rows) == -1)
				return -1;
		} else
			return wrong(p,
			    "'%.*s' is none of qkv, transpose, alternate, "
			    "vocab, if, unless and rows",
			    OFS_STR_ARGS(word, 40));
	}
	return 0;
}

/* Do the parts of the rule fit each other? */
static int check_rule(struct parse *p, const struct ofs_family_rule *r)
{
	unsigned stars = count_stars(r->left) + r->stacked;

	if (r->nright == 0)
		return r->stacked || r->qkv || r->transpose || r->vocab ||
			r->alternate || r->only_if.p != NULL ||
			r->unless.p != NULL || r->rows.p != NULL
		    ? wrong(p, "what is left out has no other words")
		    : 0;
	if (r->anything)
		return wrong(p,
		    "a '*.' at the start is for what is left out ('= -')");
	for (unsigned i = 0; i < r->nright; i++)
		if (count_stars(r->right[i]) != stars)
			return wrong(p, "'%.*s' has %u stars, the left side %u",
			    OFS_STR_ARGS(r->right[i], 80),
			    count_stars(r->right[i]), stars);
	for (unsigned i = 0; i < 3; i++) {
		const struct ofs_str *names[] = { &r->only_if, &r->unless,
			&r->rows };

		if (count_stars(*names[i]) > stars)
			return wrong(p,
			    "'%.*s' has more stars than the left side",
			    OFS_STR_ARGS(*names[i], 80));
	}
	if (r->qkv && r->nright != 1 && r->nright != 3)
		return wrong(p, "qkv makes three parts, or one of all three");
	if (r->alternate && (r->nright != 1 || r->qkv))
		return wrong(p, "alternate makes one part, and without qkv");
	if (r->vocab &&
	    (r->nright != 1 || r->qkv || r->stacked || r->stacks ||
		r->alternate))
		return wrong(p, "vocab is for one tensor as it is");
	return 0;
}

static int add_rule(struct parse *p, const struct ofs_family_rule *r)
{
	struct ofs_families *f = p->f;

	if (p->open == OFS_NONE)
		return wrong(p, "a rule before the first 'family NAME'");
	if (f->nrules == RULES_MAX)
		return wrong(p, "more than %u rules in all", RULES_MAX);
	if (ofs_grow(f->rule, f->nrules, f->rule_cap, p->err) == -1)
		return -1;
	f->rule[f->nrules++] = *r;
	for (uint32_t i = p->open; i < f->nfamilies; i++)
		f->family[i].n++;
	return 0;
}

static int parse_rule(struct parse *p, struct ofs_str line)
{
	struct ofs_family_rule r = { 0 };
	struct ofs_str rest = line, left = take_word(&rest),
		       is = take_word(&rest), right = take_word(&rest),
		       colon = take_word(&rest);

	if (!ofs_str_is(is, "=") || right.len == 0)
		return wrong(p,
		    "not 'LEFT = RIGHT', 'family NAME' or 'use NAME'");
	if (colon.len > 0 && !ofs_str_is(colon, ":"))
		return wrong(p, "'%.*s' where ':' belongs",
		    OFS_STR_ARGS(colon, 40));
	if (parse_left(p, left, &r) == -1 || parse_right(p, right, &r) == -1 ||
	    parse_words(p, rest, &r) == -1 || check_rule(p, &r) == -1)
		return -1;
	return add_rule(p, &r);
}

/* Families. */

static int add_family(struct parse *p, struct ofs_str name)
{
	struct ofs_families *f = p->f;

	if (!is_name(name) || count_stars(name) > 0 || name.len > 30 ||
	    ofs_str_is(name, "file"))
		return wrong(p, "'%.*s' is no name of a family",
		    OFS_STR_ARGS(name, 40));
	if (ofs_grow(f->family, f->nfamilies, f->family_cap, p->err) == -1)
		return -1;
	f->family[f->nfamilies++] = (struct ofs_family){ name, f->nrules, 0 };
	return 0;
}

static int parse_family(struct parse *p, struct ofs_str names)
{
	uint32_t first = p->f->nfamilies;
	struct ofs_str name;

	while ((name = take_word(&names)).len > 0)
		if (add_family(p, name) == -1)
			return -1;
	if (p->f->nfamilies == first)
		return wrong(p, "'family' without a name");
	p->open = first;
	return 0;
}

/* Only what is complete can be used, so no table has itself in it. */
static int parse_use(struct parse *p, struct ofs_str name)
{
	const struct ofs_family *found = NULL;
	uint32_t end = p->open == OFS_NONE ? 0 : p->open;

	for (uint32_t i = 0; i < end; i++)
		if (ofs_str_equal(p->f->family[i].name, name))
			found = &p->f->family[i];
	if (found == NULL)
		return wrong(p, "'use %.*s': no family above has this name",
		    OFS_STR_ARGS(name, 40));
	for (uint32_t i = 0, n = found->n, first = found->first; i < n; i++) {
		struct ofs_family_rule r = p->f->rule[first + i];

		if (add_rule(p, &r) == -1)
			return -1;
	}
	return 0;
}

static int parse_line(struct parse *p, struct ofs_str line)
{
	struct ofs_str rest = line, word;

	if (line.len > LINE_BYTES)
		return wrong(p, "more than %u bytes", LINE_BYTES);
	word = take_word(&rest);
	if (word.len == 0 || *word.p == '#')
		return 0;
	if (ofs_str_is(word, "family"))
		return parse_family(p, rest);
	if (ofs_str_is(word, "use"))
		return parse_use(p, take_word(&rest));
	return parse_rule(p, line);
}

static int parse_builtin(struct ofs_families *f, struct optimfs_error *err)
{
	struct parse p = { f, "built-in names", 0, OFS_NONE, err };

	for (const char *const *s = ofs_family_builtin; *s != NULL; s++) {
		p.line++;
		if (parse_line(&p, ofs_str_of(*s)) == -1)
			return -1;
	}
	return 0;
}

int ofs_families_parse(struct ofs_families *f, const char *name,
    struct ofs_str text, struct optimfs_error *err)
{
	struct parse p = { f, name, 0, OFS_NONE, err };
	const char *at = text.p, *end = at + text.len, *nl;

	for (; at < end; at = nl + 1) {
		struct ofs_str line = { .p = at };

		nl = memchr(at, '\n', (size_t)(end - at));
		if (nl == NULL)
			nl = end;
		line.len = (uint32_t)(nl - at);
		if (line.len > 0 && at[line.len - 1] == '\r')
			line.len--;
		p.line++;
		if (parse_line(&p, line) == -1)
			return -1;
	}
	return 0;
}

static int parse_file(struct ofs_families *f, const char *file,
    struct optimfs_error *err)
{
	f->text.limit = FILE_MAX;
	if (ofs_read_named("OFS891 names", file, &f->text, err) == -1)
		return -1;
	return ofs_families_parse(f, file,
	    (struct ofs_str){
		(const char *)f->text.data, (uint32_t)f->text.len },
	    err);
}

int ofs_families_init(struct ofs_families *f, const char *file,
    struct optimfs_error *err)
{
	int ret;

	*f = (struct ofs_families){ 0 };
	ret = parse_builtin(f, err);
	f->nbuiltin = f->nfamilies;
	if (ret == 0 && file != NULL)
		ret = parse_file(f, file, err);
	if (ret == 0)
		return 0;
	ofs_families_fini(f);
	return -1;
}

void ofs_families_fini(struct ofs_families *f)
{
	ofs_arena_fini(&f->arena);
	ofs_buf_fini(&f->text);
	free(f->rule);
	free(f->family);
	*f = (struct ofs_families){ 0 };
}

/* A family of the user's file, which comes last, replaces one of the program. */
const struct ofs_family *ofs_family_find(const struct ofs_families *f,
    struct ofs_str name)
{
	if (ofs_str_is(name, "file"))
		return f->nbuiltin < f->nfamilies ? &f->family[f->nbuiltin]
						  : NULL;
	for (uint32_t i = f->nfamilies; i-- > 0;)
		if (ofs_str_equal(f->family[i].name, name))
			return &f->family[i];
	return NULL;
}

/* Names. */

/* A number without leading zeros, of at most nine digits. */
static bool take_number(struct ofs_str *s, uint32_t *v)
{
	uint32_t n = 0;

	while (n < s->len && n < 10 && s->p[n] >= '0' && s->p[n] <= '9')
		n++;
	if (!ofs_str_number((struct ofs_str){ s->p, n }, v))
		return false;
	*s = ofs_str_after(*s, n);
	return true;
}

bool ofs_family_match(struct ofs_str pattern, struct ofs_str name,
    uint32_t star[OFS_FAMILY_STARS], unsigned *n)
{
	*n = 0;
	while (pattern.len > 0) {
		const char *at = memchr(pattern.p, '*', pattern.len);
		uint32_t k =
		    at == NULL ? pattern.len : (uint32_t)(at - pattern.p);

		if (name.len < k || memcmp(pattern.p, name.p, k) != 0)
			return false;
		name = ofs_str_after(name, k);
		pattern = ofs_str_after(pattern, k);
		if (at == NULL)
			break;
		if (*n == OFS_FAMILY_STARS || !take_number(&name, &star[*n]))
			return false;
		++*n;
		pattern = ofs_str_after(pattern, 1);
	}
	return name.len == 0;
}

bool ofs_family_expand(struct ofs_str pattern, const uint32_t *star,
    char name[OFS_FAMILY_NAME])
{
	size_t len = 0;

	for (uint32_t i = 0; i < pattern.len; i++) {
		if (len + 11 >= OFS_FAMILY_NAME)
			return false;
		if (pattern.p[i] == '*')
			len += (size_t)sprintf(name + len, "%" PRIu32, *star++);
		else
			name[len++] = pattern.p[i];
	}
	name[len] = '\0';
	return true;
}
