# A VM of dmacvicar/libvirt that is made with a vGPU. Its libvirt_domain owns the VM's whole definition, so that the vGPU is reserved
# here (attach = "none") and named there.
terraform {
  required_version = ">= 1.9"

  required_providers {
    gpu = {
      source  = "gpufleet/gpu"
      version = ">= 0.1.0"
    }
    libvirt = {
      source  = "dmacvicar/libvirt"
      version = "~> 0.9.7"
    }
  }
}

provider "gpu" {
  owner = "kvm-desks"
  hosts = { kvm01 = { ssh = { address = "kvm01.example.net", user = "gpu-agent" } } }
}

provider "libvirt" {
  uri = "qemu+ssh://root@kvm01.example.net/system"
}

resource "gpu_partition_config" "desks" {
  name  = "desks"
  hosts = ["kvm01"]
  vgpu  = { type = "L40S-12Q" }
}

resource "gpu_vm_assignment" "render" {
  vm        = "render-01"
  partition = { config = gpu_partition_config.desks.id, attach = "none" }
}

locals {
  vgpu = regex("^(?P<domain>[[:xdigit:]]+):(?P<bus>[[:xdigit:]]+):(?P<slot>[[:xdigit:]]+)[.](?P<function>[[:xdigit:]])$",
  gpu_vm_assignment.render.partition_address)
}

resource "libvirt_domain" "render" {
  name        = "render-01"
  type        = "kvm"
  memory      = 16
  memory_unit = "GiB"
  vcpu        = 8
  os          = { type = "hvm", type_arch = "x86_64", type_machine = "q35" }

  devices = {
    hostdevs = [{
      managed = false # otherwise libvirt takes the function from NVIDIA's driver, and the vGPU is lost
      subsys_pci = {
        source = { address = { for part, digits in local.vgpu : part => parseint(digits, 16) } }
      }
    }]
  }
}
