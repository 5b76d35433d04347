package functions

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/gpufleet/terraform-provider-gpu/internal/container"
)

type containerUnit struct{}

// NewContainerUnit makes the function container_unit.
func NewContainerUnit() function.Function { return containerUnit{} }

func (containerUnit) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "container_unit"
}

func (containerUnit) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Writes how a container on a share is started",
		MarkdownDescription: "Writes how a container is started that is given a `gpu_share` by CDI. It returns an object with\n\n" +
			"- `quadlet`: a file `NAME.container` for `/etc/containers/systemd`, of which Podman (from 4.4 on) makes a service;\n" +
			"- `systemd`: a file `NAME.service` for `/etc/systemd/system`, for hosts with an older Podman, or with Docker;\n" +
			"- `compose`: a `compose.yaml`; Docker Compose has to know CDI devices;\n" +
			"- `docker_run`: a line for a shell.\n\n" +
			"Units start after `gpu-agent-reconcile.service`, which brings shares back after a reboot. Every value arrives in the container as " +
			"it is written here: what systemd, a shell or Compose would replace is escaped. The share's own variables are not among them, as CDI " +
			"sets them. Podman's generator (5.4.2), `systemd-analyze verify`, a shell and Compose's own parser have judged the texts.",
		Parameters: []function.Parameter{
			anything("share", "A `gpu_share`, or its `cdi_device`."),
			anything("container", "An object with\n\n"+
				"- `image`: the image;\n"+
				"- `name`: the container's name; the share's when left out;\n"+
				"- `command`: a list of arguments for the image; optional;\n"+
				"- `environment`: variables, by name; optional. Secrets would be in the state and in the file;\n"+
				"- `volumes` and `ports`: lists, as in `[\"/srv/models:/models:ro\"]` and `[\"127.0.0.1:8000:8000\"]`; optional;\n"+
				"- `restart`: `no`, `on-failure` or `always`; the default is `on-failure`;\n"+
				"- `engine`: `podman` or `docker`, for `systemd` and `docker_run`; the defaults are `podman` and `docker`.\n\n"+
				"What a plan does not know yet is passed over, and the rest is checked."),
		},
		Return: function.ObjectReturn{AttributeTypes: unitType},
	}
}

var unitType = map[string]attr.Type{
	"quadlet": types.StringType, "systemd": types.StringType, "compose": types.StringType, "docker_run": types.StringType,
}

// unitTexts is the result as Terraform has it.
type unitTexts struct {
	Quadlet string `tfsdk:"quadlet"`
	Systemd string `tfsdk:"systemd"`
	Compose string `tfsdk:"compose"`
	Command string `tfsdk:"docker_run"`
}

func (containerUnit) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var arguments [2]types.Dynamic
	if resp.Error = req.Arguments.Get(ctx, &arguments[0], &arguments[1]); resp.Error != nil {
		return
	}
	var values [2]tftypes.Value
	for i := range arguments {
		var err error
		if values[i], err = arguments[i].ToTerraformValue(ctx); err != nil {
			resp.Error = function.NewArgumentFuncError(int64(i), sentence(err))
			return
		}
	}
	out, at, err := writeUnit(values[0], values[1])
	if err != nil {
		resp.Error = function.NewArgumentFuncError(int64(at), sentence(err))
		return
	}
	if !unknown(deviceOf(values[0])) && values[1].IsFullyKnown() {
		resp.Error = resp.Result.Set(ctx, unitTexts(out))
	}
}

// writeUnit tells with an error which argument it is about.
func writeUnit(share, of tftypes.Value) (container.Texts, int, error) {
	name, device, err := decodeShare(share)
	if err != nil {
		return container.Texts{}, 0, err
	}
	c := container.Container{Name: name, Device: device, Image: "unknown"}
	if unknown(of) {
		c.Name = "unknown"
	} else {
		fields, err := object(of)
		if err != nil {
			return container.Texts{}, 1, err
		}
		if image := fields["image"]; image.Type() == nil || image.IsNull() {
			c.Image = "" // which is refused
		}
		if unknown(fields["name"]) {
			c.Name = "unknown"
		}
		if err := decodeFields(fields, map[string]reader{
			"command":     into(&c.Command, texts),
			"engine":      into(&c.Engine, text),
			"environment": into(&c.Environment, variables),
			"image":       into(&c.Image, text),
			"name":        into(&c.Name, text),
			"ports":       into(&c.Ports, texts),
			"restart":     into(&c.Restart, text),
			"volumes":     into(&c.Volumes, texts),
		}); err != nil {
			return container.Texts{}, 1, err
		}
	}
	out, err := container.Render(&c)
	return out, 1, err
}

// decodeShare reads the name of a share, and what a container asks for it by.
func decodeShare(v tftypes.Value) (name, device string, err error) {
	const placeholder = "gpufleet.com/share=unknown"
	field := deviceOf(v)
	switch {
	case unknown(field):
		device = placeholder
	case field.Type() == nil || field.IsNull() || !field.Type().Is(tftypes.String):
		return "", "", errors.New("a gpu_share, or its cdi_device, is wanted")
	default:
		device, err = text(field)
	}
	if err == nil {
		_, _, name, err = parser.ParseQualifiedName(device)
	}
	if err != nil {
		return "", "", fmt.Errorf("it is no CDI device such as %q: %w", "gpufleet.com/share=chat", err)
	}
	return name, device, nil
}

// deviceOf is the value of a share that says what a container asks for it by.
func deviceOf(v tftypes.Value) tftypes.Value {
	if fields, is := object(v); is == nil {
		return fields["cdi_device"]
	}
	return v
}

// variables reads texts by name.
func variables(v tftypes.Value) (map[string]string, error) {
	fields, err := object(v)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, v := range fields {
		if !v.IsKnown() {
			out[name] = ""
			continue
		}
		if out[name], err = text(v); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return out, nil
}
