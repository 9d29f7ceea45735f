#!/usr/bin/env bash
# Builds the HIP runtime for the CPU: build.sh FOLDER. With ROCM_PATH=FOLDER, hip-python runs on it.
# CXX chooses the compiler. An object that is newer than all sources and headers is left as it is.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "${1:?usage: build.sh FOLDER}"
target=$(cd "$1" && pwd)
mkdir -p "$target/lib" "$target/include" "$target/objects"
# Test processes that start together all build; the first one does the work.
exec 9>"$target/lock"
flock 9
cp -R -u "$here/include/." "$target/include/"

compiler=${CXX:-g++}
flags=(-std=c++17 -O3 -g1 -fPIC -fvisibility=hidden -pthread -Wall -Wextra -Werror -I"$here/include")
newest_header=$(ls -t "$here"/include/hip/*.h "$here"/source/*.hpp "$here/build.sh" | head -n 1)

stale() { [[ ! -e $2 || $1 -nt $2 || $newest_header -nt $2 ]]; }

compile() {
    "$compiler" "${flags[@]}" -c "$1" -o "$2.new" && mv "$2.new" "$2"
}

# The largest first, so that the last ones to finish are short.
jobs=()
for source in $(cd "$here/source" && ls -S -- *.cpp); do
    object=$target/objects/${source%.cpp}.o
    if stale "$here/source/$source" "$object"; then
        (($(jobs -rp | wc -l) < $(nproc))) || wait -n
        compile "$here/source/$source" "$object" &
        jobs+=($!)
    fi
done
for job in "${jobs[@]}"; do wait "$job"; done

# library NAME VERSION "OBJECTS" [LINKER FLAGS]: lib/libNAME.so.VERSION, and the name without a version beside it.
library() {
    local soname=lib$1.so.$2 objects=() object
    for object in $3; do objects+=("$target/objects/$object.o"); done
    "$compiler" -shared -pthread -Wl,-soname,"$soname" -Wl,--no-undefined "${objects[@]}" \
        -o "$target/lib/$soname.new" -L"$target/lib" -Wl,-rpath,'$ORIGIN' "${@:4}"
    mv "$target/lib/$soname.new" "$target/lib/$soname"
    ln -sf "$soname" "$target/lib/lib$1.so"
}

library amdhip64 7 "allocation block code_object device fault fiber graph launch memory module observe stream" -ldl
library hiprtc 7 "code_object hiprtc process rewrite" -lamdhip64 -ldl
library hipblas 3 "hipblas" -lamdhip64 -ldl
library hipfft 0 "hipfft" -lamdhip64
library hipsolver 1 "hipsolver" -lamdhip64 -ldl
library MIOpen 1 "miopen miopen_calls" -lamdhip64
library rccl 1 "rccl" -lamdhip64
