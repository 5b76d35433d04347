package catalog

import "fmt"

// The pages that the catalog rests on.
const (
	windowsServerTitle = "GPU partitioning (Windows Server)"
	windowsServerURL   = "https://learn.microsoft.com/windows-server/virtualization/hyper-v/gpu-partitioning"

	assignTitle = "Partition and assign GPUs to a virtual machine"
	assignURL   = "https://learn.microsoft.com/windows-server/virtualization/hyper-v/partition-assign-vm-gpu"

	azureLocalTitle = "Prepare GPUs for Azure Local"
	azureLocalURL   = "https://learn.microsoft.com/azure/azure-local/manage/gpu-preparation"

	vgpuNotesTitle = "NVIDIA vGPU software for Microsoft Azure Local, release notes"
	vgpuNotesURL   = "https://docs.nvidia.com/vgpu/latest/grid-vgpu-release-notes-microsoft-azure-stack-hci/index.html"

	driverTitle = "NVIDIA open GPU kernel modules, compatible GPUs"
	driverURL   = "https://github.com/NVIDIA/open-gpu-kernel-modules#compatible-gpus"

	pciListTitle = "The PCI ID repository"
	pciListURL   = "https://pci-ids.ucw.cz/read/PC/10de"

	vgpuTypesTitle = "NVIDIA open GPU kernel modules, vGPU types by PCI id"
	vgpuTypesURL   = "https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/src/common/shared/inc/g_vgpu_chip_flags.h"
)

// windowsServer is Microsoft's list of GPUs for GPU-P on Windows Server 2025.
func windowsServer() Source {
	return Source{
		Fact:  "Supports GPU partitioning on Windows Server 2025.",
		Title: windowsServerTitle, URL: windowsServerURL,
	}
}

// azureLocal is a row of Microsoft's table of GPUs for Azure Local.
func azureLocal(modes string) Source {
	return Source{
		Fact:  fmt.Sprintf("Supported on Azure Local for %s.", modes),
		Title: azureLocalTitle, URL: azureLocalURL,
	}
}

// azureLocalH100 is the row of the H100, which does not tell the cards apart.
func azureLocalH100() Source {
	return Source{
		Fact:  "H100 is supported on Azure Local for DDA and GPU-P; the page names no form factor.",
		Title: azureLocalTitle, URL: azureLocalURL,
	}
}

// vgpuNotes is a row of NVIDIA's table of GPUs for Azure Local.
func vgpuNotes() Source {
	return Source{
		Fact:  "NVIDIA supports GPU SR-IOV (GPU-P) and DDA on Azure Local.",
		Title: vgpuNotesTitle, URL: vgpuNotesURL,
	}
}

// pciIDs is a row of NVIDIA's table of PCI ids.
func pciIDs(ids string) Source {
	return Source{
		Fact:  fmt.Sprintf("PCI device and subsystem: %s.", ids),
		Title: driverTitle, URL: driverURL,
	}
}

// pciList is for GPUs that NVIDIA's table leaves out.
func pciList(ids string) Source {
	return Source{
		Fact:  fmt.Sprintf("PCI device: %s.", ids),
		Title: pciListTitle, URL: pciListURL,
	}
}

// vgpuSizes are the memory sizes of NVIDIA's vGPU types of one series: Q for
// workstations, C for compute. The largest type has the whole memory; the others
// give the counts.
func vgpuSizes(series, sizes string) Source {
	return Source{
		Fact:  fmt.Sprintf("vGPU types of the %s series have %s GB.", series, sizes),
		Title: vgpuTypesTitle, URL: vgpuTypesURL,
	}
}
