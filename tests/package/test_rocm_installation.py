"""Why HIP finds no GPU: each cause that the system's files tell has a reason and a fix of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tallow.runtime.backends.rocm_backend import installation


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(installation.OVERRIDE, raising=False)
    monkeypatch.delenv("ROCM_PATH", raising=False)
    monkeypatch.setattr("sys.platform", "linux")


def pci(root: Path, vendor: str, kind: str) -> None:
    device = root / f"sys/bus/pci/devices/{vendor}-{kind}"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")


def nodes(root: Path, *names: str) -> None:
    for name in names:
        node = root / "dev" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()


def test_each_cause_has_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pci(tmp_path, "0x10de", "0x030000")  # a GPU of another vendor
    pci(tmp_path, "0x1002", "0x060400")  # a bridge of AMD's
    said = [installation.no_gpu(tmp_path)]
    assert "no AMD GPU is on the PCI bus" in said[-1]
    pci(tmp_path, "0x1002", "0x038000")
    said.append(installation.no_gpu(tmp_path))
    assert "sudo modprobe amdgpu" in said[-1]
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    said.append(installation.no_gpu(tmp_path))
    assert "--device=/dev/kfd" in said[-1]
    nodes(tmp_path, "kfd")
    said.append(installation.no_gpu(tmp_path))
    assert "/dev/dri has no render node" in said[-1]
    nodes(tmp_path, "dri/renderD128", "dri/renderD129")
    said.append(installation.no_gpu(tmp_path))
    assert "rocminfo" in said[-1]
    # Root may open everything, whatever the mode says.
    closed = {tmp_path / "dev/dri/renderD128"}
    monkeypatch.setattr(os, "access", lambda path, _: path not in closed)
    assert installation.no_gpu(tmp_path) == said[-1], "one of several GPUs may be closed"
    closed.add(tmp_path / "dev/kfd")
    said.append(installation.no_gpu(tmp_path))
    assert "may not open /dev/kfd" in said[-1] and "sudo usermod -aG" in said[-1]
    assert "render" in said[-1] and "video" in said[-1] and "--group-add" in said[-1]
    closed.remove(tmp_path / "dev/kfd")
    closed.add(tmp_path / "dev/dri/renderD129")
    assert "may not open /dev/dri/renderD128" in installation.no_gpu(tmp_path)
    closed.clear()
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "7")
    said.append(installation.no_gpu(tmp_path))
    assert "HIP_VISIBLE_DEVICES=7" in said[-1]
    page = (Path(__file__).parents[2] / "docs/amd.md").read_text(encoding="utf-8")
    for reason in said:
        begin = " ".join(reason.replace("=7", "=...").split(";")[0].split()[:5])
        assert begin in page, f"docs/amd.md has no row for: {reason}"
    monkeypatch.setattr("sys.platform", "darwin")
    said.append(installation.no_gpu(tmp_path))
    assert len({*said}) == len(said)


def test_a_target_that_the_libraries_may_lack_is_named_with_its_override(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1201", "host64"):
        assert [*installation.diagnose(target, tmp_path)] == []
    for target, number in (("gfx1031", "10.3.0"), ("gfx1036", "10.3.0"), ("gfx1103", "11.0.0"), ("gfx90c", "9.0.0")):
        (actual,) = installation.diagnose(target, tmp_path)
        assert actual.is_present is None and target in actual.text
        assert f"{installation.OVERRIDE}={number}" in actual.fix
    monkeypatch.setenv(installation.OVERRIDE, "10.3.0")
    (actual,) = installation.diagnose("gfx1030", tmp_path)
    assert f"{installation.OVERRIDE}=10.3.0" in actual.text and not actual.fix


def test_the_version_of_rocm_is_read_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in (("opt/rocm", "6.4.1-83"), ("elsewhere", "7.1.0-20")):
        (tmp_path / folder / ".info").mkdir(parents=True)
        (tmp_path / folder / ".info/version").write_text(f"{version}\n")
    (actual,) = installation.diagnose("gfx1100", tmp_path)
    assert actual.text == f"6.4.1-83 in {tmp_path.resolve()}/opt/rocm"
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "elsewhere"))
    (actual,) = installation.diagnose("gfx1100", tmp_path)
    assert actual.text == f"7.1.0-20 in {tmp_path.resolve()}/elsewhere"
