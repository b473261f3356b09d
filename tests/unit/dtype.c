/* base/dtype.c - names of element types, and elements as text */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/dtype.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pickle/pickle.h"
#include "tap.h"
#include "text/text.h"

static void names(void)
{
	bool sizes = true, back = true;

	for (int t = 1; t < OFS_NDTYPES; t++) {
		const char *name = ofs_dtype_name((enum ofs_dtype)t);

		sizes = sizes && ofs_dtype_size((enum ofs_dtype)t) > 0 &&
		    ofs_dtype_size((enum ofs_dtype)t) %
			    ofs_dtype_swap((enum ofs_dtype)t) ==
			0;
		back = back &&
		    ofs_dtype_of_name(name, strlen(name)) == (enum ofs_dtype)t;
	}
	ok(sizes, "the size of every type is a multiple of its swap unit");
	ok(back, "every type is found by its name");
	is_int(ofs_dtype_of_name("torch.bfloat16", 14), OFS_BFLOAT16,
	    "torch.bfloat16 is found with its module");
	is_int(ofs_dtype_of_name("half", 4), OFS_FLOAT16,
	    "half is a second name of float16");
	is_int(ofs_dtype_of_name("float3", 6), OFS_DTYPE_NONE,
	    "a prefix of a name is not a type");
	is_int(ofs_dtype_of_name("torch.", 6), OFS_DTYPE_NONE,
	    "a module without a name is not a type");
	is_int(ofs_dtype_of_storage("CharStorage", 11), OFS_INT8,
	    "CharStorage is int8");
	is_int(ofs_dtype_of_storage("QUInt2x4Storage", 15), OFS_QUINT2X4,
	    "QUInt2x4Storage is quint2x4");
	is_int(ofs_dtype_of_storage("UntypedStorage", 14), OFS_DTYPE_NONE,
	    "UntypedStorage has no element type");
	is_int(ofs_dtype_of_safetensors("F8_E4M3", 7), OFS_FLOAT8_E4M3FN,
	    "F8_E4M3 of safetensors is float8_e4m3fn");
	is_str(ofs_dtype_npy(OFS_BFLOAT16), "<V2",
	    "NumPy's type of bfloat16 is <V2");
	is_str(ofs_dtype_npy(OFS_FLOAT8_E4M3FN), "<V1",
	    "NumPy's type of float8_e4m3fn is <V1");
	is_str(ofs_dtype_npy(OFS_COMPLEX64), "<c8",
	    "NumPy's type of complex64 is <c8");
	ok(ofs_dtype_npy(OFS_COMPLEX32) == NULL, "complex32 has no NumPy type");
	is_u64(ofs_dtype_swap(OFS_COMPLEX128), 8,
	    "complex128 is swapped in halves of 8 bytes");
	is_u64(ofs_dtype_size(OFS_DTYPE_NONE), 0, "OFS_DTYPE_NONE has size 0");
}

/* Parses text to the bits code, and prints them as want, or as text if want is
 * NULL. */
static void both(enum ofs_dtype t, const char *text, uint64_t code,
    const char *want)
{
	uint8_t raw[16] = { 0 };
	char printed[80];
	uint64_t got = 0;
	size_t n;

	is_int(ofs_dtype_parse(t, text, strlen(text), raw), 0,
	    "%s: '%s' is parsed", ofs_dtype_name(t), text);
	for (size_t i = ofs_dtype_size(t); i-- > 0;)
		got = got << 8 | raw[i];
	is_u64(got, code, "%s: bits of '%s'", ofs_dtype_name(t), text);
	n = ofs_dtype_print(t, raw, printed);
	is_str(printed, want == NULL ? text : want,
	    "%s: text of the bits of '%s'", ofs_dtype_name(t), text);
	is_u64(n, strlen(printed), "%s: length of the printed '%s'",
	    ofs_dtype_name(t), text);
}

