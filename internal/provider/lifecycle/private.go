package lifecycle

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	ledgerKey   = "ledger_instance"
	claimKey    = "claim_token"
	powerKey    = "declared_power"
	approvedKey = "approved"
	seenKey     = "seen"
	importKey   = "import_kind"
)

// PrivateKeys are all that a read, a plan or a create writes. What an import wrote a read only takes back.
func (s *Shell[M]) PrivateKeys() []string {
	return []string{ledgerKey, claimKey, powerKey, approvedKey, seenKey}
}

// PrivateGetter reads private state.
type PrivateGetter interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
}

// PrivateSetter writes private state.
type PrivateSetter interface {
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// ledgerInstance is the instance's name in the ledger of the run that planned it last.
func ledgerInstance(ctx context.Context, private PrivateGetter) string {
	return text(ctx, private, ledgerKey)
}

// setLedgerInstance keeps it for a second plan call of the same instance.
func setLedgerInstance(ctx context.Context, private PrivateSetter, name string) diag.Diagnostics {
	return set(ctx, private, ledgerKey, name)
}

// newToken makes a token for a new instance.
func newToken() string { return rand.Text() }

// Token is the instance's token in claims; "" for an imported object that no claim
// covers.
func Token(ctx context.Context, private PrivateGetter) string { return text(ctx, private, claimKey) }

// setToken keeps the token. What only a plan needs is of no use after an apply and goes.
func setToken(ctx context.Context, private PrivateSetter, token string) diag.Diagnostics {
	diags := set(ctx, private, claimKey, token)
	for _, key := range []string{ledgerKey, powerKey, approvedKey, seenKey} {
		diags.Append(private.SetKey(ctx, key, nil)...)
	}
	return diags
}

// DeclaredPower is the power policy that the plan of a replacement declares: its destroy,
// which is shown only the state, must not do more. ok is false outside of a replacement.
func DeclaredPower(ctx context.Context, private PrivateGetter) (p gpu.Power, ok bool) {
	raw := text(ctx, private, powerKey)
	ok = raw != "" && json.Unmarshal([]byte(raw), &p) == nil // not in the return, whose values have no order
	return p, ok
}

// SetDeclaredPower keeps it from the plan to the apply; nil takes it back.
func SetDeclaredPower(ctx context.Context, private PrivateSetter, p *gpu.Power) diag.Diagnostics {
	if p == nil {
		return private.SetKey(ctx, powerKey, nil)
	}
	return set(ctx, private, powerKey, string(document.Encode(p)))
}

// ImportedKind is the kind of object that an import id named, "" for none.
func ImportedKind(ctx context.Context, private PrivateGetter) string {
	return text(ctx, private, importKey)
}

// SetImportedKind keeps it until the read that follows; "" takes it back.
func SetImportedKind(ctx context.Context, private PrivateSetter, kind string) diag.Diagnostics {
	return set(ctx, private, importKey, kind)
}

// approved is what the plan of a destroy has announced; nil where it could not look. Unlike
// a create and an update, which Terraform plans once more in the apply, a destroy gets what
// its plan has kept.
func approved(ctx context.Context, private PrivateGetter) (a *change.Approved, ends bool) {
	kept := get[plannedDestroy](ctx, private, approvedKey)
	if kept == nil {
		return nil, false
	}
	return &kept.Approved, kept.Ends
}

// plannedDestroy is what of fleet.Destroy is kept.
type plannedDestroy struct {
	change.Approved
	Ends bool `json:"ends,omitempty"`
}

// setApproved keeps it from the plan to the apply.
func setApproved(ctx context.Context, private PrivateSetter, d fleet.Destroy) diag.Diagnostics {
	return private.SetKey(ctx, approvedKey, document.Encode(plannedDestroy{d.Approved, d.Ends}))
}

// Seen is what there was to disturb on the hosts of the object when the state was read last;
// nil when that is not known.
func Seen(ctx context.Context, private PrivateGetter) *change.Approved {
	return get[change.Approved](ctx, private, seenKey)
}

// SetSeen keeps it in the state that a plan is made from, which is what the apply of that
// plan gets.
func SetSeen(ctx context.Context, private PrivateSetter, a change.Approved) diag.Diagnostics {
	return private.SetKey(ctx, seenKey, document.Encode(a))
}

// get reads what is kept under a key, nil for nothing.
func get[T any](ctx context.Context, private PrivateGetter, key string) *T {
	var v T
	raw, diags := private.GetKey(ctx, key)
	if diags.HasError() || len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return &v
}

func text(ctx context.Context, private PrivateGetter, key string) string {
	return *cmp.Or(get[string](ctx, private, key), new(""))
}

func set(ctx context.Context, private PrivateSetter, key, value string) diag.Diagnostics {
	if value == "" {
		return private.SetKey(ctx, key, nil)
	}
	return private.SetKey(ctx, key, document.Encode(value))
}
