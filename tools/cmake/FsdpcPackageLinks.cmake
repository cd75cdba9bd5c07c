# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Run by cpack on the files of the package: makes links to the commands and the
# scripts of shells, and puts the licence where Debian has it.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(place usr/lib/fsdpc)
file(GLOB paths RELATIVE ${root}/${place} ${root}/${place}/bin/* ${root}/${place}/share/bash-completion/completions/*
  ${root}/${place}/share/zsh/site-functions/* ${root}/${place}/share/fish/vendor_completions.d/*)
foreach(path IN LISTS paths)
  # Debian's zsh looks in another folder.
  string(REPLACE zsh/site-functions zsh/vendor-completions target usr/${path})
  get_filename_component(folder ${root}/${target} DIRECTORY)
  file(RELATIVE_PATH link ${folder} ${root}/${place}/${path})
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${link} ${root}/${target} SYMBOLIC)
endforeach()
file(RENAME ${root}/${place}/share/doc ${root}/usr/share/doc)
configure_file(${root}/usr/share/doc/fsdpc/LICENSE ${root}/usr/share/doc/fsdpc/copyright COPYONLY)
