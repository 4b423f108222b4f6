"""Which machine this is, what it runs, and what a kernel may ask of it: read, never set."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import pynvml
import torch

from gemmgate.suite.cases import Target
from gemmgate.suite.measure.settings import matmul_precision
from gemmgate.suite.measure.settle import Reading
from gemmgate.suite.measure.tenancy import Spent, is_busy
from gemmgate.suite.records import Machine, Stack, machine_key

_THROTTLED = {0x8: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake"}
_POWER_CAP = 0x4
_CLOCK_SET = {0x2: "application clocks", 0x10: "sync boost"}
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_POWER_INSTANT = getattr(pynvml, "NVML_FI_DEV_POWER_INSTANT", None)


class Telemetry:
    """Clocks, power, throttle reasons and other tenants of one GPU, through NVML. Empty answers where NVML has none.

    `beside` are processes that compute here too and are no strangers: the other side's worker.
    """

    def __init__(self, device: torch.device, *, beside: Iterable[int] = ()) -> None:
        self._handle: Any = None
        self._ours = {os.getpid(), *beside}
        self._is_cpu = device.type == "cpu"
        if device.type != "cuda":
            return
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._handle = _find_handle(torch.cuda.get_device_properties(device))
        self._ecc_errors = self._uncorrected_errors()

    def read(self, name: str, *arguments: Any) -> Any:
        """What `nvmlDeviceGet<name>` says, or None."""
        if self._handle is None:
            return None
        try:
            return getattr(pynvml, f"nvmlDeviceGet{name}")(self._handle, *arguments)
        except (pynvml.NVMLError, AttributeError):
            return None

    @property
    def sm_clock_hz(self) -> float | None:
        mhz = self.read("ClockInfo", pynvml.NVML_CLOCK_SM)
        return mhz * 1e6 if mhz else None

    @property
    def max_sm_clock_hz(self) -> float | None:
        mhz = self.read("MaxClockInfo", pynvml.NVML_CLOCK_SM)
        return mhz * 1e6 if mhz else None

    @property
    def max_memory_clock_hz(self) -> float | None:
        mhz = self.read("MaxClockInfo", pynvml.NVML_CLOCK_MEM)
        return mhz * 1e6 if mhz else None

    @property
    def power_w(self) -> float | None:
        """At this moment; the mean over a second where the driver tells no more."""
        instant = self.read("FieldValues", [_POWER_INSTANT]) if _POWER_INSTANT else None
        if instant and instant[0].nvmlReturn == 0:
            return float(instant[0].value.uiVal) / 1e3
        milliwatts = self.read("PowerUsage")
        return milliwatts / 1e3 if milliwatts else None

    @property
    def joules(self) -> float | None:
        """What the board has used since its driver was loaded."""
        millijoules = self.read("TotalEnergyConsumption")
        return millijoules / 1e3 if millijoules else None

    def reading(self) -> Reading:
        """All that settling looks at. It asks often, so not for what takes the driver long."""
        return Reading(self.sm_clock_hz, self.power_w, self.joules, frozenset(self.clock_marks()))

    def clock_marks(self) -> set[str]:
        """Of `throttled power_limited clock_locked`, those that hold now."""
        reasons = self.read("CurrentClocksThrottleReasons") or 0
        holds = {
            "power_limited": reasons & _POWER_CAP,
            "throttled": any(reasons & bit for bit in _THROTTLED),
            "clock_locked": any(reasons & bit for bit in _CLOCK_SET),
        }
        return {mark for mark, is_so in holds.items() if is_so}

    def marks(self) -> set[str]:
        """Of `throttled power_limited clock_locked shared ecc_errors`, those that hold now."""
        if self._handle is None:
            return set()
        holds = {"shared": self._others(), "ecc_errors": self._uncorrected_errors() > self._ecc_errors}
        return {*self.clock_marks(), *(mark for mark, is_so in holds.items() if is_so)}

    def spent(self) -> Spent | None:
        """What the cores have done so far; None for a GPU, which others use as `marks` says."""
        return Spent.read() if self._is_cpu else None

    def busy_marks(self, begin: Spent | None, end: Spent | None) -> set[str]:
        """`busy` where other processes took cores that we use, between two readings of what was spent."""
        if begin is None or end is None:
            return set()
        cores = psutil.cpu_count(logical=False) or 1
        return {"busy"} if is_busy(begin, end, torch.get_num_threads(), cores) else set()

    def settings(self) -> dict[str, Any]:
        """What an administrator chose for the GPU, as fields of a `Machine`."""
        locked_mhz = self.read("ApplicationsClock", pynvml.NVML_CLOCK_SM) or 0
        default_mhz = self.read("DefaultApplicationsClock", pynvml.NVML_CLOCK_SM) or 0
        ecc, mode = self.read("EccMode"), self.read("ComputeMode")
        return {
            "power_default_w": (self.read("PowerManagementDefaultLimit") or 0) / 1e3,
            "clock_set_hz": locked_mhz * 1e6 if locked_mhz != default_mhz else 0.0,
            "compute_mode": _COMPUTE_MODES.get(mode, "") if mode is not None else "",
            "ecc": ("on" if ecc[0] else "off") if ecc else "",
        }

    def _uncorrected_errors(self) -> int:
        return self.read("TotalEccErrors", pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC) or 0

    def _others(self) -> bool:
        """Whether a stranger computes here. In a container NVML may give our processes other numbers, or none."""
        processes = {process.pid for process in self.read("ComputeRunningProcesses") or ()}
        return len(processes - self._ours) > (0 if processes & self._ours else len(self._ours))


def _find_handle(properties: Any) -> Any:
    """The GPU's NVML handle; of a slice of one, that of the whole, which alone has clocks and power."""
    with suppress(pynvml.NVMLError):
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
    with suppress(pynvml.NVMLError):
        part = pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{properties.uuid}")
        return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
    return None


