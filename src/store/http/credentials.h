/* credentials.h - the keys of AWS, wherever its command line finds them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_CREDENTIALS_H
#define OFS_STORE_HTTP_CREDENTIALS_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "store/http/client.h"
#include "store/http/profile.h"

/* Looked for in this order: variables; a token that is exchanged for keys (web
 * identity); files; the metadata of a container, then of an instance. The first
 * place that has any is asked again before they expire, by a thread that may not
 * be confined. */

/* Once in a process, and after a fork, before threads are confined. Without keys
 * it succeeds. EACCES (OFS923): the place that should have them does not give
 * them. */
int ofs_credentials_prepare(const struct ofs_http *http,
    struct optimfs_error *err);
/* What variables and files say, after prepare. */
const struct ofs_profile *ofs_credentials_profile(void);
/* For struct ofs_http_login. */
const struct ofs_http_signer *ofs_credentials(void);
const char *ofs_credentials_missing(void);
int ofs_credentials_renew(const struct ofs_http_signer *was,
    struct optimfs_error *err);

#endif
