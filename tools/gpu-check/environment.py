# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds CUDA's libraries and the GPU of this machine.

usage: environment.py gpu | versions FOLDER…    prints JSON; check.py runs it, so that a library that crashes or hangs ends only this
"""
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from programs import find_program

# Not needed to start: cuDNN compiles some kernels, and CUPTI times kernels.
NEEDED = ["libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"]
WANTED = ["libcublas.so.13", "libnvrtc.so.13", "libnvJitLink.so.13", "libcupti.so.13"]
ASK_SECONDS = 60                              # for the driver, which loads its modules at the first call


class Missing(Exception):
    """Raised if something is missing without which nothing can run."""


def wheel_folders() -> list[Path]:
    """Returns the folders of PyTorch's CUDA wheels without importing PyTorch."""
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec else []
    return sorted(folder for root in roots for folder in Path(root).glob("*/lib"))


def listed(name: str) -> list[Path]:
    """Returns the folders of a variable. Relative ones are skipped: programs take them as folders of whatever folder they run in."""
    return [Path(folder) for folder in os.environ.get(name, "").split(":") if folder.startswith("/")]


def find_libraries(given: list[str]) -> list[Path]:
    """Returns the folders for LD_LIBRARY_PATH: for each library the first folder that has it."""
    folders = [*(Path(folder).absolute() for folder in given), *listed("FSDPC_CUDA_LIB"), *listed("LD_LIBRARY_PATH"),
               *wheel_folders(), Path("/usr/local/cuda/lib64"), Path("/usr/lib/x86_64-linux-gnu")]
    found, missing = [], []
    for library in NEEDED + WANTED:
        holder = next((folder for folder in folders if (folder / library).exists()), None)
        if holder and holder not in found:
            found.append(holder)
        elif not holder and library in NEEDED:
            missing.append(library)
    if missing:
        looked = ", ".join(dict.fromkeys(map(str, folders)))
        raise Missing(f"no {', '.join(missing)} in {looked}; set the folder with --cuda-lib=DIR")
    return found


def loads(name: str) -> bool:
    try:
        return bool(ctypes.CDLL(name))
    except OSError:
        return False


def lacking(packed: Path, folder: Path) -> list[Path]:
    """Links those packed libraries into a folder that this machine has not. Returns the folder, if any.

    The packed ones are another distribution's, and must not come before this machine's in every program.
    """
    libraries = [library for library in sorted(packed.glob("lib*.so*")) if not loads(library.name)]
    if libraries:
        folder.mkdir()
    for library in libraries:
        (folder / library.name).symlink_to(library)
    return [folder] if libraries else []


def library_path(found: list[Path], added: list[Path]) -> str:
    """Returns LD_LIBRARY_PATH for programs. The inherited folders stay, as the driver's may be among them."""
    return ":".join(dict.fromkeys(map(str, [*found, *listed("LD_LIBRARY_PATH"), *added])))


def versions(folders: list[Path]) -> dict[str, int]:
    """Returns the libraries' versions as they number them; those that cannot be loaded are left out."""
    found = {}
    for library, function, by_reference in (("libcudart.so.13", "cudaRuntimeGetVersion", True), ("libcublasLt.so.13", "cublasLtGetVersion", False),
                                            ("libcudnn.so.9", "cudnnGetVersion", False), ("libnccl.so.2", "ncclGetVersion", True)):
        path = next((folder / library for folder in folders if (folder / library).exists()), None)
        try:
            call = getattr(ctypes.CDLL(str(path)), function)
        except (OSError, AttributeError):
            continue
        number = ctypes.c_int(0)
        call.restype = ctypes.c_int if by_reference else ctypes.c_size_t
        result = call(ctypes.byref(number)) if by_reference else call()
        found[library.split(".")[0]] = number.value if by_reference else result
    return found


STATE = ("name,driver_version,pstate,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.draw,power.limit,temperature.gpu,"
         "utilization.gpu,memory.used,memory.total,ecc.mode.current,mig.mode.current")


def gpu_state(seconds: float) -> dict[str, str]:
    """Returns clocks, power and what else may explain a figure, as nvidia-smi reports them; empty without it, or if it hangs."""
    tool = find_program("nvidia-smi")
    if not tool:
        return {}
    try:
        asked = subprocess.run([tool, f"--query-gpu={STATE}", "--format=csv,noheader", "--id=0"], capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in asked.stdout.strip().split(",")]
    return dict(zip(STATE.split(","), values)) if asked.returncode == 0 and values != [""] else {}


def find_gpu() -> dict:
    """Returns the first GPU that the driver reports."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Missing("no GPU found: cannot load the NVIDIA driver (libcuda.so.1)") from None
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    status = driver.cuInit(0)
    if status == 0:
        status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status or count.value == 0:
        raise Missing(f"no GPU found: the NVIDIA driver reports none (status {status}, {count.value} devices)")
    driver.cuDriverGetVersion(ctypes.byref(version))
    name, device, total = ctypes.create_string_buffer(100), ctypes.c_int(0), ctypes.c_size_t(0)
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(total), device)
    return {"name": name.value.decode(), "count": count.value, "gib": round(total.value / 2**30, 1),
            "driver_cuda": f"{version.value // 1000}.{version.value % 1000 // 10}"}


def ask(*words: str, path: str, scale: float = 1) -> dict:
    """Runs this script. Raises Missing with what it says is missing, or if it crashes or hangs."""
    try:
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, timeout=max(1, ASK_SECONDS * scale),
                              env={**os.environ, "LD_LIBRARY_PATH": path})
    except subprocess.TimeoutExpired:
        raise Missing(f"no GPU found: the driver did not answer in {ASK_SECONDS * scale:.0f} s") from None
    if done.returncode or not done.stdout.startswith("{"):
        raise Missing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"the libraries' answer ended with code {done.returncode}")
    return json.loads(done.stdout)


def main(words: list[str]) -> int:
    try:
        print(json.dumps(find_gpu() if words[0] == "gpu" else versions([Path(folder) for folder in words[1:]])))
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