static void values(void)
{
	both(OFS_FLOAT64, "0.1", 0x3fb999999999999a, NULL);
	both(OFS_FLOAT64, "1e-08", 0x3e45798ee2308c3a, NULL);
	both(OFS_FLOAT64, "5e-324", 1, NULL);
	both(OFS_FLOAT64, "1.7976931348623157e+308", 0x7fefffffffffffff, NULL);
	both(OFS_FLOAT64, "2.2250738585072014e-308", 0x10000000000000, NULL);
	/* 2**-44: the nearest number of 16 digits is parsed as another value */
	both(OFS_FLOAT64, "5.684341886080802e-14", 0x3d30000000000000, NULL);
	both(OFS_FLOAT64, "9007199254740993", 0x4340000000000000,
	    "9007199254740992.0");
	both(OFS_FLOAT64, "1e22", 0x4480f0cf064dd592, "1e+22");
	both(OFS_FLOAT64, "0.0001", 0x3f1a36e2eb1c432d, NULL);
	both(OFS_FLOAT64, "0.00001", 0x3ee4f8b588e368f1, "1e-05");
	both(OFS_FLOAT64, "-0", 0x8000000000000000, "-0.0");
	both(OFS_FLOAT64, " 1e-5\n", 0x3ee4f8b588e368f1, "1e-05");
	both(OFS_FLOAT64, "inf", 0x7ff0000000000000, "Infinity");
	both(OFS_FLOAT64, "-Infinity", 0xfff0000000000000, NULL);
	both(OFS_FLOAT64, "nan", 0x7ff8000000000000, "NaN");
	both(OFS_FLOAT64, "-NaN", 0xfff8000000000000, "NaN");
	both(OFS_FLOAT64, "NaN(0x7ff0000000000001)", 0x7ff0000000000001, "NaN");
	both(OFS_FLOAT32, "0.1", 0x3dcccccd, "0.10000000149011612");
	both(OFS_FLOAT32, "16777216.0", 0x4b800000, NULL);
	both(OFS_FLOAT32, "3.4028235e+38", 0x7f7fffff,
	    "3.4028234663852886e+38");
	both(OFS_FLOAT32, "1e-45", 1, "1.401298464324817e-45");
	both(OFS_FLOAT32, "1000", 0x447a0000, "1000.0");
	both(OFS_FLOAT32, "NaN(0xff800001)", 0xff800001, "NaN");
	both(OFS_FLOAT16, "0.1", 0x2e66, "0.0999755859375");
	both(OFS_FLOAT16, "65504", 0x7bff, "65504.0");
	both(OFS_FLOAT16, "65519", 0x7bff, "65504.0");
	both(OFS_FLOAT16, "6e-08", 1, "5.960464477539063e-08");
	both(OFS_FLOAT16, "-inf", 0xfc00, "-Infinity");
	both(OFS_BFLOAT16, "0.1", 0x3dcd, "0.10009765625");
	both(OFS_BFLOAT16, "3.39e+38", 0x7f7f, "3.3895313892515355e+38");
	/* ties are rounded to even */
	both(OFS_BFLOAT16, "257", 0x4380, "256.0");
	both(OFS_BFLOAT16, "259", 0x4382, "260.0");
	both(OFS_FLOAT8_E4M3FN, "448", 0x7e, "448.0");
	both(OFS_FLOAT8_E4M3FN, "-0.002", 0x81, "-0.001953125");
	both(OFS_FLOAT8_E4M3FN, "-NaN", 0xff, "NaN");
	both(OFS_FLOAT8_E5M2, "57344", 0x7b, "57344.0");
	both(OFS_FLOAT8_E4M3FNUZ, "240", 0x7f, "240.0");
	both(OFS_FLOAT8_E4M3FNUZ, "-NaN", 0x80, "NaN");
	both(OFS_FLOAT8_E4M3FNUZ, "-0.0", 0, "0.0");
	both(OFS_FLOAT8_E5M2FNUZ, "-57344", 0xff, "-57344.0");
	both(OFS_FLOAT8_E8M0FNU, "1", 127, "1.0");
	both(OFS_FLOAT8_E8M0FNU, "NaN", 255, NULL);
	both(OFS_INT64, "-9223372036854775808", 0x8000000000000000, NULL);
	both(OFS_INT8, "-128", 0x80, NULL);
	both(OFS_INT8, "+127", 0x7f, "127");
	both(OFS_UINT64, "18446744073709551615", UINT64_MAX, NULL);
	both(OFS_UINT8, "-0", 0, "0");
	both(OFS_BOOL, "True", 1, "true");
	both(OFS_BOOL, "0", 0, "false");
	both(OFS_COMPLEX64, "(1-0.5j)", 0xbf0000003f800000, NULL);
	both(OFS_COMPLEX64, "(1.0-2.0j)", 0xc00000003f800000, "(1-2j)");
	both(OFS_COMPLEX64, "-2j", 0xc000000000000000, NULL);
	both(OFS_COMPLEX64, "(-0+0j)", 0x80000000, NULL);
	both(OFS_COMPLEX64, "(1e+5j)", 0x47c3500000000000, "100000j");
	both(OFS_COMPLEX64, "1e-05+2e+20j", 0x612d78ec3727c5ac,
	    "(9.999999747378752e-06+2.0000000400817547e+20j)");
	both(OFS_COMPLEX32, "(nan-infj)", 0xfc007e00, NULL);
	both(OFS_BCOMPLEX32, "(1-infj)", 0xff803f80, NULL);
	both(OFS_BITS16, "0x00ff", 0xff, NULL);
	both(OFS_QINT32, "-5", 0xfffffffb, NULL);
	both(OFS_FLOAT4_E2M1FN_X2, "0x7A", 0x7a, "0x7a");
}

