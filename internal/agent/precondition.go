package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// precondition is what a prepared change rests on. To callers it is an opaque text; the
// agent reads it again at apply to say what has changed since.
type precondition struct {
	Steps []string          `json:"steps"`
	Facts map[string]string `json:"facts"`
	// Digest covers the steps in full.
	Digest string `json:"digest"`
}

func newPrecondition(host *gpu.Host, steps []change.Step) precondition {
	sum := sha256.Sum256(document.Encode(steps))
	b := precondition{Facts: map[string]string{}, Digest: hex.EncodeToString(sum[:])}
	for _, f := range change.Observe(host, steps) {
		b.Facts[f.Name] = f.Value
	}
	for _, s := range steps {
		b.Steps = append(b.Steps, s.String())
		if vm, ok := host.VM(s.VM); ok {
			b.Facts["the power state of VM "+vm.Name] = change.PowerOf(vm)
		}
		if s.Daemon != nil {
			b.Facts["who is a client of MPS daemon "+s.Daemon.Name] = change.ClientsOf(host, s.Daemon.Name)
		}
		if c := s.Claim; s.Op == change.OpPutClaim && c.Want.Share != nil {
			b.Facts["the place of share "+c.ID] = change.DevicesText(c.Want.Share.Devices)
		}
	}
	return b
}

// changed says what is no longer as it was when the change was prepared, "" for
// nothing.
func (b precondition) changed(prepared string) (string, error) {
	var was precondition
	if err := json.Unmarshal([]byte(prepared), &was); err != nil {
		return "", &Error{Code: BadRequest, Message: "the basis of the change is not one of this agent"}
	}
	var out []string
	for name, value := range b.Facts {
		if before, ok := was.Facts[name]; ok && before != value {
			out = append(out, fmt.Sprintf("%s was %s and is %s", name, before, value))
		}
	}
	slices.Sort(out)
	for _, s := range b.Steps {
		if !slices.Contains(was.Steps, s) {
			out = append(out, "the change would now also "+s)
		}
	}
	for _, s := range was.Steps {
		if !slices.Contains(b.Steps, s) {
			out = append(out, "the change would no longer "+s)
		}
	}
	if len(out) == 0 && was.Digest != b.Digest {
		out = append(out, "the same steps would now do something else")
	}
	return strings.Join(out, "; "), nil
}
