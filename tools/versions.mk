# The development tools, built from their Go modules into tools/bin. buf stays at
# the last version whose dependencies are all released.
GOTESTSUM          := gotest.tools/gotestsum@v1.13.0
GOLANGCI_LINT      := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
TFPLUGINDOCS       := github.com/hashicorp/terraform-plugin-docs/cmd/tfplugindocs@v0.25.0
ACTIONLINT         := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOVULNCHECK        := golang.org/x/vuln/cmd/govulncheck@v1.9.0
BUF                := github.com/bufbuild/buf/cmd/buf@v1.57.0
PROTOC_GEN_GO      := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
PROTOC_GEN_GO_GRPC := google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
# For make test-policy only; it takes minutes to build.
OPA                := github.com/open-policy-agent/opa@v1.22.2
# For make test-gitops only; it takes minutes to build.
CONFTEST           := github.com/open-policy-agent/conftest@v0.71.1
# For make release-dry-run only; they take minutes to build. The last that need no newer Go.
GORELEASER         := github.com/goreleaser/goreleaser/v2@v2.15.4
SYFT               := github.com/anchore/syft/cmd/syft@v1.44.0
# Where no terraform and no tofu is installed.
OPENTOFU           := v1.12.6
# For make test-query only: the first that has list resources and actions.
TERRAFORM_QUERY    := v1.14.9
