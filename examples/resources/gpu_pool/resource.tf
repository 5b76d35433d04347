# The second GPU of each node. A pool must have the same name and as many GPUs on
# every node that a VM may fail over to.
resource "gpu_pool" "render" {
  name = "render"
  members = {
    hv01 = ["PCIROOT(B0)#PCI(0200)#PCI(0000)"]
    hv02 = ["PCIROOT(B0)#PCI(0200)#PCI(0000)"]
  }

  # Dismount the GPUs even though their driver brings no device mitigations.
  dismount = { force = true }
}
