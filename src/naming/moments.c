/* moments.c - states that are smaller than their parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "naming/moments.h"

#include <string.h>

bool ofs_is_projection(struct ofs_str name)
{
	static const char *const words[] = { "proj", "ortho_matrix" };

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (memmem(name.p, name.len, words[i], strlen(words[i])) !=
		    NULL)
			return true;
	return false;
}

bool ofs_moment_fits(struct ofs_shape param, struct ofs_shape moment,
    bool projected)
{
	if (param.n != moment.n)
		return false;
	for (unsigned i = 0; i < param.n; i++) {
		if (moment.v[i] == param.v[i])
			continue;
		if (param.n < 2 || moment.v[i] > param.v[i] ||
		    (!projected && moment.v[i] > param.v[i] / 2))
			return false;
	}
	return true;
}

/* Is s the shape p without dimension i, or with 1 in its place? */
static bool lacks(struct ofs_shape p, struct ofs_shape s, unsigned i)
{
	bool kept = s.n == p.n;

	if (!kept && s.n + 1 != p.n)
		return false;
	for (unsigned k = 0, at = 0; k < p.n; k++) {
		if (k == i && !kept)
			continue;
		if (s.v[at++] != (k == i ? 1 : p.v[k]))
			return false;
	}
	return true;
}

bool ofs_factors_fit(struct ofs_shape param, struct ofs_shape row,
    struct ofs_shape col)
{
	for (unsigned i = 0; i < param.n; i++)
		for (unsigned k = 0; k < param.n; k++)
			if (i != k && lacks(param, row, i) &&
			    lacks(param, col, k))
				return true;
	return false;
}
