/* near.h - run beside a device */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_NEAR_H
#define OFS_CLUSTER_GPU_NEAR_H

#include <stdbool.h>

/* Moves the calling thread to those of its processors that are in the NUMA node of
 * a PCI device ("0000:C1:00.0"): memory that it allocates for copies to the device
 * then is there, too. False: it stays where it is, because sysfs (usually "/sys")
 * does not know the device, or none of its processors is there. */
bool ofs_near_device(const char *sysfs, const char *device);

#endif
