# What the units of all fleets have in common.
terraform {
  source = "${get_parent_terragrunt_dir("root")}/../stack"

  # A plan of a pull request goes by the recording beside the unit: PLAN_ON=recording terragrunt plan
  extra_arguments "recording" {
    commands = get_env("PLAN_ON", "hosts") == "recording" ? ["plan"] : []
    env_vars = {
      GPU_INVENTORY_SNAPSHOT = "${get_terragrunt_dir()}/recorded.json"
    }
  }

  extra_arguments "saved" {
    commands  = ["plan"]
    arguments = ["-out=gpus.tfplan", "-compact-warnings"]
  }

  after_hook "forecast" {
    commands = ["plan"]
    execute = ["bash", "-c", join(" && ", [
      "terraform show -json gpus.tfplan > plan.json",
      "jq -r -f '${get_parent_terragrunt_dir("root")}/../forecast.jq' plan.json | tee '${get_terragrunt_dir()}/forecast.md'",
      "conftest test --policy '${get_parent_terragrunt_dir("root")}/../../policy' plan.json",
    ])]
  }
}
