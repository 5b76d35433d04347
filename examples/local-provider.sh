#!/bin/sh
# Builds the provider and the agent, and lays them out as a mirror from which `terraform init` and
# `tofu init` install them, for as long as no registry has them:
#
#   eval "$(examples/local-provider.sh)"
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
version=0.1.0
make -s -C "$root" build >&2
platform="$(go env GOOS)_$(go env GOARCH)"
mirror=$root/bin/mirror
for registry in registry.terraform.io registry.opentofu.org; do
	folder=$mirror/$registry/gpufleet/gpu/$version/$platform
	mkdir -p "$folder"
	cp "$root/bin/terraform-provider-gpu" "$folder/terraform-provider-gpu_v$version"
	cp "$root/bin/gpu-agent" "$folder/gpu-agent"
done
ours='["registry.terraform.io/gpufleet/gpu", "registry.opentofu.org/gpufleet/gpu"]'
cat >"$root/bin/local.tfrc" <<END
provider_installation {
  filesystem_mirror {
    path    = "$mirror"
    include = $ours
  }
  direct {
    exclude = $ours
  }
}
END
echo "export TF_CLI_CONFIG_FILE='$root/bin/local.tfrc'"
