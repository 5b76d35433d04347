package provider

import (
	"context"
	"regexp"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// plainly is what is served. All that the provider says to people leaves through it, and nothing in that can
// steer a terminal, whoever chose the names in it: a summary is one line, and a detail has no other control
// character than the ends of its lines. That a name ends no line, its quotes see to.
type plainly struct{ Served }

// Close hangs up on all hosts.
func (p plainly) Close() error {
	if c, ok := p.Served.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// labels are what our own lines begin with, such as "Fix:", in the middle of a line.
var labels = regexp.MustCompile(`([^\n ]) +(\p{Lu}\pL*:)`)

// speak also keeps a label in a name with the word before it: Terraform wraps lines at spaces, and a wrapped
// line would begin with it.
func speak(said []*tfprotov6.Diagnostic) {
	for _, d := range said {
		d.Summary = gpu.Printable(d.Summary)
		d.Detail = labels.ReplaceAllString(gpu.Lines(d.Detail), "$1\u00a0$2")
	}
}

func (p plainly) ValidateProviderConfig(
	ctx context.Context, r *tfprotov6.ValidateProviderConfigRequest,
) (*tfprotov6.ValidateProviderConfigResponse, error) {
	resp, err := p.Served.ValidateProviderConfig(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) ConfigureProvider(
	ctx context.Context, r *tfprotov6.ConfigureProviderRequest,
) (*tfprotov6.ConfigureProviderResponse, error) {
	resp, err := p.Served.ConfigureProvider(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) ValidateResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	resp, err := p.Served.ValidateResourceConfig(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) UpgradeResourceState(
	ctx context.Context, r *tfprotov6.UpgradeResourceStateRequest,
) (*tfprotov6.UpgradeResourceStateResponse, error) {
	resp, err := p.Served.UpgradeResourceState(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) UpgradeResourceIdentity(
	ctx context.Context, r *tfprotov6.UpgradeResourceIdentityRequest,
) (*tfprotov6.UpgradeResourceIdentityResponse, error) {
	resp, err := p.Served.UpgradeResourceIdentity(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) ReadResource(ctx context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	resp, err := p.Served.ReadResource(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) PlanResourceChange(
	ctx context.Context, r *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	resp, err := p.Served.PlanResourceChange(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) ApplyResourceChange(
	ctx context.Context, r *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	resp, err := p.Served.ApplyResourceChange(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) ImportResourceState(
	ctx context.Context, r *tfprotov6.ImportResourceStateRequest,
) (*tfprotov6.ImportResourceStateResponse, error) {
	resp, err := p.Served.ImportResourceState(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) MoveResourceState(
	ctx context.Context, r *tfprotov6.MoveResourceStateRequest,
) (*tfprotov6.MoveResourceStateResponse, error) {
	resp, err := p.Served.MoveResourceState(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) GenerateResourceConfig(
	ctx context.Context, r *tfprotov6.GenerateResourceConfigRequest,
) (*tfprotov6.GenerateResourceConfigResponse, error) {
	resp, err := p.Served.GenerateResourceConfig(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) ValidateDataResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateDataResourceConfigRequest,
) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	resp, err := p.Served.ValidateDataResourceConfig(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) ReadDataSource(ctx context.Context, r *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	resp, err := p.Served.ReadDataSource(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) ValidateListResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateListResourceConfigRequest,
) (*tfprotov6.ValidateListResourceConfigResponse, error) {
	resp, err := p.Served.ValidateListResourceConfig(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) ValidateActionConfig(
	ctx context.Context, r *tfprotov6.ValidateActionConfigRequest,
) (*tfprotov6.ValidateActionConfigResponse, error) {
	resp, err := p.Served.ValidateActionConfig(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) PlanAction(ctx context.Context, r *tfprotov6.PlanActionRequest) (*tfprotov6.PlanActionResponse, error) {
	resp, err := p.Served.PlanAction(ctx, r)
	if resp != nil {
		speak(resp.Diagnostics)
	}
	return resp, err
}

func (p plainly) CallFunction(ctx context.Context, r *tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	resp, err := p.Served.CallFunction(ctx, r)
	if resp != nil && resp.Error != nil {
		resp.Error.Text = gpu.Lines(resp.Error.Text)
	}
	return resp, err
}

func (p plainly) ListResource(ctx context.Context, r *tfprotov6.ListResourceRequest) (*tfprotov6.ListResourceServerStream, error) {
	resp, err := p.Served.ListResource(ctx, r)
	if resp == nil || resp.Results == nil {
		return resp, err
	}
	all := resp.Results
	resp.Results = func(yield func(tfprotov6.ListResourceResult) bool) {
		for one := range all {
			speak(one.Diagnostics)
			if one.DisplayName = gpu.Printable(one.DisplayName); !yield(one) {
				return
			}
		}
	}
	return resp, err
}

func (p plainly) InvokeAction(ctx context.Context, r *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	resp, err := p.Served.InvokeAction(ctx, r)
	if resp == nil || resp.Events == nil {
		return resp, err
	}
	all := resp.Events
	resp.Events = func(yield func(tfprotov6.InvokeActionEvent) bool) {
		for one := range all {
			switch of := one.Type.(type) {
			case tfprotov6.ProgressInvokeActionEventType:
				of.Message = gpu.Lines(of.Message)
				one.Type = of
			case tfprotov6.CompletedInvokeActionEventType:
				speak(of.Diagnostics)
			}
			if !yield(one) {
				return
			}
		}
	}
	return resp, err
}
