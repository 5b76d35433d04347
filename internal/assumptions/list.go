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
		Says:     "The first location path of a GPU begins with PCIROOT and is its own.",
		Source:   "Microsoft's pages on DDA show one such path per device; public scripts choose the one that begins with PCIROOT.",
		Answered: "reading DEVPKEY_Device_LocationPaths of each GPU",
		Where:    []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-partition-path", Platform: gpu.HyperV, Asked: true,
		Says: "Msvm_GpuPartition.DeviceInstancePath names the GPU and not the virtual function; where it does not, the VM's pin decides, " +
			"or that only one GPU can be meant.",
		Source:   "Get-VMGpuPartitionAdapter prints the name of the partitionable GPU as InstancePath.",
		Answered: "reading Msvm_GpuPartition while a VM with a partition runs",
		Where:    []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-partition-rows", Platform: gpu.HyperV, Asked: true,
		Says:     "Only VMs that run have rows in Msvm_GpuPartition.",
		Source:   "The class describes allocated partitions. Against it: Microsoft's page prints PartitionId before the VM is started.",
		Answered: "reading Msvm_GpuPartition while a VM with an adapter is off",
		Where:    []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-pool-settings", Platform: gpu.HyperV, Asked: true,
		Says:     "Msvm_PciExpressSettingData lists the settings of pools beside those of VMs.",
		Source:   "The class's page names both uses.",
		Answered: "reading the class on a host with a pool",
		Where:    []string{hyperv + "read_vms.go"},
	},
	{
		ID: "hyperv-partition-template", Platform: gpu.HyperV, Asked: true,
		Says:     "There is a default setting of a GPU partition, and taking its XML apart loses nothing.",
		Source:   "Msvm_GpuPartitionSettingData; the default rows of other classes.",
		Answered: "reading the row whose InstanceID ends in Default",
		Where:    []string{hyperv + "partitions.go"},
	},
	{
		ID: "hyperv-device-template", Platform: gpu.HyperV, Asked: true,
		Says:     "There is a default setting of an assignable device, and taking its XML apart loses nothing.",
		Source:   "Msvm_PciExpressSettingData; public tools that assign devices use it.",
		Answered: "reading the row whose InstanceID ends in Default",
		Where:    []string{hyperv + "devices.go"},
	},
	{
		ID: "hyperv-primordial-settings", Platform: gpu.HyperV, Asked: true,
		Says:     "The pool of all assignable devices has settings of its own.",
		Source:   "Other resource types have them.",
		Answered: "reading the settings of the primordial pool",
		Where:    []string{hyperv + "pools.go"},
	},
	{
		ID: "hyperv-dismounted-memory", Platform: gpu.HyperV, Asked: true,
		Says:     "A dismounted device still shows its memory ranges; without them a plan cannot check memory-mapped IO space.",
		Source:   "Nothing found.",
		Answered: "reading the ranges of a dismounted GPU",
		Where:    []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-dismounted-class", Platform: gpu.HyperV, Asked: true,
		Says:     "The hardware ids of a dismounted device still have PCI's class code; of one that has none the vendor decides.",
		Source:   "Nothing found of devices on the bus PCIP; those on the bus PCI have it.",
		Answered: "reading HardwareID and CompatibleID of dismounted devices",
		Where:    []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-property-types", Platform: gpu.HyperV, Asked: true,
		Says: "Device properties arrive in the types that Windows declares them with; above all, that a device needs reserved memory is a " +
			"boolean.",
		Source:   "The driver kit's table of properties; Microsoft's survey script prints False.",
		Answered: "reading GetDeviceProperties of each GPU",
		Where:    []string{hyperv + "read_devices.go"},
	},
	{
		ID: "hyperv-shutdown-component", Platform: gpu.HyperV, Asked: true,
		Says:     "A running VM whose guest can be shut down has an Msvm_ShutdownComponent.",
		Source:   "Microsoft's samples end a guest through it.",
		Answered: "reading the class while VMs run",
		Where:    []string{hyperv + "power.go"},
	},
	{
		ID: "hyperv-offline-action", Platform: gpu.HyperV, Asked: true,
		Says:     "The private properties of a VM's cluster resource have its OfflineAction.",
		Source:   "Get-ClusterParameter prints it for VMs.",
		Answered: "reading PrivateProperties of the cluster's VMs",
		Where:    []string{hyperv + "read_cluster.go"},
	},
	{
		ID: "hyperv-gpu-p-counts", Platform: gpu.HyperV, Asked: true,
		Says:     "The counts that the catalog infers from NVIDIA's vGPU types are those that the driver offers.",
		Source:   "NVIDIA's tables of vGPU types; no page about GPU-P has those models.",
		Answered: "comparing ValidPartitionCounts with the catalog",
		Where:    []string{catalog + "catalog.go"},
	},
	{
		ID: "hyperv-count-waits", Platform: gpu.HyperV, Tried: true,
		Says: "Writing the partition count may return before the driver is done: the agent reads until the count shows, for a minute at " +
			"most.",
		Source:   "Nothing found.",
		Answered: "writing a count and reading at once",
		Unasked:  "how long a driver takes shows only when a count is written",
		Where:    []string{hyperv + "partitions.go"},
	},
	{
		ID: "hyperv-count-restart", Platform: gpu.HyperV,
		Says:     "A partition count may not survive a restart of the host; a plan shows the drift.",
		Source:   "Microsoft's pages do not ask to write it again.",
		Answered: "restarting a host",
		Unasked:  "it takes a restart of the host, which the agent never does",
		Where:    []string{simulated + "simulation.go"},
	},
	{
		ID: "hyperv-emptier-gpu", Platform: gpu.HyperV,
		Says: "A VM that is pinned to no GPU takes its partition of a GPU with the most free ones, of any of them, and what is pinned of " +
			"the same VM first. Where a run pins one VM and starts another one that is not pinned, the plan counts with that.",
		Source:   "Microsoft's pages say only that the choice is automatic.",
		Answered: "starting VMs on a host with several divided GPUs",
		Unasked:  "it takes a start of several VMs",
		Where:    []string{"internal/gpu/vm.go", "internal/rules/pinned.go", simulated + "placement.go"},
	},
	{
		ID: "hyperv-other-services", Platform: gpu.HyperV,
		Says:     "Where Virtual Machine Manager manages a host, its service SCVMMAgent runs; where Azure Local's VMs run, wssdagent does.",
		Source:   "Scripts of Microsoft's and of others ask for services of these names; no page lists them.",
		Answered: "Get-Service on a host of each",
		Unasked:  "it takes a host that such software manages",
		Where:    []string{hyperv + "controllers.go"},
	},
	{
		ID: "hyperv-replica-id", Platform: gpu.HyperV,
		Says: "The copy that Hyper-V Replica keeps of a VM has the VM's id, and ReplicationMode 2 or 4. Until it is failed over to it does " +
			"not run, and is no place to assign a GPU to.",
		Source: "Msvm_ComputerSystem.ReplicationMode names the modes; that the id is the same is what administrators see in Get-VM on both " +
			"hosts.",
		Answered: "reading Msvm_ComputerSystem on both hosts of a pair that replicates",
		Unasked:  "it takes two hosts that replicate",
		Where:    []string{hyperv + "read_host.go"},
	},
	{
		ID: "hyperv-pool-allocation", Platform: gpu.HyperV, Tried: true,
		Says:     "CreatePool wants the parent's PoolID in the allocation setting of a device pool, and after a refusal that of the new pool.",
		Source:   "The cmdlet sends the template as it is; a public recipe for memory pools needs the new pool's name.",
		Answered: "creating a pool",
		Unasked:  "it takes a pool that is created",
		Where:    []string{hyperv + "pools.go"},
	},
	{
		ID: "hyperv-offline-action-write", Platform: gpu.HyperV, Tried: true,
		Says:     "The offline action can be written through PrivateProperties.",
		Source:   "Microsoft's own client does so; no example for VMs was found.",
		Answered: "writing it on a clustered VM",
		Unasked:  "it takes a write to the cluster",
		Where:    []string{hyperv + "vm_settings.go"},
	},
	{
		ID: "hyperv-quotas-at-add", Platform: gpu.HyperV, Tried: true,
		Says:     "Not every host takes quotas when an adapter is added: they are set afterwards.",
		Source:   "A public recipe reports error 32773; Azure Local sets MinPartitionVRAM with the addition.",
		Answered: "adding an adapter with quotas",
		Unasked:  "it takes an adapter that is added",
		Where:    []string{hyperv + "partitions.go"},
	},
	{
		ID: "hyperv-pool-of-off-vm", Platform: gpu.HyperV, Tried: true,
		Says:     "A pool that a VM which is off still names counts as in use: the agent refuses to delete it.",
		Source:   "Windows Admin Center asks that no VM uses the pool.",
		Answered: "deleting such a pool",
		Unasked:  "it takes a pool that is deleted",
		Where:    []string{simulated + "pools.go"},
	},
	{
		ID: "hyperv-cluster-state", Platform: gpu.HyperV, Tried: true,
		Says: "Once the cluster's resource of a VM that Hyper-V has shut down shows as offline or failed, BringOnline starts it; until " +
			"then the agent waits, and it calls again while the VM stays off.",
		Source:   "A cluster looks every five seconds, thoroughly every minute (LooksAlivePollInterval, IsAlivePollInterval).",
		Answered: "shutting down a clustered VM and bringing it online at once",
		Unasked:  "it takes a VM that is shut down",
		Where:    []string{hyperv + "cluster.go"},
	},
	{
		ID: "hyperv-drain-target", Platform: gpu.HyperV,
		Says:     "Pause without a TargetNode lets the cluster choose where a drained node's VMs go.",
		Source:   "Suspend-ClusterNode without a target does so.",
		Answered: "draining a node",
		Unasked:  "it takes a drain, which moves other people's VMs",
		Where:    []string{hyperv + "node.go"},
	},
	{
		ID: "hyperv-failback", Platform: gpu.HyperV,
		Says: "Resume with FailbackType 1 moves the VMs that a drain has moved away back to their node, live, as far as it has room; it " +
			"may return before they are there.",
		Source:   "Resume-ClusterNode -Failback Immediate does so.",
		Answered: "draining and resuming a node with running VMs",
		Unasked:  "it takes a drain, which moves other people's VMs",
		Where:    []string{hyperv + "node.go"},
	},
	{
		ID: "hyperv-console", Platform: gpu.HyperV,
		Says:     "A GPU with a resolution drives the host's own console.",
		Source:   "Win32_VideoController.CurrentHorizontalResolution is that of a desktop.",
		Answered: "reading it on a host with a monitor, and on one with Remote Desktop alone",
		Unasked:  "whether a monitor is connected only a person at the host can see",
		Where:    []string{hyperv + "read_devices.go"},
	},

	{
		ID: "linux-mig-placements", Platform: gpu.Linux, Asked: true,
		Says:     "The placements of MIG profiles that the catalog infers are the driver's.",
		Source:   "The fractions and counts in NVIDIA's MIG guide, and listings of GPUs of the same kind.",
		Answered: "comparing nvidia-smi mig -lgipp with the catalog",
		Where:    []string{catalog + "mig.go"},
	},
	{
		ID: "linux-mig-memory", Platform: gpu.Linux, Asked: true,
		Says:     "The memory of MIG profiles that the catalog infers is the GPU's, shared out; the driver gives a tenth less at most.",
		Source:   "Listings of other GPUs.",
		Answered: "comparing nvidia-smi mig -lgip with the catalog",
		Where:    []string{catalog + "mig.go"},
	},
	{
		ID: "linux-mig-ids", Platform: gpu.Linux, Asked: true,
		Says:     "The ids of MIG profiles that the catalog infers are those of GPUs with the same geometry.",
		Source:   "The ids of all listed GPUs with seven compute slices are the same.",
		Answered: "comparing nvidia-smi mig -lgip with the catalog",
		Where:    []string{catalog + "mig.go"},
	},
	{
		ID: "linux-vgpu-order", Platform: gpu.Linux,
		Says: "MIG mode is switched while a GPU's virtual functions are off, and functions that are switched, either way, take the GPU " +
			"instances.",
		Source: "NVIDIA's vGPU user guide has MIG mode before instances and both before vGPUs; what the functions do to instances is from a " +
			"public report about an RTX PRO 6000.",
		Answered: "making MIG-backed vGPUs on a GPU",
		Unasked:  "it takes a GPU with NVIDIA's vGPU Manager whose functions are switched",
		Where:    []string{"internal/change/kind_vgpu.go"},
	},
	{
		ID: "linux-vgpu-per-instance", Platform: gpu.Linux,
		Says: "A GPU instance takes as many vGPUs of a MIG-backed type as the GPU takes of the type for each instance of the profile: one, " +
			"but on GPUs whose instances are shared by time slices, in a mode of the driver.",
		Source:   "NVIDIA's tables of vGPU types have both numbers.",
		Answered: "comparing nvmlVgpuTypeGetMaxInstances with nvmlVgpuTypeGetMaxInstancesPerGpuInstance, from driver 575 on",
		Unasked:  "it takes NVIDIA's vGPU Manager",
		Where:    []string{"internal/placement/vgpu.go"},
	},
	{
		ID: "linux-vgpu-mig-time-slicing", Platform: gpu.Linux,
		Says: "A driver lists the vGPU types of which a GPU instance takes several before its MIG time-sliced mode is on. The agent switches " +
			"that on when it makes such a vGPU, and nothing puts it back.",
		Source:   "nvml.h: the mode is one of reporting, without impact on the underlying functionality.",
		Answered: "comparing nvmlVgpuTypeGetMaxInstances with NVML_DEVICE_VGPU_CAP_MIG_TIMESLICING_ENABLED on and off",
		Unasked:  "it takes a GPU whose instances are shared by time slices",
		Where:    []string{"internal/backend/nvidia/vgpu_nvml.go"},
	},
	{
		ID: "linux-vgpu-instance-id", Platform: gpu.Linux,
		Says: "A virtual function shows in nvidia/gpu_instance_id the GPU instance of its vGPU. Where it does not, and with mediated " +
			"devices, vGPUs of a profile that loses an instance are made again, and with one that is held the change is refused.",
		Source:   "NVIDIA's kernel module has the file; when it is filled is not documented.",
		Answered: "reading the file of a MIG-backed vGPU before and after a VM starts with it",
		Unasked:  "it takes a MIG-backed vGPU that a VM runs with",
		Where:    []string{"internal/placement/vgpu_plan.go"},
	},
	{
		ID: "linux-mps-partitions", Platform: gpu.Linux,
		Says: "With -S, from driver R590 on, a control daemon takes sm_partition add, rm and lspart before any client has come, prints the " +
			"id of a partition with its GPU's UUID when it makes one, shows in lspart the beginning of the id and all chunks of a GPU as free or " +
			"used, and forgets partitions when it ends.",
		Source: "NVIDIA's guide to MPS has -S, the commands' names and the variable CUDA_MPS_SM_PARTITION. The columns of lspart, what " +
			"adding and refusing print, sizes of chunks and the first driver are inferred from public scripts and release dates; nobody here has " +
			"seen them on a GPU.",
		Answered: "nvidia-cuda-mps-control -d -S, lspart and sm_partition add on an idle GPU of Ampere or later",
		Unasked:  "it takes a daemon of its own on a GPU",
		Where:    []string{"internal/backend/nvidia/mps/partitions_linux.go", "internal/fake/mps/partitions_linux.go"},
	},
	{
		ID: "linux-mps-orphans", Platform: gpu.Linux,
		Says: "The servers of a control daemon that is killed end with it, and what their clients compute. One that hangs may outlive it: " +
			"until its clients have ended, no other daemon is started in its place.",
		Source: "On an H100 with driver 580 the server was gone at once, and a client that computed failed with CUDA error 806; its process " +
			"stays until it ends by itself. That a server may hang is inferred.",
		Answered: "killing a control daemon that has clients, as make test-gpu does",
		Unasked:  "it takes a daemon of its own on a GPU",
		Where:    []string{"internal/backend/nvidia/mps/plan_linux.go", "internal/fake/others/processes.go"},
	},
	{
		ID: "linux-last-client", Platform: gpu.Linux,
		Says: "When the last program that has a GPU without persistence mode open ends, the driver forgets its time slice like its compute " +
			"mode, and keeps its MIG mode and instances.",
		Source: "NVIDIA's Driver Persistence names the compute mode among what is lost then, and neither of the others; the MIG user guide " +
			"has instances last until a reset or a restart.",
		Answered: "setting a time slice and making an instance on an idle GPU without persistence mode, and reading them when nothing has had " +
			"the GPU open for seconds",
		Unasked: "it takes a GPU that nothing else has open",
		Where:   []string{"internal/rules/mps_check.go", "internal/fake/nvml/lib/gpu.c"},
	},
	{
		ID: "linux-time-slice-reset", Platform: gpu.Linux, Tried: true,
		Says:     "A time slice does not survive a reset of the GPU, nor a restart of the host or of the driver: reconcile sets it again.",
		Source:   "nvidia-smi keeps nothing on disk.",
		Answered: "setting one and resetting a GPU whose MIG mode takes that, else by restarting",
		Unasked:  "it takes a reset",
		Where:    []string{"internal/fake/others/gpus.go"},
	},
	{
		ID: "linux-time-slice-volta", Platform: gpu.Linux, Asked: true, Tried: true,
		Says:     "GPUs before Volta have no time slices to choose.",
		Source:   "NVIDIA's DRA driver offers them from Volta on.",
		Answered: "what nvidia-smi compute-policy lists and sets on a Pascal GPU",
		Where:    []string{simulated + "sharing.go"},
	},
	{
		ID: "linux-other-programs", Platform: gpu.Linux,
		Says: "HAMi's device plugin is told from NVIDIA's by --disable-core-limit or HOOK_PATH, and divides GPUs by itself where its node's " +
			"operatingmode is mig; KAI's daemons on a node are called mpsd and fractiond.",
		Source:   "HAMi's chart and source have both. KAI's names are from guides about it; its source does not have the daemons.",
		Answered: "ps and /proc on a node of each",
		Unasked:  "it takes a node that such software manages",
		Where:    []string{"internal/backend/nvidia/controllers.go"},
	},
}
