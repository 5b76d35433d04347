# The hosts that share the layout, separated by commas.
terraform import gpu_partition_config.vdi hv01,hv02
