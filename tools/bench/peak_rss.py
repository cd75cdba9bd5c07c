# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run a command and write the most resident memory that it had, in MiB, to FILE.RANK. usage: peak_rss.py FILE COMMAND…"""
import os
import sys

child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
with open(f"{sys.argv[1]}.{os.environ.get('OMPI_COMM_WORLD_RANK', '0')}", "w") as file:
    file.write(str(usage.ru_maxrss / 1024))
sys.exit(os.waitstatus_to_exitcode(status))
