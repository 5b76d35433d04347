terraform {
  required_version = ">= 1.9"

  required_providers {
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = ">= 2.10"
    }
  }
}

provider "kubernetes" {
  config_path = "~/.kube/config"
}

# The configurations and labels of the folder above.
module "device_plugin" {
  source = "../"
}

resource "kubernetes_config_map_v1" "device_plugin" {
  metadata {
    name      = "device-plugin-configs"
    namespace = "gpu-operator"
  }
  data = module.device_plugin.configs
}

resource "kubernetes_labels" "gpu_node" {
  for_each = module.device_plugin.labels

  api_version = "v1"
  kind        = "Node"
  metadata {
    name = each.key
  }
  labels = each.value
}
