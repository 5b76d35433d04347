# One MPS daemon for all GPUs of a Linux host, whose clients are processes of one user. Each
# process may use a quarter of the multiprocessors and 10 GiB of memory of a GPU.
resource "gpu_partition_config" "inference" {
  name  = "inference"
  hosts = ["gpu01"]
  mps = {
    uid                      = 1000
    active_thread_percentage = 25
    pinned_memory_limit_mib  = 10240
  }

  # A change that restarts the daemon may end its clients.
  max_disruption = "process_restart"
}

# One daemon for each GPU of another host: a fault of one client ends none on other GPUs, and
# each process and share has one GPU.
resource "gpu_partition_config" "serving" {
  name  = "serving"
  hosts = ["gpu02"]
  mps = {
    uid     = 1000
    daemons = "per_gpu"
  }
}

# MPS inside of each GPU instance of another host, with a daemon for each.
resource "gpu_partition_config" "notebooks" {
  name  = "notebooks"
  hosts = ["hgx01"]
  mig = {
    profiles = { "3g.40gb" = 2 }
    mps      = { multi_user = true }
  }
}

# What a process of the host sets CUDA_MPS_PIPE_DIRECTORY to. Containers get it, and a part
# of their own, from gpu_share.
output "pipe_directories" {
  value = gpu_partition_config.inference.mps_daemons["gpu01"][*].pipe_directory
}
