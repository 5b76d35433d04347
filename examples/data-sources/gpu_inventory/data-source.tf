# All hosts of the provider. Name some with hosts = ["hv01"].
data "gpu_inventory" "all" {}

output "inventory" {
  value = data.gpu_inventory.all
}
