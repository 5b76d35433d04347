package catalog

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// migModels are the models with MIG that no page documents for Hyper-V, by
// architecture and size. Their memory is what the names of the MIG profiles say.
var migModels = []Model{
	migModel("NVIDIA A30", "Ampere", 24, migA30, []string{"20B7"}, pciIDs("20B7 10DE 1532, 1804 and 1852")),

	migModel("NVIDIA A100-PCIE-40GB", "Ampere", 40, migA100("450.80.02", a100With40GB), []string{"20B1", "20F1"},
		pciIDs("20F1 10DE 145F"), pciList("20B1 and 20F1, A100 PCIe 40GB")).called("NVIDIA A100 PCIe 40GB"),
	migModel("NVIDIA A100-SXM4-40GB", "Ampere", 40, migA100("450.80.02", a100With40GB), []string{"20B0"}, pciIDs("20B0")),
	migModel("NVIDIA A800 40GB Active", "Ampere", 40, migA100("", a100With40GB), []string{"20F6"}, pciIDs("20F6 10DE 180A")),
	migModel("NVIDIA A800-SXM4-40GB", "Ampere", 40, migA100("", a100With40GB), []string{"20BD"}, pciIDs("20BD 10DE 17F4")),

	migModel("NVIDIA A100 80GB PCIe", "Ampere", 80, migA100("450.80.02", a100With80GB), []string{"20B5"}, pciIDs("20B5 10DE 1533 and 1642")),
	migModel("NVIDIA A100-SXM4-80GB", "Ampere", 80, migA100("450.80.02", a100With80GB), []string{"20B2"},
		pciIDs("20B2 10DE 1463, 147F, 1622 and 1623")),
	migModel("NVIDIA A800 80GB PCIe", "Ampere", 80, migA100("", a100With80GB), []string{"20F5"}, pciIDs("20F5 10DE 1799 and 179A")),
	migModel("NVIDIA A800-SXM4-80GB", "Ampere", 80, migA100("", a100With80GB), []string{"20F3"}, pciIDs("20F3 10DE 179B to 17A2")),

	migModel("NVIDIA PG506-232", "Ampere", 96, alike(MIGTable{ModeNeedsReset: true, IDsInferred: true},
		eighths{gb: [4]int{12, 24, 48, 96}}, migParted()), []string{"20B6"}, pciIDs("20B6 10DE 1492")),

	// The driver calls it by its memory, as it does the A100.
	migModel("NVIDIA H100 80GB HBM3", "Hopper", 80, migH100("525.85.12", h100With80GB, h100Listing()), []string{"2330"},
		pciIDs("2330 10DE 16C0 and 16C1")).called("NVIDIA H100 SXM5 80GB"),
	migModel("NVIDIA H800", "Hopper", 80, migH100("", h100With80GB), []string{"2324"}, pciIDs("2324 10DE 17A6 and 17A8")),
	migModel("NVIDIA H800 PCIe", "Hopper", 80, migH100("", h100With80GB), []string{"2322"}, pciIDs("2322 10DE 17A4")),
	migModel("NVIDIA H100 SXM5 94GB", "Hopper", 94, migH100("525.85.12", h100With94GB), []string{"2339"}, pciIDs("2339 10DE 17FC")),
	migModel("NVIDIA H800 NVL", "Hopper", 94, migH100("", h100With94GB), []string{"233A"}, pciIDs("233A 10DE 183A")),
	migModel("NVIDIA H100 96GB", "Hopper", 96, migH100("525.85.12", h100With96GB), []string{"2338", "233D"},
		pciList("2338 and 233D, H100 with 96 GB")),
	migModel("NVIDIA H20", "Hopper", 96, alike(MIGTable{MinDriver: "535.161.07", IDsInferred: true},
		eighths{gb: [4]int{12, 24, 48, 96}}, migParted()), []string{"2329"}, pciIDs("2329 10DE 198B and 198C")),
	migModel("NVIDIA H20-3e", "Hopper", 141, alike(MIGTable{IDsInferred: true},
		eighths{gb: [4]int{18, 35, 71, 141}}, Source{
			Fact:  "MIG-backed vGPUs of the H20 with 141 GB rest on 1g.18gb, 1g.35gb, 2g.35gb, 3g.71gb, 4g.71gb and 7g.141gb.",
			Title: "NVIDIA AI Enterprise, Hopper vGPU types",
			URL:   "https://docs.nvidia.com/ai-enterprise/release-8/latest/infra-software/vgpu/reference/hopper.html",
		}), []string{"232C"}, pciIDs("232C 10DE 2063")),
	migModel("NVIDIA H200", "Hopper", 141, alike(MIGTable{MinDriver: "550.90.07"}, h200With141, migGuide(), h200Listing()),
		[]string{"2335"}, pciIDs("2335 10DE 18BE and 18BF")),
	migModel("NVIDIA H200 NVL", "Hopper", 141, alike(MIGTable{MinDriver: "550.90.07"}, h200With141, migGuide(), h200Listing()),
		[]string{"233B"}, pciIDs("233B 10DE 1996")),
	migModel("NVIDIA GH200 480GB", "Hopper", 96, migH100("", h100With96GB,
		migListing("A GH200 in Slurm", "https://github.com/kf-cuanschutz/NVIDIA_Grace_Hopper_benchmarking_logs_")), []string{"2342"},
		pciIDs("2342 10DE 16EB, 1805 and 1809")).called("NVIDIA GH200 120GB"),
	migModel("NVIDIA GH200 144G HBM3e", "Hopper", 144, alike(MIGTable{}, eighths{gb: [4]int{18, 36, 72, 144}}, migParted(),
		migListing("GH200 144G in mig-parted", "https://github.com/NVIDIA/mig-parted/pull/139")), []string{"2348"}, pciIDs("2348 10DE 18D2")),

	migModel("NVIDIA B200", "Blackwell", 180, alike(MIGTable{MinDriver: "570.133.20"},
		eighths{gb: [4]int{23, 45, 90, 180}, mib: [4]int64{20992, 45312, 91136, 182784}}, migGuide(),
		migListing("B200 in mig-parted", "https://github.com/NVIDIA/mig-parted/pull/187")), []string{"2901"},
		pciIDs("2901 10DE 1999, 199B and 20DA")),
	migModel("NVIDIA GB200", "Blackwell", 186, alike(MIGTable{MinDriver: "570.133.20"},
		eighths{gb: [4]int{23, 47, 93, 186}}, migParted(),
		migListing("GB200 in mig-parted", "https://github.com/NVIDIA/mig-parted/issues/227")), []string{"2941"},
		pciIDs("2941 10DE 2046, 20CA, 20D5, 21C9 and 21CA")),
	// Another GB200 of the same device id and name; its driver tells which profiles it has.
	migModel("NVIDIA GB200 189GB", "Blackwell", 189, alike(MIGTable{MinDriver: "570.133.20", IDsInferred: true},
		eighths{gb: [4]int{23, 47, 95, 189}}, migParted()), nil, migParted()),
	migModel("NVIDIA B300 SXM6 AC", "Blackwell", 269, alike(MIGTable{MinDriver: "580.82.07", IDsInferred: true},
		eighths{gb: [4]int{34, 67, 135, 269}}, migParted()), []string{"3182"}, pciIDs("3182 10DE 20E6")).called("NVIDIA B300"),
	migModel("NVIDIA GB300", "Blackwell", 278, alike(MIGTable{IDsInferred: true},
		eighths{gb: [4]int{35, 70, 139, 278}}, migParted()), []string{"31C2"}, pciIDs("31C2 10DE 21F1")),

	migModel("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "Blackwell", 96, migRTXPro6000, []string{"2BB1"},
		pciIDs("2BB1 10DE 204B")),
	migModel("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "Blackwell", 96, migRTXPro6000, []string{"2BB4"},
		pciIDs("2BB4 10DE 204C")),
	// A card with 72 GB has the same device id and is in no table of MIG profiles.
	migModel("NVIDIA RTX PRO 5000 Blackwell", "Blackwell", 48, migRTXPro5000, []string{"2BB3"},
		pciIDs("2BB3 10DE 204D, also of Dell, HP and Lenovo")).onBoards("204D10DE", "204D1028", "204D103C", "204D17AA"),
	migModel("NVIDIA RTX PRO 4500 Blackwell", "Blackwell", 32, migRTXPro4500, []string{"2C31"}, pciIDs("2C31 10DE 2051")),
}

func migModel(name, family string, gigabytes int, table *MIGTable, devices []string, sources ...Source) Model {
	return Model{
		Name: name, Vendor: nvidia, Family: family, Devices: devices,
		VRAM: gpu.Bytes(gigabytes) * gib, MIG: table, Sources: sources,
	}
}

// called gives the model other names.
func (m Model) called(aliases ...string) Model {
	m.Aliases = aliases
	return m
}

// onBoards limits the model to boards of some subsystem ids.
func (m Model) onBoards(subsystems ...string) Model {
	m.Subsystems = subsystems
	return m
}

func h100Listing() Source {
	return migListing("Joe Barrow, Nvidia MIG", "https://jbarrow.ai/field_notes/nvidia-mig/")
}

func h200Listing() Source {
	return migListing("H200 in mig-parted", "https://github.com/NVIDIA/mig-parted/issues/120")
}
