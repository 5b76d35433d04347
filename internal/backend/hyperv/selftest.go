package hyperv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// SelfTest reads how this host answers what the documentation of Hyper-V leaves open.
// This backend was written against the documentation and a fixture; the answers of a
// host with GPUs show where it was read wrongly.
func (b *Backend) SelfTest(ctx context.Context) []backend.Answer {
	questions := []struct {
		text string
		ask  func(context.Context) (string, error)
	}{
		{"Which GPUs does the host have, and where from is each known?", b.askGPUs},
		{"Does Msvm_GpuPartition.DeviceInstancePath name the GPU or its virtual function?", b.askPartitionPaths},
		{"Does Msvm_PciExpressSettingData list the settings of pools?", b.askPoolSettings},
		{"Is there a default setting for a GPU partition, and can its XML be read and written back as it was?", b.asking("Msvm_GpuPartitionSettingData")},
		{"Is there a default setting for an assignable device?", b.asking("Msvm_PciExpressSettingData")},
		{"Has the pool of all assignable devices settings of its own?", b.askPrimordial},
		{"Which devices are dismounted, and what memory-mapped IO space do they show?", b.askDismounted},
		{"Do running VMs show a shutdown component?", b.askShutdown},
		{"Do the cluster's VMs show their offline action?", b.askOfflineActions},
		{"Do the cluster's VMs show their possible owners?", b.askOwners},
	}
	var out []backend.Answer
	for _, q := range questions {
		found, err := q.ask(ctx)
		out = append(out, backend.Answer{Question: q.text, Found: found, Err: complete(ctx, err, "ask the host", "WMI")})
	}
	return out
}

func (b *Backend) askGPUs(ctx context.Context) (string, error) {
	v, err := b.read(ctx)
	if err != nil {
		return "", err
	}
	var lines []string
	for i := range v.host.GPUs {
		g := &v.host.GPUs[i]
		counts := "no GPU-P"
		if p := g.Partitionable; p != nil {
			counts = fmt.Sprintf("%d of %v partitions, paravirtual %t, VRAM %+v", p.Count, p.ValidCounts, p.Paravirtual, p.VRAM)
		}
		lines = append(lines, fmt.Sprintf("%s: %s, %s, driver %q, status %s, %s, MMIO %s below and %s above 4 GiB, problem %q",
			g.ID, g.Model, g.InstancePath, g.Driver.Version, g.Status, counts, g.MMIO.Low, g.MMIO.High, g.Problem))
	}
	return strings.Join(lines, "\n"), nil
}

func (b *Backend) askPartitionPaths(ctx context.Context) (string, error) {
	rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_GpuPartition", "DeviceID", "SystemName", "DeviceInstancePath", "PartitionId", "PartitionVfLuid")
	if errors.Is(err, InvalidClass) {
		return "the class is not there", nil
	}
	return list(rows, "DeviceID", "SystemName", "DeviceInstancePath", "PartitionId", "PartitionVfLuid"), err
}

func (b *Backend) askPoolSettings(ctx context.Context) (string, error) {
	rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_PciExpressSettingData", "InstanceID", "PoolID", "HostResource")
	return list(rows, "InstanceID", "PoolID", "HostResource"), err
}

// asking reads a template and checks that taking its XML apart loses nothing.
func (b *Backend) asking(class string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM "+class+" WHERE InstanceID LIKE "+literal("%"+defaultSuffix), "InstanceID")
		if err != nil {
			return "", err
		}
		found := list(rows, "InstanceID")
		e, err := b.template(ctx, class)
		if err != nil {
			return found, err
		}
		return found + "\n" + e.String(), nil
	}
}

func (b *Backend) askPrimordial(ctx context.Context) (string, error) {
	path, e, err := b.primordial(ctx)
	if err != nil {
		return "", err
	}
	return path + "\n" + e.String(), nil
}

func (b *Backend) askDismounted(ctx context.Context) (string, error) {
	rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_PciExpress", "DeviceID", "SystemName", "DeviceInstancePath", "LocationPath")
	return list(rows, "DeviceID", "SystemName", "DeviceInstancePath", "LocationPath"), err
}

func (b *Backend) askShutdown(ctx context.Context) (string, error) {
	rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_ShutdownComponent", "SystemName", "EnabledState")
	return list(rows, "SystemName", "EnabledState"), err
}

func (b *Backend) askOfflineActions(ctx context.Context) (string, error) {
	rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type="+literal(virtualMachineType), "Name", "PrivateProperties")
	if errors.Is(err, InvalidNamespace) {
		return "the host is in no cluster", nil
	}
	var lines []string
	for _, row := range rows {
		private := row.Row("PrivateProperties")
		lines = append(lines, fmt.Sprintf("%s: VmID %q, OfflineAction %v", row.String("Name"), private.String("VmID"), private.Values["OfflineAction"]))
	}
	return strings.Join(lines, "\n"), err
}

func (b *Backend) askOwners(ctx context.Context) (string, error) {
	v, err := b.read(ctx)
	if err != nil {
		return "", err
	}
	var lines []string
	for i := range v.host.VMs {
		if vm := &v.host.VMs[i]; vm.Clustered {
			lines = append(lines, vm.Name+": "+owners(vm))
		}
	}
	return strings.Join(lines, "\n"), nil
}

func owners(vm *gpu.VM) string {
	if len(vm.PossibleOwners) == 0 {
		return "all nodes"
	}
	return strings.Join(vm.PossibleOwners, ", ")
}

// list prints rows, one per line.
func list(rows []Row, properties ...string) string {
	var lines []string
	for _, row := range rows {
		var words []string
		for _, p := range properties {
			words = append(words, fmt.Sprintf("%s=%v", p, row.Values[p]))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}