def pick_device(asked: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:1` as a device that exists. Raises ValueError with the reason."""
    if asked == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(asked)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device '{asked}' is none of auto, cpu, cuda, cuda:<index>.")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise ValueError(
                f"--device {asked}: torch {torch.__version__} sees no GPU here. "
                "Use --device cpu, or a CUDA build of torch."
            )
        if (device.index or 0) >= count:
            raise ValueError(f"--device {asked}: there are {count} GPUs here, cuda:0 to cuda:{count - 1}.")
        return torch.device("cuda", device.index if device.index is not None else torch.cuda.current_device())
    return device


def describe_target(device: torch.device) -> Target:
    """The device as plain numbers."""
    if device.type == "cpu":
        return Target(
            arch="cpu",
            name=_cpu_model(),
            sm_count=psutil.cpu_count(logical=False) or 1,
            l2_bytes=last_level_cache_bytes(),
            memory_bytes=psutil.virtual_memory().total,
            features=("interpreter",) if os.environ.get("TRITON_INTERPRET") == "1" else (),
        )
    found = torch.cuda.get_device_properties(device)
    amd = getattr(found, "gcnArchName", "") if torch.version.hip else ""
    return Target(
        arch=amd.split(":")[0] or f"sm_{found.major}{found.minor}",
        name=found.name,
        sm_count=found.multi_processor_count,
        shared_bytes=getattr(found, "shared_memory_per_block_optin", 0),
        l2_bytes=found.L2_cache_size,
        memory_bytes=found.total_memory,
    )


def describe_machine(device: torch.device, telemetry: Telemetry) -> Machine:
    """The key of this machine's history, and the board it is today."""
    if device.type == "cpu":
        model, cores = _cpu_model(), psutil.cpu_count(logical=False) or 1
        identity = Path("/etc/machine-id")
        text = identity.read_text() if identity.exists() else platform.node()
        return Machine(
            key=machine_key("cpu", model, f"{cores}c"),
            model=model,
            memory_bytes=psutil.virtual_memory().total,
            cores=cores,
            board=_short_hash(text),
        )
    found = torch.cuda.get_device_properties(device)
    limit_w = (telemetry.read("EnforcedPowerLimit") or 0) / 1e3
    mig = telemetry.read("MigMode")
    mode = Path("/var/lib/nvpmodel/status")
    power_mode = mode.read_text().strip() if mode.exists() else ""
    gib = round(found.total_memory / 2**30)
    return Machine(
        key=machine_key(
            found.name, f"{gib}g", *([f"{limit_w:.0f}w"] if limit_w else []), *([power_mode] if power_mode else [])
        ),
        model=found.name,
        memory_bytes=found.total_memory,
        power_limit_w=limit_w,
        mig=_mig_profile(found.name) or ("on" if mig and mig[0] else ""),
        power_mode=power_mode,
        cores=found.multi_processor_count,
        board=_short_hash(str(found.uuid)),
        **telemetry.settings(),
    )


def _mig_profile(name: str) -> str:
    """`1g.18gb` of `NVIDIA H200 MIG 1g.18gb`."""
    return name.partition(" MIG ")[2]


def describe_stack(device: torch.device) -> Stack:
    """Versions that a time depends on."""
    gpu = device.type == "cuda"
    driver = ""
    if gpu:
        with suppress(pynvml.NVMLError):
            driver = str(pynvml.nvmlSystemGetDriverVersion())
    return Stack(
        python=platform.python_version(),
        torch=torch.__version__,
        triton=_version("triton") or _version("pytorch-triton") or _version("triton-windows"),
        cuda=(torch.version.cuda or torch.version.hip or "") if gpu else "",
        driver=driver,
        cublas=next((v for v in map(_version, ("nvidia-cublas", "nvidia-cublas-cu12")) if v), "") if gpu else "",
        blas="" if gpu else _cpu_blas(),
        threads=0 if gpu else torch.get_num_threads(),
    )


@contextmanager
def precision_flags(precision: str) -> Iterator[dict[str, str]]:
    """Sets torch's matmul precision for a case; yields every library flag that is part of a row's identity."""
    before = matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    matmul = torch.backends.cuda.matmul
    try:
        flags = {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "allow_bf16_reduced_precision_reduction": str(matmul.allow_bf16_reduced_precision_reduction),
            "allow_fp16_reduced_precision_reduction": str(matmul.allow_fp16_reduced_precision_reduction),
            "cublas_workspace_config": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
        }
        if torch.cuda.is_available():
            flags["preferred_blas_library"] = str(torch.backends.cuda.preferred_blas_library()).rpartition(".")[2]
        yield flags
    finally:
        torch.set_float32_matmul_precision(before)


def last_level_cache_bytes() -> int:
    """The largest cache that the first CPU core sees, or 32 MiB where the system does not say."""
    sizes = [_cache_size(path.read_text()) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=32 * 2**20)


def _cache_size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)\s*", text)
    return int(found[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[found[2]] if found else 0


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return re.sub(r"\((R|TM)\)", "", found[1]).strip()
    return platform.processor() or platform.machine()


def _cpu_blas() -> str:
    found = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    onednn = "+onednn" if torch.backends.mkldnn.is_available() else ""
    return (found[1] if found else "unknown") + onednn


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
