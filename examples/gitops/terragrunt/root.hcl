# What the units of all fleets have in common. The image of the pipeline has forecast.jq and the policies, and not the branch that is
# planned; RECORDING is a file of the default branch.
terraform {
  source = "${get_parent_terragrunt_dir("root")}/../stack"

  # A plan of a pull request goes by a recording, and has no key: PLAN_ON=recording RECORDING=... terragrunt plan
  extra_arguments "recording" {
    commands = get_env("PLAN_ON", "hosts") == "recording" ? ["plan"] : []
    env_vars = {
      GPU_INVENTORY_SNAPSHOT = get_env("RECORDING", "${get_terragrunt_dir()}/recorded.json")
    }
  }

  extra_arguments "saved" {
    commands  = ["plan"]
    arguments = ["-out=gpus.tfplan", "-compact-warnings"]
  }

  after_hook "forecast" {
    commands = ["plan"]
    execute = ["bash", "-c", join(" && ", [
      "\"$${TG_CTX_TF_PATH:-terraform}\" show -json gpus.tfplan > plan.json", # the CLI that made the plan: terragrunt may take tofu
      "env -i PATH=\"$PATH\" jq -r -f /opt/gpus/forecast.jq plan.json | tee '${get_terragrunt_dir()}/forecast.md'",
      "conftest test --policy /opt/policy plan.json",
    ])]
  }
}
