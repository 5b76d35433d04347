// Package examples embeds the pipelines that gpu-agent init writes, so that a starter is the example itself.
package examples

import "embed"

// GitOps are the files of the pipelines for GitHub, GitLab and Atlantis, their script, configuration and policies.
//
//go:embed gitops/gpus gitops/forecast.jq gitops/stack/main.tf
//go:embed gitops/github-actions/gpus.yml gitops/gitlab/.gitlab-ci.yml
//go:embed gitops/atlantis/atlantis.yaml gitops/atlantis/repos.yaml gitops/atlantis/operator.yaml
//go:embed policy/gpu.rego policy/gpu_test.rego
var GitOps embed.FS
