package conformance

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// The GPUs of the standard host beside those of standardMIGHost's names.
const (
	l40sV = "GPU-5b4eae96-ae42-4f4f-9f82-4e5f6a7b8c05" // vendor-specific VFIO, mixes sizes
	a40   = "GPU-6a5fbfa7-bf53-4050-8a93-5f6a7b8c9d06" // mediated devices on functions
	p40   = "GPU-7960c0b8-c064-4161-9ba4-6a7b8c9dae07" // mediated devices on the GPU itself
	h100V = "GPU-8871d1c9-d175-4272-8cb5-7b8c9daebf08" // has MIG, and types that live in it
	plain = "GPU-9782e2da-e286-4383-9dc6-8c9daebfc009" // no vGPU types
)

// The vGPU types of the L40S, and some of the others'.
const (
	l40s2Q   = "L40S-2Q"
	l40s12Q  = "L40S-12Q"
	l40s12C  = "L40S-12C"
	l40s24Q  = "L40S-24Q"
	l40s48Q  = "L40S-48Q"
	a40x4Q   = "A40-4Q"
	a40x24Q  = "A40-24Q"
	p40x4Q   = "P40-4Q"
	p40x8Q   = "P40-8Q"
	h100x40C = "H100-40C"
	h100mig  = "H100-1-10C"
	h100half = "H100-3-40C"
)

// The UUIDs of mediated devices.
const (
	mdevA = "844d691c-a9d8-4845-b288-b81b99b88ae6"
	mdevB = "95b0d1fe-10f3-4a6e-8c3e-2f5a0b9f6ad7"
)

// functions is how many virtual functions the GPUs with SR-IOV have.
const functions = 8

// standardVGPUHost is what every scenario of vGPUs starts from.
func standardVGPUHost() gpu.Host {
	h := gpu.Host{
		Name:     "kvm01",
		Platform: gpu.Linux,
		OS:       gpu.OS{Name: "Ubuntu 24.04.3 LTS", Version: "24.04"},
		GPUs: []gpu.GPU{
			card(l40sV, "NVIDIA L40S", "26B9", "185110DE", "0000:41:00.0", 48, nil),
			card(a40, "NVIDIA A40", "2235", "145A10DE", "0000:61:00.0", 48, nil),
			card(p40, "Tesla P40", "1B38", "11D910DE", "0000:81:00.0", 24, nil),
			card(h100V, "NVIDIA H100 80GB HBM3", "2330", "16C110DE", "0000:a1:00.0", 80, &gpu.MIG{Profiles: profiles80GB()}),
			card(plain, "Tesla T4", "1EB8", "12A210DE", "0000:c1:00.0", 16, nil),
		},
		VMs:   []gpu.VM{},
		Pools: []gpu.Pool{},
	}
	h.GPUs[0].VGPU = &gpu.VGPU{Functions: functions, HeterogeneousSupported: true, Types: []gpu.VGPUType{
		vgpuType(l40s2Q, 2, 24), vgpuType(l40s12Q, 12, 4), vgpuType(l40s12C, 12, 4), vgpuType(l40s24Q, 24, 2), vgpuType(l40s48Q, 48, 1),
	}}
	h.GPUs[1].VGPU = &gpu.VGPU{Functions: functions, Types: []gpu.VGPUType{vgpuType(a40x4Q, 4, 12), vgpuType(a40x24Q, 24, 2)}}
	h.GPUs[2].VGPU = &gpu.VGPU{Types: []gpu.VGPUType{vgpuType(p40x4Q, 4, 6), vgpuType(p40x8Q, 8, 3)}}
	inMIG := vgpuType(h100mig, 10, 7)
	inMIG.MIGProfile = mig1g
	half := vgpuType(h100half, 40, 2)
	half.MIGProfile = mig3g
	h.GPUs[3].VGPU = &gpu.VGPU{
		Functions: functions, HeterogeneousSupported: true, Types: []gpu.VGPUType{vgpuType(h100x40C, 40, 2), inMIG, half},
	}
	return h
}

func vgpuType(name string, gigabytes gpu.Bytes, most int) gpu.VGPUType {
	return gpu.VGPUType{Name: name, FrameBuffer: gigabytes * 1024 * gpu.MiB, Max: most, MaxPerVM: 1}
}
