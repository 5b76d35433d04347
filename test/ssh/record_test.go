package ssh_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
	"github.com/gpufleet/terraform-provider-gpu/test/sshd"
)

// TestRecord records a fleet through OpenSSH's client with a reader's key, plans on the
// recording without reaching a host, and applies on the hosts.
func TestRecord(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("there is no ssh: apt-get install --no-install-recommends openssh-client")
	}
	r := newRig(t, example(t), func(_ string, o *sshd.Options) {
		o.KeyOptions = fmt.Sprintf(`restrict,command="%s serve --stdio --role reader"`, agentPath())
	})
	recorded := filepath.Join(t.TempDir(), "recorded.json")
	args := []string{"record", "--out", recorded, "-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes"}
	var keys, known, hosts []string
	for _, name := range []string{"hv01", "hv02"} {
		s := r.server[name]
		keys = append(keys, "-o", "IdentityFile="+s.ClientKey())
		known = append(known, s.KnownHosts())
		hosts = append(hosts, fmt.Sprintf("%s=ssh://%s@%s", name, s.User, s.Address()))
	}
	args = append(append(append(args, keys...), "-o", "UserKnownHostsFile="+strings.Join(known, " ")), hosts...)
	before := r.snapshot()
	record := exec.CommandContext(t.Context(), agentPath(), args...) //nolint:gosec // built by this test
	record.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
	if out, err := record.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	// The hosts of a configuration, with the reader's key instead of the operator's.
	hv01 := r.server["hv01"]
	r.Write([]string{r.reach("hv01", `user = "operator"`, `private_key_file = "/nowhere/operator"`, "agent_path = null")}, vdi)
	again := filepath.Join(t.TempDir(), "again.json")
	record = exec.CommandContext(t.Context(), agentPath(), "record", "--out", again, "--config", r.Dir,
		"--user", hv01.User, "--key", hv01.ClientKey()) //nolint:gosec // built by this test
	if out, err := record.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if diff := cmp.Diff(hostsOf(t, recorded)[:1], hostsOf(t, again)); diff != "" {
		t.Errorf("the two ways record different hosts (-list +configuration):\n%s", diff)
	}

	sessions := func() int { return r.server["hv01"].Sessions() + r.server["hv02"].Sessions() }
	asked := sessions()
	usual := r.Env
	r.Env = append(r.Env, "GPU_INVENTORY_SNAPSHOT="+recorded)
	r.Write(r.both("agent_path = null"), vdi)
	out := r.OK("plan")
	cli.WantSays(t, out, "4 to add", "Planned on a recording", "just now")
	cli.WantSays(t, r.Fails("Could not create the partition config", "apply", "-auto-approve"), "recorded inventory")
	if n := sessions(); n != asked {
		t.Errorf("planning on a recording opened %d sessions", n-asked)
	}
	if diff := cmp.Diff(before, r.snapshot(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the fleet changed (-before +after):\n%s", diff)
	}
	r.Env = usual
	cli.WantSays(t, r.OK("plan"), "4 to add")
}

// hostsOf are the hosts of a recording.
func hostsOf(t *testing.T, file string) []gpu.Host {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := gpu.ParseSnapshot(raw)
	if err != nil {
		t.Fatal(err)
	}
	return s.Hosts
}
