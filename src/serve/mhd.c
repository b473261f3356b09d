/* mhd.c - the module with libmicrohttpd: optimfs-serve.so */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "serve/mhd.h"

__attribute__((visibility("default")))
const struct ofs_mhd optimfs_mhd_1 = {
	.start_daemon = MHD_start_daemon,
	.stop_daemon = MHD_stop_daemon,
	.lookup_connection_value = MHD_lookup_connection_value,
	.basic_auth_get_username_password =
	    MHD_basic_auth_get_username_password,
	.create_response_from_buffer = MHD_create_response_from_buffer,
	.create_response_from_callback = MHD_create_response_from_callback,
	.create_response_from_fd_at_offset64 =
	    MHD_create_response_from_fd_at_offset64,
	.add_response_header = MHD_add_response_header,
	.queue_response = MHD_queue_response,
	.destroy_response = MHD_destroy_response,
};
