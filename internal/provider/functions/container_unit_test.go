package functions_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// A share goes in as it is, or by its name.
func TestContainerUnit(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	has := func(pattern string) knownvalue.Check { return knownvalue.StringRegexp(regexp.MustCompile(pattern)) }
	r.Steps(resource.TestStep{
		Config: `
resource "terraform_data" "chat" { input = { name = "chat", cdi_device = "gpufleet.com/share=chat" } }
locals {
  named = { name = "b1", image = "debian:12", engine = "docker" }
}
output "of_resource" {
  value = provider::gpu::container_unit(terraform_data.chat.output, { image = "debian:12", command = ["echo", "$HOME 5%"] })
}
output "of_name" { value = provider::gpu::container_unit("gpufleet.com/share=a:b", local.named).systemd }
`,
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownOutputValue("of_resource", knownvalue.ObjectExact(map[string]knownvalue.Check{
				"quadlet": has(`\nImage=debian:12\nAddDevice=gpufleet.com/share=chat\nExec=echo "\$\$HOME 5%%"\n`),
				"systemd": has(`\nExecStart=/usr/bin/podman run --rm --name chat --device gpufleet.com/share=chat debian:12 echo "\$\$HOME 5%%"\n`),
				"compose": has(`- \$\$HOME 5%\n`),
				"docker_run": knownvalue.StringExact("docker run --detach --name chat --restart on-failure --device gpufleet.com/share=chat " +
					`debian:12 echo '$HOME 5%'`),
			})),
			statecheck.ExpectKnownOutputValue("of_name", has(`\nExecStart=/usr/bin/docker run --rm --name b1 `)),
		},
	})
}

// A mistake is told by the plan, also beside a share that is not made yet.
func TestContainerUnitRefuses(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	var steps []resource.TestStep
	for call, says := range map[string]string{
		`"chat", { image = "debian" }`:                         `it is no CDI device such as "gpufleet.com/share=chat"`,
		`{ name = "chat" }, { image = "debian" }`:              `a gpu_share, or its cdi_device, is wanted`,
		`"gpufleet.com/share=a:b", { image = "debian" }`:       `name: "a:b" is not the name of a container`,
		`"gpufleet.com/share=chat", {}`:                        `image is missing`,
		`"gpufleet.com/share=chat", "debian"`:                  `an object is wanted`,
		`terraform_data.new.id, { img = "debian" }`:            `there is no attribute "img"`,
		`terraform_data.new.id, { image = "a b" }`:             `image: "a b" is not the name of an image`,
		`terraform_data.new.id, { image = "a", ports = [80] }`: `ports: a list of strings is wanted`,
	} {
		pattern := `(?i)` + strings.ReplaceAll(regexp.QuoteMeta(says), " ", `\s+`)
		steps = append(steps, resource.TestStep{
			Config: `resource "terraform_data" "new" { input = "` + strings.ReplaceAll(call, `"`, "") + `" }
output "o" { value = provider::gpu::container_unit(` + call + `) }`,
			ExpectError: regexp.MustCompile(pattern), PlanOnly: true,
		})
	}
	r.Steps(steps...)
}
