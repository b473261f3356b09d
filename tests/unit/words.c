/* words.c - suggestions for misspelled names, and numbers with units */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/human.h"
#include "base/nearest.h"
#include "cli/wrap.h"
#include "tap.h"

static void suggests(const char *word, const char *want)
{
	static const char *const names[] = { "mount", "umount", "info", "ls",
		"norm.bias", "dcp", "optim_key", "version" };
	struct ofs_nearest n;

	ofs_nearest_init(&n, word);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ofs_nearest_try(&n, names[i]);
	is_str(n.best, want, "suggestion for \"%.20s\"", word);
}

static void nearest(void)
{
	char large[400];

	suggests("moutn", "mount");
	suggests("mount", "mount");
	suggests("unmount", "umount");
	suggests("nrom.bias", "norm.bias");
	suggests("norm.bais", "norm.bias");
	suggests("dpc", "dcp");
	suggests("verison", "version");
	suggests("optim-key", "optim_key");
	suggests("frobnicate", "");
	suggests("xyz", "");
	suggests("", "");
	memset(large, 'x', sizeof(large));
	large[sizeof(large) - 1] = '\0';
	suggests(large, "");
}

static void bytes(uint64_t n, const char *want)
{
	char text[OFS_HUMAN_SIZE];

	is_str(ofs_human_bytes(n, text), want, "bytes as text: %s", want);
}

static void count(uint64_t n, const char *want)
{
	char text[OFS_HUMAN_SIZE];

	is_str(ofs_human_count(n, text), want, "a count as text: %s", want);
}

static void human(void)
{
	bytes(0, "0 B");
	bytes(999, "999 B");
	bytes(1000, "1.00 kB");
	bytes(9994, "9.99 kB");
	bytes(9995, "10.0 kB");
	bytes(99949, "99.9 kB");
	bytes(99960, "100 kB");
	bytes(999499, "999 kB");
	bytes(999500, "1.00 MB");
	bytes(UINT64_C(782123456789), "782 GB");
	bytes(UINT64_MAX, "18.4 EB");
	count(723, "723");
	count(99999, "99999");
	count(UINT64_C(8030261248), "8.03 billion");
}

static void wraps(const char *text, size_t width, size_t indent,
    const char *want)
{
	struct ofs_buf b = { 0 };

	ofs_wrap(&b, text, width, indent);
	ofs_buf_putc(&b, '\0');
	is_str(b.bad ? NULL : (char *)b.data, want, "in %zu columns: %.20s",
	    width, want);
	ofs_buf_fini(&b);
}

static void wrapped(void)
{
	wraps("one two three\n", 0, 4, "one two three\n");
	wraps("one two three\n", 13, 4, "one two three\n");
	wraps("one two three\n", 12, 4, "one two\n    three\n");
	wraps("one two three four", 9, 2, "one two\n  three\n  four");
	wraps("  not dcp: why not\nok\n", 12, 8,
	    "  not dcp:\n    why not\nok\n");
	wraps("unbreakable\na b c", 3, 1, "unbreakable\na b\n c");
	wraps("  unbreakable word", 3, 1, "  unbreakable\n    word");
	wraps("\u2588\u2588 \u2588\u2588\n", 5, 4,
	    "\u2588\u2588 \u2588\u2588\n");
	wraps("a b", 2, 9, "a\n         b");
	wraps("", 5, 4, "");
}

static void cuts(const char *text, size_t width, const char *want)
{
	struct ofs_buf b = { 0 };

	ofs_shorten(&b, text, width);
	ofs_buf_putc(&b, '\0');
	is_str(b.bad ? NULL : (char *)b.data, want,
	    "%.20s is cut to %zu columns: %.20s", text, width, want);
	ofs_buf_fini(&b);
}

static void cut(void)
{
	cuts("model/norm.bias", 0, "model/norm.bias");
	cuts("model/norm.bias", 15, "model/norm.bias");
	cuts("model/norm.bias", 14, "model...m.bias");
	cuts("model/norm.bias", 10, "mod...bias");
	cuts("model", 4, "...l");
	cuts("model", 3, "...");
	cuts("model", 1, "...");
	cuts("\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc", 6,
	    "\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc");
	cuts("\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc", 5, "\u00e4...\u00fc");
	cuts("", 5, "");
}

int main(void)
{
	nearest();
	human();
	wrapped();
	cut();
	return done_testing();
}
