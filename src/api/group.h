/* group.h - the services of a group of ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_API_GROUP_H
#define OFS_API_GROUP_H

#include "cluster/group.h"

/* The services of every group that optimfs_group_join makes; ends with NULL. */
extern const struct ofs_group_service *const ofs_group_services[];

#endif