static void refused(void)
{
	static const struct {
		enum ofs_dtype t;
		const char *text;
		int rc;
	} cases[] = {
		{ OFS_FLOAT32, "", EINVAL },
		{ OFS_FLOAT32, "  \n", EINVAL },
		{ OFS_FLOAT32, "abc", EINVAL },
		{ OFS_FLOAT32, "1,5", EINVAL },
		{ OFS_FLOAT32, "0x1p3", EINVAL },
		{ OFS_FLOAT32, "1 2", EINVAL },
		{ OFS_FLOAT32, "1e", EINVAL },
		{ OFS_FLOAT32, ".", EINVAL },
		{ OFS_FLOAT32, "--1", EINVAL },
		{ OFS_FLOAT32, "nanx", EINVAL },
		{ OFS_FLOAT32, "NaN(0x3f800000)", EINVAL },
		{ OFS_FLOAT32, "NaN(0x17f800001)", ERANGE },
		{ OFS_FLOAT64, "NaN(0x10000000000000001)", ERANGE },
		{ OFS_FLOAT64, "NaN(0x)", EINVAL },
		{ OFS_FLOAT32, "1e39", ERANGE },
		{ OFS_FLOAT32, "1e-60", ERANGE },
		{ OFS_FLOAT64, "1e309", ERANGE },
		{ OFS_FLOAT64, "1e-400", ERANGE },
		{ OFS_FLOAT16, "65520", ERANGE },
		{ OFS_FLOAT16, "1e-9", ERANGE },
		{ OFS_BFLOAT16, "3.4e38", ERANGE },
		{ OFS_FLOAT8_E4M3FN, "465", ERANGE },
		{ OFS_FLOAT8_E4M3FN, "inf", ERANGE },
		{ OFS_FLOAT8_E8M0FNU, "0", ERANGE },
		{ OFS_FLOAT8_E8M0FNU, "-1", ERANGE },
		{ OFS_INT64, "9223372036854775808", ERANGE },
		{ OFS_INT64, "1.0", EINVAL },
		{ OFS_INT64, "-", EINVAL },
		{ OFS_INT8, "128", ERANGE },
		{ OFS_INT8, "-129", ERANGE },
		{ OFS_INT32, "99999999999999999999999", ERANGE },
		{ OFS_UINT8, "-1", ERANGE },
		{ OFS_UINT8, "256", ERANGE },
		{ OFS_BOOL, "2", EINVAL },
		{ OFS_BOOL, "yes", EINVAL },
		{ OFS_COMPLEX64, "1.0", EINVAL },
		{ OFS_COMPLEX64, "(1.0+2.0)", EINVAL },
		{ OFS_COMPLEX64, "(1.0+1e99j)", ERANGE },
		{ OFS_COMPLEX64, "j", EINVAL },
		{ OFS_COMPLEX64, "(1+xj)", EINVAL },
		{ OFS_BITS8, "0x100", ERANGE },
		{ OFS_BITS8, "0x", EINVAL },
		{ OFS_DTYPE_NONE, "1", EINVAL },
	};
	uint8_t raw[16], untouched[16];

	memset(untouched, 0xa5, sizeof(untouched));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		memcpy(raw, untouched, sizeof(raw));
		is_int(ofs_dtype_parse(cases[i].t, cases[i].text,
			   strlen(cases[i].text), raw),
		    cases[i].rc, "%s refuses '%s'", ofs_dtype_name(cases[i].t),
		    cases[i].text);
		is_mem(raw, untouched, sizeof(raw),
		    "refused '%s' leaves the output unchanged", cases[i].text);
	}
	is_int(ofs_dtype_parse(OFS_FLOAT32, "1\0", 2, raw), EINVAL,
	    "float32 refuses a text with a NUL");
}

