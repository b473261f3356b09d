/* series_name.c - the number of a rank in the name of a file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/series_name.h"

#include <stdlib.h>
#include <string.h>

/* docs/formats/ranks.md, "Names" */

/* torchtune before version 0.5 ends names with the epoch: "meta_model_0.pt",
 * "hf_model_0001_0.pt", of which the first number is that of a part. */
static bool is_epoch(const char *name, size_t head)
{
	static const char *const before[] = { "meta_model_", "adapter_",
		"hf_model_" };

	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		size_t n = strlen(before[i]);

		if (head < n || memcmp(name, before[i], n) != 0)
			continue;
		return head ==
		    (i < 2 ? n : n + strspn(name + n, "0123456789") + 1);
	}
	return false;
}

/* Does the number count training time or versions, not ranks? */
static bool counts_time(const char *name, size_t head)
{
	static const char *const words[] = { "epoch", "step", "iter", "ckpt",
		"checkpoint", "ep", "ba", "batch", "version", "v", "tokens",
		"last", "best" };

	if (is_epoch(name, head))
		return true;
	while (head > 0 && strchr("_-.=", name[head - 1]) != NULL)
		head--;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		if (head < n || memcmp(name + head - n, words[i], n) != 0)
			continue;
		if (n > 3 || head == n ||
		    strchr("_-.", name[head - n - 1]) != NULL)
			return true;
	}
	return false;
}

