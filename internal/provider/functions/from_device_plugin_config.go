package functions

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/deviceplugin"
)

type fromDevicePluginConfig struct{}

// NewFromDevicePluginConfig makes the function from_device_plugin_config.
func NewFromDevicePluginConfig() function.Function { return fromDevicePluginConfig{} }

func (fromDevicePluginConfig) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "from_device_plugin_config"
}

func (fromDevicePluginConfig) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Reads a configuration of NVIDIA's Kubernetes device plugin",
		MarkdownDescription: "Reads a configuration file of NVIDIA's device plugin for Kubernetes and returns it as `device_plugin_config` " +
			"takes it; what the file does not say is null. Written again it says the same, its resources sorted by their full names. The file is " +
			"read as the plugin reads it, by YAML 1.1. What the plugin refuses is an error, and so is what it would pass over without a word, as " +
			"`devices` and `rename` of a resource, and what `device_plugin_config` has no place for, as flags of GPU feature discovery. The " +
			"plugin's own parser (v0.19.0) has judged the texts.",
		Parameters: []function.Parameter{
			function.StringParameter{Name: "yaml", MarkdownDescription: "The file's content, for example from `file(\"config.yaml\")`."},
		},
		Return: function.ObjectReturn{AttributeTypes: pluginType},
	}
}

var (
	sharingType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"resources":                      types.MapType{ElemType: types.Int64Type},
		"rename_by_default":              types.BoolType,
		"fail_requests_greater_than_one": types.BoolType,
	}}
	pluginFlagsType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"cdi_annotation_prefix":            types.StringType,
		"container_driver_root":            types.StringType,
		"device_id_strategy":               types.StringType,
		"device_list_strategy":             types.ListType{ElemType: types.StringType},
		"nvidia_ctk_path":                  types.StringType,
		"pass_device_specs":                types.BoolType,
		"shared_devices_allocation_policy": types.StringType,
	}}
	flagsType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"device_discovery_strategy": types.StringType,
		"fail_on_init_error":        types.BoolType,
		"gdrcopy_enabled":           types.BoolType,
		"gds_enabled":               types.BoolType,
		"mofed_enabled":             types.BoolType,
		"mps_root":                  types.StringType,
		"nvidia_dev_root":           types.StringType,
		"nvidia_driver_root":        types.StringType,
		"plugin":                    pluginFlagsType,
	}}
	pluginType = map[string]attr.Type{
		"mig_strategy": types.StringType, "flags": flagsType, "time_slicing": sharingType, "mps": sharingType,
	}
)

type pluginModel struct {
	MIGStrategy *string       `tfsdk:"mig_strategy"`
	Flags       *flagsModel   `tfsdk:"flags"`
	TimeSlicing *sharingModel `tfsdk:"time_slicing"`
	MPS         *sharingModel `tfsdk:"mps"`
}

type flagsModel struct {
	DeviceDiscoveryStrategy *string           `tfsdk:"device_discovery_strategy"`
	FailOnInitError         *bool             `tfsdk:"fail_on_init_error"`
	GDRCopyEnabled          *bool             `tfsdk:"gdrcopy_enabled"`
	GDSEnabled              *bool             `tfsdk:"gds_enabled"`
	MOFEDEnabled            *bool             `tfsdk:"mofed_enabled"`
	MPSRoot                 *string           `tfsdk:"mps_root"`
	NVIDIADevRoot           *string           `tfsdk:"nvidia_dev_root"`
	NVIDIADriverRoot        *string           `tfsdk:"nvidia_driver_root"`
	Plugin                  *pluginFlagsModel `tfsdk:"plugin"`
}

type pluginFlagsModel struct {
	CDIAnnotationPrefix           *string  `tfsdk:"cdi_annotation_prefix"`
	ContainerDriverRoot           *string  `tfsdk:"container_driver_root"`
	DeviceIDStrategy              *string  `tfsdk:"device_id_strategy"`
	DeviceListStrategy            []string `tfsdk:"device_list_strategy"`
	NVIDIACTKPath                 *string  `tfsdk:"nvidia_ctk_path"`
	PassDeviceSpecs               *bool    `tfsdk:"pass_device_specs"`
	SharedDevicesAllocationPolicy *string  `tfsdk:"shared_devices_allocation_policy"`
}

type sharingModel struct {
	Resources                  map[string]int64 `tfsdk:"resources"`
	RenameByDefault            *bool            `tfsdk:"rename_by_default"`
	FailRequestsGreaterThanOne *bool            `tfsdk:"fail_requests_greater_than_one"`
}

func (fromDevicePluginConfig) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var text string
	if resp.Error = req.Arguments.Get(ctx, &text); resp.Error != nil {
		return
	}
	c, err := deviceplugin.Parse([]byte(text))
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, sentence(err))
		return
	}
	out := pluginModel{TimeSlicing: sharingOf(c.TimeSlicing), MPS: sharingOf(c.MPS)}
	if c.MIGStrategy != "" {
		out.MIGStrategy = &c.MIGStrategy
	}
	if f := c.Flags; f != nil {
		out.Flags = &flagsModel{
			DeviceDiscoveryStrategy: f.DeviceDiscoveryStrategy, FailOnInitError: f.FailOnInitError, GDRCopyEnabled: f.GDRCopyEnabled,
			GDSEnabled: f.GDSEnabled, MOFEDEnabled: f.MOFEDEnabled, MPSRoot: f.MPSRoot, NVIDIADevRoot: f.NVIDIADevRoot,
			NVIDIADriverRoot: f.NVIDIADriverRoot,
		}
		if p := f.Plugin; p != nil {
			out.Flags.Plugin = &pluginFlagsModel{
				CDIAnnotationPrefix: p.CDIAnnotationPrefix, ContainerDriverRoot: p.ContainerDriverRoot, DeviceIDStrategy: p.DeviceIDStrategy,
				DeviceListStrategy: p.DeviceListStrategy, NVIDIACTKPath: p.NVIDIACTKPath, PassDeviceSpecs: p.PassDeviceSpecs,
				SharedDevicesAllocationPolicy: p.SharedDevicesAllocationPolicy,
			}
		}
	}
	resp.Error = resp.Result.Set(ctx, out)
}

func sharingOf(s *deviceplugin.Sharing) *sharingModel {
	if s == nil {
		return nil
	}
	out := &sharingModel{
		Resources: map[string]int64{}, RenameByDefault: s.RenameByDefault, FailRequestsGreaterThanOne: s.FailRequestsGreaterThanOne,
	}
	for name, n := range s.Replicas {
		out.Resources[name] = int64(n)
	}
	return out
}
