# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A Debian 12 with the packages that the build and the tests need, from the list
# that the scripts install (tools/lib/build.sh). The sources are mounted:
#
#   docker build -t fsdpc-dev .
#   docker run --rm -it --shm-size=2g -v "$PWD":/fsdpc fsdpc-dev tools/test.sh --quick
FROM debian:bookworm
COPY tools/lib/build.sh /list/tools/lib/build.sh
RUN bash -c 'set -e; . /list/tools/lib/build.sh; install_missing' && rm -rf /list /var/lib/apt/lists/*
# The mounted sources belong to another user, and git refuses what others own.
RUN git config --system --add safe.directory '*'
WORKDIR /fsdpc
