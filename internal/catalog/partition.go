package catalog

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// PartitionedVRAM is about how much of the model's memory its partitions share, which no page states: Microsoft's sample of an A2
// with 16 GB has 8 partitions of 1.85 GB, so that the driver keeps some 8 %.
func (m Model) PartitionedVRAM() gpu.Bytes { return gpu.FromMiB((m.VRAM / 100 * 92).MiB()) }
