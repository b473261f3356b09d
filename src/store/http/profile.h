/* profile.h - a section of a file of the AWS command line */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_PROFILE_H
#define OFS_STORE_HTTP_PROFILE_H

#include <stdbool.h>

/* What the AWS command line would use; "": not set. */
struct ofs_profile {
	char name[100]; /* of the profile */
	char key[200], secret[200], session[4000];
	char region[60], endpoint[400];
	bool found; /* a section has this name */
};

/* Reads environment and files: variables first, then ~/.aws/credentials, then
 * ~/.aws/config. */
void ofs_profile_read(struct ofs_profile *p);

#endif