/* All codes of types of up to 16 bits and random codes of larger ones survive
 * printing and parsing, except the payload of NaN. */
static bool round_trip(enum ofs_dtype t, uint64_t code)
{
	size_t size = ofs_dtype_size(t), n;
	uint8_t raw[16] = { 0 }, back[16] = { 0 };
	char text[80];

	for (size_t i = 0; i < size; i++)
		raw[i] = (uint8_t)(code >> 8 * (i % 8));
	n = ofs_dtype_print(t, raw, text);
	if (strcasestr(text, "nan") !=
	    NULL) /* one text stands for all of them */
		return ofs_dtype_parse(t, text, n, back) == 0;
	if (n < 80 && ofs_dtype_parse(t, text, n, back) == 0 &&
	    memcmp(raw, back, size) == 0)
		return true;
	diag("%s 0x%llx is %s", ofs_dtype_name(t), (unsigned long long)code,
	    text);
	return false;
}

/* The short decimal of a number parses back to the same bits. */
static bool decimal_parses(enum ofs_dtype t, uint64_t code)
{
	size_t size = ofs_dtype_size(t);
	uint8_t raw[8] = { 0 }, back[8] = { 0 };
	struct ofs_decimal d;
	char text[64];
	int n;

	for (size_t i = 0; i < size; i++)
		raw[i] = (uint8_t)(code >> 8 * i);
	if (!ofs_dtype_decimal(t, raw, &d))
		return !isfinite(ofs_dtype_number(t, raw));
	n = snprintf(text, sizeof(text), "%s0.%.*se%d", d.negative ? "-" : "",
	    d.n, d.d, d.point);
	if (ofs_dtype_parse(t, text, (size_t)n, back) == 0 &&
	    memcmp(raw, back, size) == 0 && (d.n == 1 || d.d[d.n - 1] != '0'))
		return true;
	diag("%s 0x%llx is %s", ofs_dtype_name(t), (unsigned long long)code,
	    text);
	return false;
}

static void decimals(void)
{
	static const struct {
		enum ofs_dtype t;
		uint64_t code;
		const char *digits;
		int point;
	} cases[] = { { OFS_FLOAT32, 0x3dcccccd, "1", 0 },
		{ OFS_FLOAT64, 0x3fb99999a0000000, "10000000149011612", 0 },
		{ OFS_BFLOAT16, 0x4049, "314", 1 },
		{ OFS_FLOAT32, 1, "1", -44 },
		{ OFS_FLOAT32, 0x7f7fffff, "34028235", 39 },
		{ OFS_FLOAT16, 0x7bff, "655", 5 },
		{ OFS_FLOAT8_E4M3FN, 0x80, "0", 1 } };
	struct ofs_decimal d = { .n = 0 };
	uint8_t raw[8];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (size_t k = 0; k < 8; k++)
			raw[k] = (uint8_t)(cases[i].code >> 8 * k);
		ok(ofs_dtype_decimal(cases[i].t, raw, &d) &&
			(size_t)d.n == strlen(cases[i].digits) &&
			memcmp(d.d, cases[i].digits, (size_t)d.n) == 0 &&
			d.point == cases[i].point,
		    "%s 0x%llx has the digits %s", ofs_dtype_name(cases[i].t),
		    (unsigned long long)cases[i].code, cases[i].digits);
	}
	ok(!ofs_dtype_decimal(OFS_INT8, raw, &d), "int8 has no decimals");
	for (int t = 1; t < OFS_NDTYPES; t++) {
		size_t bits = 8 * ofs_dtype_size((enum ofs_dtype)t);
		uint64_t bad = 0;

		if (!ofs_dtype_is_float((enum ofs_dtype)t) &&
		    t != OFS_FLOAT8_E8M0FNU)
			continue;
		/* of wider types every exponent, and some fractions */
		for (uint64_t i = 0; i < 1u << (bits < 16 ? bits : 16); i++)
			bad += !decimal_parses((enum ofs_dtype)t,
			    bits > 16 ? i << (bits - 16) | i * 0x4321 : i);
		is_u64(bad, 0, "%s: short decimals parse to the same bits",
		    ofs_dtype_name((enum ofs_dtype)t));
	}
}

