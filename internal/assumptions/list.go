package assumptions

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

const (
	hyperv    = "internal/backend/hyperv/"
	simulated = "internal/backend/simulated/"
	catalog   = "internal/catalog/"
)

var all = []Assumption{
	{
		ID: "hyperv-location-path", Platform: gpu.HyperV, Asked: true,
		Says:    "The first location path of a GPU begins with PCIROOT and is its own.",
		Source:  "Microsoft's pages on DDA show one such path per device; public scripts choose the one that begins with PCIROOT.",
		Settles: "reading DEVPKEY_Device_LocationPaths of each GPU",
		Where:   []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-partition-path", Platform: gpu.HyperV, Asked: true,
		Says:    "Msvm_GpuPartition.DeviceInstancePath names the GPU and not the virtual function; where it does not, the VM's pin decides, or that only one GPU can be meant.",
		Source:  "Get-VMGpuPartitionAdapter prints the name of the partitionable GPU as InstancePath.",
		Settles: "reading Msvm_GpuPartition while a VM with a partition runs",
		Where:   []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-partition-rows", Platform: gpu.HyperV, Asked: true,
		Says:    "Only VMs that run have rows in Msvm_GpuPartition.",
		Source:  "The class describes allocated partitions. Against it: Microsoft's page prints PartitionId before the VM is started.",
		Settles: "reading Msvm_GpuPartition while a VM with an adapter is off",
		Where:   []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-pool-settings", Platform: gpu.HyperV, Asked: true,
		Says:    "Msvm_PciExpressSettingData lists the settings of pools beside those of VMs.",
		Source:  "The class's page names both uses.",
		Settles: "reading the class on a host with a pool",
		Where:   []string{hyperv + "read_vms.go"},
	},
	{
		ID: "hyperv-partition-template", Platform: gpu.HyperV, Asked: true,
		Says:    "There is a default setting of a GPU partition, and taking its XML apart loses nothing.",
		Source:  "Msvm_GpuPartitionSettingData; the default rows of other classes.",
		Settles: "reading the row whose InstanceID ends in Default",
		Where:   []string{hyperv + "partitions.go"},
	},
	{
		ID: "hyperv-device-template", Platform: gpu.HyperV, Asked: true,
		Says:    "There is a default setting of an assignable device, and taking its XML apart loses nothing.",
		Source:  "Msvm_PciExpressSettingData; public tools that assign devices use it.",
		Settles: "reading the row whose InstanceID ends in Default",
		Where:   []string{hyperv + "devices.go"},
	},
	{
		ID: "hyperv-primordial-settings", Platform: gpu.HyperV, Asked: true,
		Says:    "The pool of all assignable devices has settings of its own.",
		Source:  "Other resource types have them.",
		Settles: "reading the settings of the primordial pool",
		Where:   []string{hyperv + "pools.go"},
	},
	{
		ID: "hyperv-dismounted-memory", Platform: gpu.HyperV, Asked: true,
		Says:    "A dismounted device still shows its memory ranges; without them a plan cannot check memory-mapped IO space.",
		Source:  "Nothing found.",
		Settles: "reading the ranges of a dismounted GPU",
		Where:   []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-shutdown-component", Platform: gpu.HyperV, Asked: true,
		Says:    "A running VM whose guest can be shut down has an Msvm_ShutdownComponent.",
		Source:  "Microsoft's samples end a guest through it.",
		Settles: "reading the class while VMs run",
		Where:   []string{hyperv + "power.go"},
	},
	{
		ID: "hyperv-offline-action", Platform: gpu.HyperV, Asked: true,
		Says:    "The private properties of a VM's cluster resource have its OfflineAction.",
		Source:  "Get-ClusterParameter prints it for VMs.",
		Settles: "reading PrivateProperties of the cluster's VMs",
		Where:   []string{hyperv + "read_cluster.go"},
	},
	{
		ID: "hyperv-gpu-p-counts", Platform: gpu.HyperV, Asked: true,
		Says:    "The counts that the catalog infers from NVIDIA's vGPU types are those that the driver offers.",
		Source:  "NVIDIA's tables of vGPU types; no page about GPU-P has those models.",
		Settles: "comparing ValidPartitionCounts with the catalog",
		Where:   []string{catalog + "catalog.go"},
	},
	{
		ID: "hyperv-count-waits", Platform: gpu.HyperV, Tried: true,
		Says:    "Writing the partition count may return before the driver is done: the agent reads until the count shows, for a minute at most.",
		Source:  "Nothing found.",
		Settles: "writing a count and reading at once",
		Where:   []string{hyperv + "partitions.go"},
	},
	{
		ID: "hyperv-count-restart", Platform: gpu.HyperV,
		Says:    "A partition count may not survive a restart of the host; a plan shows the drift.",
		Source:  "Microsoft's pages do not ask to write it again.",
		Settles: "restarting a host",
		Where:   []string{simulated + "simulation.go"},
	},
	{
		ID: "hyperv-pool-allocation", Platform: gpu.HyperV, Tried: true,
		Says:    "CreatePool wants the parent's PoolID in the allocation setting of a device pool, and after a refusal that of the new pool.",
		Source:  "The cmdlet sends the template as it is; a public recipe for memory pools needs the new pool's name.",
		Settles: "creating a pool",
		Where:   []string{hyperv + "pools.go"},
	},
	{
		ID: "hyperv-offline-action-write", Platform: gpu.HyperV, Tried: true,
		Says:    "The offline action can be written through PrivateProperties.",
		Source:  "Microsoft's own client does so; no example for VMs was found.",
		Settles: "writing it on a clustered VM",
		Where:   []string{hyperv + "vm_settings.go"},
	},
	{
		ID: "hyperv-quotas-at-add", Platform: gpu.HyperV, Tried: true,
		Says:    "Not every host takes quotas when an adapter is added: they are set afterwards.",
		Source:  "A public recipe reports error 32773; Azure Local sets MinPartitionVRAM with the addition.",
		Settles: "adding an adapter with quotas",
		Where:   []string{hyperv + "partitions.go"},
	},
	{
		ID: "hyperv-pool-of-off-vm", Platform: gpu.HyperV, Tried: true,
		Says:    "A pool that a VM which is off still names counts as in use: the agent refuses to delete it.",
		Source:  "Windows Admin Center asks that no VM uses the pool.",
		Settles: "deleting such a pool",
		Where:   []string{simulated + "pools.go"},
	},
	{
		ID: "hyperv-cluster-state", Platform: gpu.HyperV, Tried: true,
		Says:    "Once the cluster's resource of a VM that Hyper-V has shut down shows as offline or failed, BringOnline starts it; until then the agent waits, and it calls again while the VM stays off.",
		Source:  "A cluster looks every five seconds, thoroughly every minute (LooksAlivePollInterval, IsAlivePollInterval).",
		Settles: "shutting down a clustered VM and bringing it online at once",
		Where:   []string{hyperv + "cluster.go"},
	},
	{
		ID: "hyperv-drain-target", Platform: gpu.HyperV,
		Says:    "Pause without a TargetNode lets the cluster choose where a drained node's VMs go.",
		Source:  "Suspend-ClusterNode without a target does so.",
		Settles: "draining a node",
		Where:   []string{hyperv + "node.go"},
	},
	{
		ID: "hyperv-failback", Platform: gpu.HyperV,
		Says:    "Resume with FailbackType 1 moves the VMs that a drain has moved away back to their node, live, as far as it has room; it may return before they are there.",
		Source:  "Resume-ClusterNode -Failback Immediate does so.",
		Settles: "draining and resuming a node with running VMs",
		Where:   []string{hyperv + "node.go"},
	},
	{
		ID: "hyperv-console", Platform: gpu.HyperV,
		Says:    "A GPU with a resolution drives the host's own console.",
		Source:  "Win32_VideoController.CurrentHorizontalResolution is that of a desktop.",
		Settles: "reading it on a host with a monitor, and on one with Remote Desktop alone",
		Where:   []string{hyperv + "read_devices.go"},
	},

	{
		ID: "linux-mig-placements", Platform: gpu.Linux, Asked: true,
		Says:    "The placements of MIG profiles that the catalog infers are the driver's.",
		Source:  "The fractions and counts in NVIDIA's MIG guide, and listings of GPUs of the same kind.",
		Settles: "comparing nvidia-smi mig -lgipp with the catalog",
		Where:   []string{catalog + "mig.go"},
	},
	{
		ID: "linux-mig-memory", Platform: gpu.Linux, Asked: true,
		Says:    "The memory of MIG profiles that the catalog infers is the GPU's, shared out; the driver gives a tenth less at most.",
		Source:  "Listings of other GPUs.",
		Settles: "comparing nvidia-smi mig -lgip with the catalog",
		Where:   []string{catalog + "mig.go"},
	},
	{
		ID: "linux-mig-ids", Platform: gpu.Linux, Asked: true,
		Says:    "The ids of MIG profiles that the catalog infers are those of GPUs with the same geometry.",
		Source:  "The ids of all listed GPUs with seven compute slices are the same.",
		Settles: "comparing nvidia-smi mig -lgip with the catalog",
		Where:   []string{catalog + "mig.go"},
	},
	{
		ID: "linux-time-slice-reset", Platform: gpu.Linux, Tried: true,
		Says:    "A time slice does not survive a reset of the GPU, nor a restart of the host or of the driver: reconcile sets it again.",
		Source:  "nvidia-smi keeps nothing on disk.",
		Settles: "setting one and resetting a GPU whose MIG mode takes that, else by restarting",
		Where:   []string{simulated + "mig.go"},
	},
	{
		ID: "linux-time-slice-volta", Platform: gpu.Linux, Asked: true, Tried: true,
		Says:    "GPUs before Volta have no time slices to choose.",
		Source:  "NVIDIA's DRA driver offers them from Volta on.",
		Settles: "what nvidia-smi compute-policy lists and sets on a Pascal GPU",
		Where:   []string{simulated + "sharing.go"},
	},
}
