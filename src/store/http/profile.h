/* profile.h - a section of a file of the AWS command line */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_PROFILE_H
#define OFS_STORE_HTTP_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

/* What the AWS command line would use; "": not set. */
struct ofs_profile {
	char name[100]; /* of the profile */
	char key[200], secret[200], session[4000];
	char region[60], endpoint[400];
	char sts[400];  /* address of the security token service */
	char ca[4096];  /* file of certificates to trust */
	char payer[20]; /* "requester": he says that he pays */
	/* Where a bucket is in an address: "path", "virtual" in the name of the
	 * host, or as it is usual. */
	char style[20];
	char services[100]; /* the section with addresses of services */
	bool has_services;  /* there is one of this name */
	/* Of all services, and of two, as files have them. */
	char any[400], s3[400], other_sts[400];
	char ignore[10]; /* "true": these are not used, nor are variables */
	char role[2048], token_file[4096], role_session[80];
	bool found;          /* a section has this name */
	bool from_variables; /* the keys are */
	/* Names of what the section has, and nothing here uses; NULL: none. */
	const char *source; /* whose keys get a role */
	const char *other;
	bool no_services; /* they are needed, and there is no such section */
	/* The name of a value that is longer than fits here; NULL: none. */
	const char *too_long;
};

/* Reads environment and files: variables first, then ~/.aws/credentials, then
 * ~/.aws/config. */
void ofs_profile_read(struct ofs_profile *p);

/* The address of a service of AWS in a region, without a slash at its end. */
void ofs_aws_address(char *to, size_t size, const char *service,
    const char *region);

#endif
