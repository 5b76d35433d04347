// Package instance keeps what names a resource instance in its private state: its
// name in this run's ledger, and its token in the claims on hosts.
package instance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
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

// Keys are all that a read or a plan writes. What an import wrote a read only takes back.
var Keys = []string{ledgerKey, claimKey, powerKey, approvedKey, seenKey}

// Getter reads private state.
type Getter interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
}

// Setter writes private state.
type Setter interface {
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// Ledger is the instance's name in the ledger of the run that planned it last.
func Ledger(ctx context.Context, private Getter) string { return text(ctx, private, ledgerKey) }

// SetLedger keeps it for a second plan call of the same instance.
func SetLedger(ctx context.Context, private Setter, name string) diag.Diagnostics {
	return set(ctx, private, ledgerKey, name)
}

// NewToken makes a token for a new instance.
func NewToken() string { return rand.Text() }

// Token is the instance's token in claims; "" for an imported object that no claim
// covers.
func Token(ctx context.Context, private Getter) string { return text(ctx, private, claimKey) }

// SetToken keeps the token. What only a plan needs is of no use after an apply and goes.
func SetToken(ctx context.Context, private Setter, token string) diag.Diagnostics {
	diags := set(ctx, private, claimKey, token)
	for _, key := range []string{ledgerKey, powerKey, approvedKey, seenKey} {
		diags.Append(private.SetKey(ctx, key, nil)...)
	}
	return diags
}

// DeclaredPower is the power policy that the plan of a replacement declares: its destroy,
// which is shown only the state, must not do more. ok is false outside of a replacement.
func DeclaredPower(ctx context.Context, private Getter) (p gpu.Power, ok bool) {
	raw := text(ctx, private, powerKey)
	ok = raw != "" && json.Unmarshal([]byte(raw), &p) == nil // not in the return, whose values have no order
	return p, ok
}

// SetDeclaredPower keeps it from the plan to the apply; nil takes it back.
func SetDeclaredPower(ctx context.Context, private Setter, p *gpu.Power) diag.Diagnostics {
	if p == nil {
		return private.SetKey(ctx, powerKey, nil)
	}
	return set(ctx, private, powerKey, string(document.Encode(p)))
}

// ImportedKind is the kind of object that an import id named, "" for none.
func ImportedKind(ctx context.Context, private Getter) string {
	return text(ctx, private, importKey)
}

// SetImportedKind keeps it until the read that follows; "" takes it back.
func SetImportedKind(ctx context.Context, private Setter, kind string) diag.Diagnostics {
	return set(ctx, private, importKey, kind)
}

// Approved is what the plan of a destroy has announced; nil where it could not look. Unlike
// a create and an update, which Terraform plans once more in the apply, a destroy gets what
// its plan has kept.
func Approved(ctx context.Context, private Getter) *change.Approved {
	return get[change.Approved](ctx, private, approvedKey)
}

// SetApproved keeps it from the plan to the apply.
func SetApproved(ctx context.Context, private Setter, a change.Approved) diag.Diagnostics {
	return private.SetKey(ctx, approvedKey, document.Encode(a))
}

// Seen is what there was to disturb on the hosts of the object when the state was read last;
// nil when that is not known.
func Seen(ctx context.Context, private Getter) *change.Approved {
	return get[change.Approved](ctx, private, seenKey)
}

// SetSeen keeps it in the state that a plan is made from, which is what the apply of that
// plan gets.
func SetSeen(ctx context.Context, private Setter, a change.Approved) diag.Diagnostics {
	return private.SetKey(ctx, seenKey, document.Encode(a))
}

// get reads what is kept under a key, nil for nothing.
func get[T any](ctx context.Context, private Getter, key string) *T {
	var v T
	raw, diags := private.GetKey(ctx, key)
	if diags.HasError() || len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return &v
}

func text(ctx context.Context, private Getter, key string) string {
	return *cmp.Or(get[string](ctx, private, key), new(""))
}

func set(ctx context.Context, private Setter, key, value string) diag.Diagnostics {
	if value == "" {
		return private.SetKey(ctx, key, nil)
	}
	return private.SetKey(ctx, key, document.Encode(value))
}