static void round_trips(void)
{
	uint64_t x = 88172645463325252u;

	for (int t = 1; t < OFS_NDTYPES; t++) {
		size_t size = ofs_dtype_size((enum ofs_dtype)t);
		uint64_t n = size == 1 ? 256 : size == 2 ? 65536 : 20000;
		uint64_t bad = 0;

		if (t == OFS_BOOL)
			n = 2;
		for (uint64_t i = 0; i < n && bad < 3; i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			bad +=
			    !round_trip((enum ofs_dtype)t, size <= 2 ? i : x);
		}
		ok(bad == 0, "%s: printing and parsing gives the same bits",
		    ofs_dtype_name((enum ofs_dtype)t));
	}
}

/* The printed number must be the shortest that stands for its value, so not
 * longer than a short text that was parsed. */
static void shortest(void)
{
	uint64_t x = 88172645463325252u, longer = 0;
	char text[80], back[80];

	for (int i = 0; i < 20000; i++) {
		double v;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		snprintf(text, sizeof(text), "%d.%de%+03d", (int)(x % 9) + 1,
		    (int)((x >> 8) % 10000000) * 10 + 1,
		    (i & 1 ? 1 : -1) * (int)(20 + (x >> 40) % 280));
		v = strtod(text, NULL);
		ofs_print_double(v, back);
		longer += strlen(back) > strlen(text);
		longer += strtod(back, NULL) != v;
	}
	is_u64(longer, 0,
	    "20000 short numbers are printed no longer than they were");
}

/* Makes a locale with a decimal comma and sets it, if the sources of locales are
 * installed. */
static bool set_comma(void)
{
	char dir[] = "/tmp/optimfs-locale.XXXXXX", command[200];
	bool set;

	if (mkdtemp(dir) == NULL)
		return false;
	snprintf(command, sizeof(command),
	    "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", dir);
	set = system(command) == 0 && setenv("LOCPATH", dir, 1) == 0 &&
	    setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command) == 0 && set;
}

/* The items of a set are sorted by value. */
static void sets(void)
{
	static const uint8_t pickle[] = "\x80\4\x8f("
					"G\xbf\xf4\0\0\0\0\0\0"
					"G\xbf\xf8\0\0\0\0\0\0\x90.";
	struct ofs_pickle *doc = ofs_pickle_parse(pickle, sizeof(pickle) - 1,
	    false, NULL, NULL, NULL);
	struct ofs_buf out = { 0 };

	if (doc == NULL ||
	    ofs_text_value(doc, ofs_pickle_root(doc), NULL, &out, NULL) == -1)
		bail_out("no set");
	ofs_buf_putc(&out, '\0');
	is_str((char *)out.data, "[-1.5, -1.25]\n",
	    "the order of a set ignores a locale with a decimal comma");
	ofs_buf_fini(&out);
	ofs_pickle_free(doc);
}

static void locales(void)
{
	char text[80];
	uint8_t raw[8];

	if (!set_comma()) {
		skip(4, "localedef has no sources of locales here");
		return;
	}
	snprintf(text, sizeof(text), "%.1f", 0.5);
	is_str(text, "0,5", "a locale with a decimal comma is set");
	ofs_print_double(0.5, text);
	is_str(text, "0.5", "printing ignores a locale with a decimal comma");
	is_int(ofs_dtype_parse(OFS_FLOAT64, "0.5", 3, raw), 0,
	    "parsing ignores a locale with a decimal comma");
	sets();
	setlocale(LC_ALL, "C");
}

int main(void)
{
	names();
	values();
	refused();
	decimals();
	round_trips();
	shortest();
	locales();
	return done_testing();
}
