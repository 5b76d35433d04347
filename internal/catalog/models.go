package catalog

import (
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const gib = 1024 * gpu.MiB

// Partition counts that follow from the sizes of NVIDIA's vGPU types: for each
// size, as many partitions as fit into the memory. Only the A2's are also printed
// on a page about GPU-P.
var (
	counts16GB = []int{1, 2, 4, 8, 16}
	counts24GB = []int{1, 2, 3, 4, 6, 8, 12, 24}
	// NVIDIA allows at most 32 vGPUs of 1 GB on a GPU of 48 GB.
	counts48GB = []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32}
)

const (
	sizes16GB = "1, 2, 4, 8 and 16"
	sizes24GB = "1, 2, 3, 4, 6, 8, 12 and 24"
	sizes48GB = "1, 2, 3, 4, 6, 8, 12, 16, 24 and 48"
)

// models are all models, sorted by name.
var models = slices.SortedFunc(
	slices.Values(slices.Concat(hyperVModels, migModels)),
	func(a, b Model) int { return strings.Compare(a.Name, b.Name) },
)

// hyperVModels are those that Microsoft or NVIDIA document for Hyper-V.
var hyperVModels = []Model{
	{
		Name: "NVIDIA A10", Vendor: nvidia, Family: "Ampere",
		Devices: []string{"2236"},
		VRAM:    24 * gib, GPUP: true, DDA: true,
		PartitionCounts: counts24GB, CountsInferred: true,
		Sources: []Source{
			windowsServer(), azureLocal("DDA (unmanaged VMs) and GPU-P"),
			pciIDs("2236 10DE 1482"), vgpuSizes("Q", sizes24GB),
		},
	},
	{
		// The board carries four GPUs. Each is a PCI device of its own with 16 GB.
		Name: "NVIDIA A16", Vendor: nvidia, Family: "Ampere",
		Devices:    []string{"25B6"},
		Subsystems: []string{"14A910DE"},
		VRAM:       16 * gib, GPUP: true, DDA: true,
		PartitionCounts: counts16GB, CountsInferred: true,
		Sources: []Source{
			windowsServer(), azureLocal("DDA and GPU-P"),
			pciIDs("25B6 10DE 14A9, a device id shared with the A2"), vgpuSizes("Q", sizes16GB),
		},
	},
	{
		Name: "NVIDIA A2", Vendor: nvidia, Family: "Ampere",
		Devices:    []string{"25B6"},
		Subsystems: []string{"157E10DE"},
		VRAM:       16 * gib, GPUP: true, DDA: true,
		PartitionCounts: counts16GB,
		Sources: []Source{
			windowsServer(), azureLocal("DDA and GPU-P"),
			{
				Fact:  "Samples show the valid counts 16, 8, 4, 2 and one more; at 8, a partition has 1.85 GB.",
				Title: assignTitle, URL: assignURL,
			},
			pciIDs("25B6 10DE 157E, a device id shared with the A16"), vgpuSizes("Q", sizes16GB),
		},
	},
	{
		Name: "NVIDIA A40", Vendor: nvidia, Family: "Ampere",
		Devices: []string{"2235"},
		VRAM:    48 * gib, GPUP: true, DDA: true,
		PartitionCounts: counts48GB, CountsInferred: true,
		Sources: []Source{
			windowsServer(), azureLocal("DDA (unmanaged VMs) and GPU-P"),
			pciIDs("2235 10DE 145A"), vgpuSizes("Q", sizes48GB),
		},
	},
	{
		Name: "NVIDIA H100 NVL", Vendor: nvidia, Family: "Hopper",
		Devices: []string{"2321"},
		VRAM:    94 * gib, GPUP: true, DDA: true,
		PartitionCounts: []int{1, 2, 4, 6, 8, 15, 23}, CountsInferred: true,
		MIG: migH100("525.85.12", h100With94GB),
		Sources: []Source{
			azureLocalH100(),
			pciIDs("2321 10DE 1839"), vgpuSizes("C", "4, 6, 11, 15, 23, 47 and 94"),
		},
	},
	{
		Name: "NVIDIA H100 PCIe", Vendor: nvidia, Family: "Hopper",
		Devices: []string{"2331"},
		VRAM:    80 * gib, GPUP: true, DDA: true,
		PartitionCounts: []int{1, 2, 4, 5, 8, 10, 16, 20}, CountsInferred: true,
		MIG: migH100("525.85.12", h100With80GB, h100Listing()),
		Sources: []Source{
			azureLocalH100(),
			pciIDs("2331 10DE 1626"), vgpuSizes("C", "4, 5, 8, 10, 16, 20, 40 and 80"),
		},
	},
	{
		// Microsoft names the L2 for GPU-P only.
		Name: "NVIDIA L2", Vendor: nvidia, Family: "Ada Lovelace",
		Devices: []string{"27B6"},
		VRAM:    24 * gib, GPUP: true,
		PartitionCounts: counts24GB, CountsInferred: true,
		Sources: []Source{windowsServer(), pciIDs("27B6 10DE 1933"), vgpuSizes("Q", sizes24GB)},
	},
	{
		Name: "NVIDIA L20", Vendor: nvidia, Family: "Ada Lovelace",
		Devices: []string{"26BA"},
		VRAM:    48 * gib, GPUP: true, DDA: true,
		PartitionCounts: counts48GB, CountsInferred: true,
		Sources: []Source{vgpuNotes(), pciIDs("26BA 10DE 1957 and 1990"), vgpuSizes("Q", sizes48GB)},
	},
	{
		Name: "NVIDIA L4", Vendor: nvidia, Family: "Ada Lovelace",
		Devices: []string{"27B8"},
		VRAM:    24 * gib, GPUP: true, DDA: true,
		PartitionCounts: counts24GB, CountsInferred: true,
		Sources: []Source{
			windowsServer(), azureLocal("DDA and GPU-P"),
			pciIDs("27B8 10DE 16CA and 16EE"), vgpuSizes("Q", sizes24GB),
		},
	},
	{
		Name: "NVIDIA L40", Vendor: nvidia, Family: "Ada Lovelace",
		Devices: []string{"26B5"},
		VRAM:    48 * gib, GPUP: true, DDA: true,
		PartitionCounts: counts48GB, CountsInferred: true,
		Sources: []Source{
			windowsServer(), azureLocal("DDA and GPU-P"), vgpuNotes(),
			pciIDs("26B5 10DE 169D and 17DA"), vgpuSizes("Q", sizes48GB),
		},
	},
	{
		Name: "NVIDIA L40S", Vendor: nvidia, Family: "Ada Lovelace",
		Devices: []string{"26B9"},
		VRAM:    48 * gib, GPUP: true, DDA: true,
		PartitionCounts: counts48GB, CountsInferred: true,
		Sources: []Source{
			windowsServer(), azureLocal("DDA and GPU-P"), vgpuNotes(),
			pciIDs("26B9 10DE 1851 and 18CF"), vgpuSizes("Q", sizes48GB),
		},
	},
	{
		Name: "NVIDIA RTX PRO 6000 Blackwell Server Edition", Vendor: nvidia, Family: "Blackwell",
		// Microsoft's word, and the name in NVIDIA's vGPU types.
		Aliases: []string{"NVIDIA RTX Pro 6000", "NVIDIA RTX Pro 6000 Blackwell DC"},
		Devices: []string{"2BB5"},
		VRAM:    96 * gib, GPUP: true, DDA: true,
		PartitionCounts: []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32}, CountsInferred: true,
		MIG: migRTXPro6000,
		Sources: []Source{
			azureLocal("DDA and GPU-P"),
			pciIDs("2BB5 10DE 204E and 220B"), vgpuSizes("Q", "3, 4, 6, 8, 12, 16, 24, 32, 48 and 96"),
		},
	},
	{
		// Microsoft names the T4 for DDA only.
		Name: "NVIDIA T4", Vendor: nvidia, Family: "Turing",
		Aliases: []string{"Tesla T4", "NVIDIA Tesla T4"},
		Devices: []string{"1EB8"},
		VRAM:    16 * gib, DDA: true,
		Sources: []Source{azureLocal("DDA only"), pciIDs("1EB8 10DE 12A2"), vgpuSizes("Q", sizes16GB)},
	},
}
