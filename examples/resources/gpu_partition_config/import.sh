# The hosts that share the layout, separated by commas. A kind may follow, as in hgx01:mig,
# kvm01:vgpu, gpu01:mps or gpu01:time_slicing, and a name may stand before, as in
# vdi@hv01,hv02. Of one host whose GPUs have several layouts, GPUs are named after the
# kind, as in hgx01:mig@GPU-1,GPU-2.
terraform import gpu_partition_config.vdi hv01,hv02