/* The number at *s, if it counts time, and what follows it. */
static bool take_number(const char *name, const char **s, const char **number,
    size_t *n)
{
	*number = *s;
	*n = strspn(*s, "0123456789");
	*s += *n;
	return counts_time(name, (size_t)(*number - name));
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* May a number that does not count time differ? One that is measured may, as in
 * "epoch=3-val_loss=0.25". */
static bool is_measured(const char *name, const char *number)
{
	while (number > name && (is_digit(number[-1]) || number[-1] == '.'))
		number--;
	return number > name && number[-1] == '=';
}

/* Do names of one save differ only in numbers that count time, at least in one of
 * them? */
static bool same_but_time(const char *a, const char *b)
{
	const char *x = a, *y = b, *m, *n;
	bool differ = false;
	size_t k, l;

	while (*x != '\0' && *y != '\0') {
		bool time;

		if (!is_digit(*x) || !is_digit(*y)) {
			if (*x++ != *y++)
				return false;
			continue;
		}
		time = take_number(a, &x, &m, &k);
		if (take_number(b, &y, &n, &l) != time)
			return false;
		if (k == l && memcmp(m, n, k) == 0)
			continue;
		if (!time && !(is_measured(a, m) && is_measured(b, n)))
			return false;
		differ = differ || time;
	}
	return differ && *x == *y;
}

/* Is it "last.ckpt", "best-v1.pt": all of the state, without a number? */
static bool is_last(const char *name)
{
	static const char *const words[] = { "last", "latest", "best" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		if (strncmp(name, words[i], n) != 0)
			continue;
		if (name[n] == '-' && name[n + 1] == 'v')
			n += 2 + strspn(name + n + 2, "0123456789");
		if (name[n] == '.' && strchr(name + n + 1, '.') == NULL)
			return true;
	}
	return false;
}

/* Does the name begin with what counts time: "epoch=3-step=900.ckpt"? */
static bool begins_with_time(const char *name)
{
	size_t head = strcspn(name, "0123456789");

	return name[head] != '\0' && counts_time(name, head) &&
	    strcspn(name, "_-.=") >= head - 1;
}

static bool same_extension(const char *a, const char *b)
{
	const char *x = strrchr(a, '.'), *y = strrchr(b, '.');

	return x != NULL && y != NULL && strcmp(x, y) == 0;
}

bool ofs_series_other_step(const char *a, const char *b)
{
	if (same_but_time(a, b))
		return true;
	if (!same_extension(a, b) || strcmp(a, b) == 0)
		return false;
	return (is_last(a) && begins_with_time(b)) ||
	    (is_last(b) && begins_with_time(a));
}

static bool parse_number(const char *name, size_t head,
    struct ofs_series_name *out)
{
	unsigned long v;
	char *end;

	if (name[head] < '0' || name[head] > '9')
		return false;
	v = strtoul(name + head, &end, 10);
	if (v > OFS_SERIES_MAX_RANK)
		return false;
	*out = (struct ofs_series_name){
		.head = head, .tail = end, .number = (int)v
	};
	return true;
}

/* The last "rank3", "rank_3" or "rank-3" in the name. */
static bool find_rank(const char *name, struct ofs_series_name *out)
{
	bool found = false;

	for (const char *at = name; (at = strstr(at, "rank")) != NULL;) {
		at += strlen("rank");
		if (parse_number(name,
			(size_t)(at - name) + (*at == '_' || *at == '-'), out))
			found = true;
	}
	out->rank = found;
	return found;
}

/* Does s begin with "-of-", as between the number of a part and the number of
 * parts? */
static bool is_of(const char *s)
{
	return strncmp(s, "-of-", 4) == 0 || strncmp(s, "_of_", 4) == 0;
}

/* Is the number at head the number of parts, as 8 in "0-of-8"? */
static bool is_total(const char *name, size_t head)
{
	return head > 4 && is_of(name + head - 4);
}

/* "_3" before the extension. */
static bool find_last(const char *name, struct ofs_series_name *out)
{
	const char *dot = strrchr(name, '.');
	size_t head = dot == NULL ? 0 : (size_t)(dot - name);

	while (head > 0 && name[head - 1] >= '0' && name[head - 1] <= '9')
		head--;
	return head > 1 && name[head - 1] == '_' && !is_total(name, head) &&
	    parse_number(name, head, out) && out->tail == dot &&
	    !counts_time(name, head);
}

/* The last number of the name, wherever it is. */
static bool find_any(const char *name, struct ofs_series_name *out)
{
	bool found = false;

	for (size_t i = 0; name[i] != '\0';) {
		if (!is_total(name, i) && parse_number(name, i, out))
			found = true;
		i += strspn(name + i, "0123456789");
		i += strcspn(name + i, "0123456789");
	}
	out->asked = found;
	return found;
}

static size_t drop_separators(const char *name, size_t n)
{
	while (n > 0 && strchr("_-.", name[n - 1]) != NULL)
		n--;
	return n;
}

static size_t drop_word(const char *name, size_t n, const char *word)
{
	size_t len = strlen(word);

	return n >= len && memcmp(name + n - len, word, len) == 0 ? n - len : n;
}

/* "model_world_size_8", as verl writes it, becomes "model". *world gets 8; 0:
 * the name does not say it. */
static size_t drop_world(const char *name, size_t n, int *world)
{
	size_t digits = n, head;
	struct ofs_series_name x;

	*world = 0;

	while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
		digits--;
	head = drop_word(name, digits, "_world_size_");
	if (digits == n || head == digits || !parse_number(name, digits, &x))
		return n;
	*world = x.number;
	return head;
}

/* What follows "-of-8". */
static const char *skip_total(const char *tail)
{
	return is_of(tail) ? tail + 4 + strspn(tail + 4, "0123456789") : tail;
}

/* The length of the name before a rank, without the number of ranks. */
static size_t stem_len(const char *name, const struct ofs_series_name *x,
    int *world)
{
	size_t n = drop_separators(name, x->head);

	*world = 0;
	if (!x->rank)
		return n;
	n = drop_separators(name, drop_word(name, n, "rank"));
	return drop_world(name, n, world);
}

static void find_world(const char *name, struct ofs_series_name *x)
{
	struct ofs_series_name total;

	stem_len(name, x, &x->world);
	if (is_of(x->tail) &&
	    parse_number(name, (size_t)(x->tail - name) + 4, &total))
		x->world = total.number;
}

bool ofs_series_parse(const char *name, struct ofs_series_name *out)
{
	if (strstr(name, "mp_rank_") != NULL ||
	    strstr(name, "zero_pp_") != NULL)
		return false;
	if (!find_rank(name, out) && !find_last(name, out) &&
	    !find_any(name, out))
		return false;
	find_world(name, out);
	return true;
}

bool ofs_series_same(const char *a, const struct ofs_series_name *x,
    const char *b, struct ofs_series_name *y)
{
	int world;
	size_t n;

	if (!ofs_series_parse(b, y) || x->rank != y->rank ||
	    strcmp(skip_total(x->tail), skip_total(y->tail)) != 0)
		return false;
	if (x->world == 0 || y->world == 0)
		return x->head == y->head && memcmp(a, b, x->head) == 0 &&
		    strcmp(x->tail, y->tail) == 0;
	n = stem_len(a, x, &world);
	return n == stem_len(b, y, &world) && memcmp(a, b, n) == 0;
}

void ofs_series_stem(const char *name, const struct ofs_series_name *x,
    char *stem, size_t size)
{
	const char *begin = skip_total(x->tail), *end = strrchr(begin, '.');
	int world;
	size_t n = stem_len(name, x, &world), tail;

	if (*begin == '/') {
		begin++;
		n = 0;
	}
	if (n >= size)
		n = size - 1;
	memcpy(stem, name, n);
	tail = end == NULL ? strlen(begin) : (size_t)(end - begin);
	if (tail >= size - n)
		tail = size - n - 1;
	memcpy(stem + n, begin, tail);
	stem[n + tail] = '\0';
	if (stem[0] == '\0')
		memcpy(stem, "rank", size < 5 ? size : 5);
}

bool ofs_series_alone(const struct ofs_names *names, size_t i,
    const struct ofs_series_name *me)
{
	struct ofs_series_name other;

	for (size_t k = 0; k < names->n; k++)
		if (k != i &&
		    ofs_series_same(names->name[i], me, names->name[k], &other))
			return false;
	return true;
}

bool ofs_series_directory(const char *name, struct ofs_series_name *out)
{
	return find_rank(name, out) && out->tail[0] == '\0';
}

bool ofs_series_only_rank(const struct ofs_names *names, size_t i, char *stem,
    size_t size)
{
	struct ofs_series_name me;

	if (!ofs_series_parse(names->name[i], &me) || !me.rank ||
	    me.number != 0 || !ofs_series_alone(names, i, &me))
		return false;
	ofs_series_stem(names->name[i], &me, stem, size);
	return true;
}
