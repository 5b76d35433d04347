package core

import (
	"context"

	"github.com/hashicorp/go-uuid"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/zclconf/go-cty/cty"
)

// builtin is the name of the provider that Terraform brings along.
const builtin = "terraform"

// builtinProvider is that provider, with terraform_data alone.
type builtinProvider struct{ tfprotov6.ProviderServer }

func newTerraform() (tfprotov6.ProviderServer, error) { return builtinProvider{}, nil }

var dataType = cty.Object(map[string]cty.Type{
	"id": cty.String, "input": cty.DynamicPseudoType, "output": cty.DynamicPseudoType, "triggers_replace": cty.DynamicPseudoType,
})

func (builtinProvider) GetProviderSchema(context.Context, *tfprotov6.GetProviderSchemaRequest) (*tfprotov6.GetProviderSchemaResponse,
	error,
) {
	return &tfprotov6.GetProviderSchemaResponse{ResourceSchemas: map[string]*tfprotov6.Schema{"terraform_data": {Block: &tfprotov6.SchemaBlock{
		Attributes: []*tfprotov6.SchemaAttribute{
			{Name: "id", Type: tftypes.String, Computed: true},
			{Name: "input", Type: tftypes.DynamicPseudoType, Optional: true},
			{Name: "output", Type: tftypes.DynamicPseudoType, Computed: true},
			{Name: "triggers_replace", Type: tftypes.DynamicPseudoType, Optional: true},
		},
	}}}}, nil
}

func (builtinProvider) GetResourceIdentitySchemas(context.Context,
	*tfprotov6.GetResourceIdentitySchemasRequest,
) (*tfprotov6.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov6.GetResourceIdentitySchemasResponse{}, nil
}

func (builtinProvider) ValidateProviderConfig(context.Context,
	*tfprotov6.ValidateProviderConfigRequest,
) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return &tfprotov6.ValidateProviderConfigResponse{}, nil
}

func (builtinProvider) ConfigureProvider(context.Context, *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse,
	error,
) {
	return &tfprotov6.ConfigureProviderResponse{}, nil
}

func (builtinProvider) ValidateResourceConfig(context.Context,
	*tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return &tfprotov6.ValidateResourceConfigResponse{}, nil
}

func (builtinProvider) UpgradeResourceState(_ context.Context,
	r *tfprotov6.UpgradeResourceStateRequest,
) (*tfprotov6.UpgradeResourceStateResponse, error) {
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &tfprotov6.DynamicValue{JSON: r.RawState.JSON}}, nil
}

func (builtinProvider) ReadResource(_ context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return &tfprotov6.ReadResourceResponse{NewState: r.CurrentState, Private: r.Private}, nil
}

func (builtinProvider) PlanResourceChange(_ context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse,
	error,
) {
	prior, _, err := decode(r.PriorState, dataType)
	if err != nil {
		return nil, err
	}
	next, _, err := decode(r.ProposedNewState, dataType)
	if err != nil || next.IsNull() {
		return &tfprotov6.PlanResourceChangeResponse{PlannedState: r.ProposedNewState}, err
	}
	planned, out := next.AsValueMap(), &tfprotov6.PlanResourceChangeResponse{}
	output := func() cty.Value {
		if input := planned["input"]; !input.IsNull() {
			return cty.UnknownVal(input.Type())
		}
		return cty.NullVal(cty.DynamicPseudoType)
	}
	switch {
	case prior.IsNull():
		planned["id"], planned["output"] = cty.UnknownVal(cty.String), output()
	case !prior.GetAttr("triggers_replace").RawEquals(planned["triggers_replace"]):
		planned["id"], planned["output"] = cty.UnknownVal(cty.String), output()
		out.RequiresReplace = []*tftypes.AttributePath{tftypes.NewAttributePath().WithAttributeName("triggers_replace")}
	case !prior.GetAttr("input").RawEquals(planned["input"]):
		planned["output"] = output()
	}
	out.PlannedState, err = encode(cty.ObjectVal(planned), dataType)
	return out, err
}

func (builtinProvider) ApplyResourceChange(_ context.Context,
	r *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	planned, _, err := decode(r.PlannedState, dataType)
	if err != nil || planned.IsNull() {
		return &tfprotov6.ApplyResourceChangeResponse{NewState: r.PlannedState}, err
	}
	result := planned.AsValueMap()
	if !result["id"].IsKnown() {
		id, err := uuid.GenerateUUID()
		if err != nil {
			return nil, err
		}
		result["id"] = cty.StringVal(id)
	}
	if !result["output"].IsKnown() {
		result["output"] = result["input"]
	}
	state, err := encode(cty.ObjectVal(result), dataType)
	return &tfprotov6.ApplyResourceChangeResponse{NewState: state}, err
}
