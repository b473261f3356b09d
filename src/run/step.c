/* step.c - the step that the name of a checkpoint tells */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/step.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* Longer numbers are hashes or dates. */
#define DIGITS_MAX 18

/* The words before a number, the best first: a name with several numbers, as
 * "epoch=3-step=900", tells the one with the best word. */
static const struct word {
	const char *text;
	enum ofs_run_count count;
} words[] = {
	{ "step", OFS_RUN_STEPS },
	{ "steps", OFS_RUN_STEPS },
	{ "iter", OFS_RUN_STEPS },
	{ "iteration", OFS_RUN_STEPS },
	{ "batch", OFS_RUN_STEPS },
	{ "ba", OFS_RUN_STEPS },
	{ "checkpoint", OFS_RUN_STEPS },
	{ "ckpt", OFS_RUN_STEPS },
	{ "", OFS_RUN_STEPS }, /* the name begins with the number */
	{ "version", OFS_RUN_VERSIONS },
	{ "v", OFS_RUN_VERSIONS },
	{ "epoch", OFS_RUN_EPOCHS },
	{ "ep", OFS_RUN_EPOCHS },
	/* no word: is_date says so */
	{ "", OFS_RUN_DATES },
};
#define NWORDS (sizeof(words) / sizeof(words[0]))
#define DATE   (NWORDS - 1)

/* The index of the word that ends at name[n], before its separators; NWORDS:
 * none. */
static size_t word_before(const char *name, size_t n)
{
	while (n > 0 && strchr("_-=.", name[n - 1]) != NULL)
		n--;
	for (size_t i = 0; i < NWORDS; i++) {
		size_t len = strlen(words[i].text);

		if (len == 0 ? n != 0
			     : len > n ||
			    strncasecmp(name + n - len, words[i].text, len) !=
				0)
			continue;
		if (n == len || !isalpha((unsigned char)name[n - len - 1]))
			return i;
	}
	return NWORDS;
}

/* The value of two digits. */
static int pair(const char *s)
{
	return (s[0] - '0') * 10 + s[1] - '0';
}

/* Is the number of n digits at the beginning of a name that of a day, as in the
 * names of logs and of saves: 20260131_235959, 20260131235959, 2026-01-31? */
static bool is_date(const char *s, size_t n)
{
	if (strncmp(s, "20", 2) != 0)
		return false;
	if (n == 4)
		return s[4] == '-' && isdigit((unsigned char)s[5]) &&
		    isdigit((unsigned char)s[6]) && s[7] == '-';
	return (n == 14 || (n == 8 && (s[8] == '_' || s[8] == '-'))) &&
	    pair(s + 4) >= 1 && pair(s + 4) <= 12 && pair(s + 6) >= 1 &&
	    pair(s + 6) <= 31;
}

/* Is the number that ends here whole? Not in "10k" and "0.18". */
static bool ends_number(const char *end)
{
	return !isalpha((unsigned char)*end) &&
	    !(*end == '.' && isdigit((unsigned char)end[1]));
}

enum ofs_run_count ofs_run_step(const char *name, uint64_t *step)
{
	size_t best = NWORDS;

	for (size_t i = 0; name[i] != '\0';) {
		size_t n = strspn(name + i, "0123456789"), word;
		uint64_t value = 0;

		if (n == 0) {
			i++;
			continue;
		}
		word = i == 0 && is_date(name, n) ? DATE : word_before(name, i);
		/* behind a point there is the rest of another number */
		if (n <= DIGITS_MAX && word < best &&
		    ends_number(name + i + n) &&
		    !(i > 1 && name[i - 1] == '.' &&
			isdigit((unsigned char)name[i - 2]))) {
			for (size_t k = 0; k < n; k++)
				value =
				    value * 10 + (uint64_t)(name[i + k] - '0');
			best = word;
			*step = value;
		}
		i += n;
	}
	return best == NWORDS ? OFS_RUN_NOTHING : words[best].count;
}

bool ofs_run_parse_step(const char *s, uint64_t *step)
{
	size_t n = strspn(s, "0123456789");

	if (n == 0 || n > DIGITS_MAX || s[n] != '\0' || (n > 1 && s[0] == '0'))
		return false;
	for (*step = 0; *s != '\0'; s++)
		*step = *step * 10 + (uint64_t)(*s - '0');
	return true;
}
