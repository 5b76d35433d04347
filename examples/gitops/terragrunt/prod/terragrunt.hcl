# Once it is merged: terragrunt plan with a reader's key, terragrunt apply gpus.tfplan with an operator's, and at night, for
# drift, terragrunt plan -detailed-exitcode.
include "root" {
  path = find_in_parent_folders("root.hcl")
}

inputs = {
  nodes           = ["hv01", "hv02"]
  partition_count = 8
  desktops        = ["avd-01", "avd-02", "avd-07"]
  maintenance_window   = { start = "22:00", end = "04:00", timezone = "Europe/Berlin" }
}
