#!/bin/sh
# Make configure and Makefile.in from configure.ac and Makefile.am.
set -e
cd "$(dirname "$0")"
exec autoreconf --install "$@"
