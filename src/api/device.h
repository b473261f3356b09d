/* device.h - memory of a CUDA device, which gets bytes from pinned buffers */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_API_DEVICE_H
#define OFS_API_DEVICE_H

#include <stddef.h>

#include "optimfs/error.h"

/* The driver's library, libcuda.so.1, is loaded when a device is opened; nothing
 * of CUDA is needed to build this. All calls fail with OFS904: ENODEV if there
 * is no such device, ENOMEM, EIO. */
struct ofs_device;

/* Opens the device with this number, as cuDeviceGet counts, and waits for the
 * work of stream (a CUstream), after which its memory may be written. */
struct ofs_device *ofs_device_open(int number, void *stream,
    struct optimfs_error *err);
/* Its pinned buffers must be closed. */
void ofs_device_close(struct ofs_device *d);

/* The way of one thread to a device: buffers that are filled in turn while the
 * device copies the others. */
enum { OFS_PINNED_BUFFERS = 2 };
struct ofs_pinned;

struct ofs_pinned *ofs_pinned_open(struct ofs_device *d, size_t size,
    struct optimfs_error *err);
/* A buffer of size bytes that the device has finished with; NULL: failed. */
void *ofs_pinned_buffer(struct ofs_pinned *pinned, struct optimfs_error *err);
/* Copies n bytes of that buffer to the address to of the device, later. */
int ofs_pinned_send(struct ofs_pinned *pinned, void *to, size_t n,
    struct optimfs_error *err);
/* Waits until all of it is there. */
int ofs_pinned_wait(struct ofs_pinned *pinned, struct optimfs_error *err);
/* Waits as well, if the device still works. */
void ofs_pinned_close(struct ofs_pinned *pinned);

#endif
