/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The MPI plugin's shared object as read-only bytes; empty without MPI. */
  .section .rodata
  .global fsdpc_mpi_object
  .global fsdpc_mpi_object_end
  .balign 16
fsdpc_mpi_object:
#ifdef FSDPC_MPI_PLUGIN
  .incbin FSDPC_MPI_PLUGIN
#endif
fsdpc_mpi_object_end:
  .byte 0
  .section .note.GNU-stack, "", @progbits
