# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Run by cpack on the files of the package: makes links to the commands and the
# scripts of shells, and puts man pages and documents where Debian has them.
#
# The same files give the same bytes: their date is the commit's.
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(COMMAND git -C ${CMAKE_CURRENT_LIST_DIR} log -1 --format=%ct
    OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(date)
    set(ENV{SOURCE_DATE_EPOCH} ${date})
  endif()
endif()
# dpkg-shlibdeps takes one of two packages for LLVM's, by the order of a hash.
set(ENV{PERL_HASH_SEED} 0)
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
set(sources ${CMAKE_CURRENT_LIST_DIR}/../package)
file(RENAME ${root}/${place}/share/doc ${root}/usr/share/doc)
file(RENAME ${root}/${place}/share/man ${root}/usr/share/man)
configure_file(${sources}/copyright ${root}/usr/share/doc/fsdpc/copyright COPYONLY)
configure_file(${sources}/lintian-overrides ${root}/usr/share/lintian/overrides/fsdpc COPYONLY)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${root}/usr/share/doc/fsdpc/changelog "fsdpc (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n"
  "  * See CHANGELOG.md.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
file(GLOB texts ${root}/usr/share/man/man1/*.1)
execute_process(COMMAND gzip -9 -n ${texts} ${root}/usr/share/doc/fsdpc/changelog COMMAND_ERROR_IS_FATAL ANY)
