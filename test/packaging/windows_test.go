package packaging_test

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const controlPolicy = "packaging/windows/application-control.xml"

// TestControlPolicy holds the policy against what its README tells to fill in. Only
// Windows can read it for good.
func TestControlPolicy(t *testing.T) {
	t.Parallel()
	text := read(t, controlPolicy)
	var policy struct {
		PolicyType             string `xml:",attr"`
		PolicyID, BasePolicyID string
		Rules                  []string `xml:"Rules>Rule>Option"`
		Signers                []struct {
			ID string `xml:",attr"`
		} `xml:"Signers>Signer"`
		SigningScenarios []struct {
			Value   int `xml:",attr"`
			Allowed []struct {
				SignerID string `xml:"SignerId,attr"`
			} `xml:"ProductSigners>AllowedSigners>AllowedSigner"`
		} `xml:"SigningScenarios>SigningScenario"`
	}
	if err := xml.Unmarshal([]byte(text), &policy); err != nil {
		t.Fatal(err)
	}
	const userMode = 12
	if policy.PolicyType != "Supplemental Policy" || policy.PolicyID == policy.BasePolicyID || len(policy.Signers) != 1 ||
		len(policy.SigningScenarios) != 1 || policy.SigningScenarios[0].Value != userMode ||
		len(policy.SigningScenarios[0].Allowed) != 1 || policy.SigningScenarios[0].Allowed[0].SignerID != policy.Signers[0].ID {
		t.Errorf("it allows something else than programs of one publisher: %+v", policy)
	}
	if strings.Contains(text, "Audit Mode") {
		t.Error("it would switch to auditing")
	}
	var blanks []string
	for _, blank := range regexp.MustCompile(`@[A-Z_]+@`).FindAllString(text, -1) {
		blanks = append(blanks, blank)
		if !strings.Contains(read(t, "packaging/README.md"), "`"+blank+"`") {
			t.Errorf("the README does not say what to put for %s", blank)
		}
	}
	if len(blanks) != 4 {
		t.Errorf("it leaves %q to be filled in", blanks)
	}
}

// TestSSHDTakesTheExampleForWindows: sshd must not see arguments in the path.
func TestSSHDTakesTheExampleForWindows(t *testing.T) {
	t.Parallel()
	sshd := need(t, "/usr/sbin/sshd", "openssh-server")
	keygen := need(t, "ssh-keygen", "openssh-client")
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), keygen, "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if os.Geteuid() == 0 {
		// The server wants its directory for unprivileged children, also to check a file.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config := write(t, "sshd_config", "HostKey "+key+"\n"+read(t, "packaging/windows/sshd_config.example"))
	out, err := exec.CommandContext(t.Context(), sshd, "-T", "-f", config).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const wanted = "subsystem gpu-agent C:/PROGRA~1/gpu-agent/gpu-agent.exe serve --stdio"
	if !slices.Contains(strings.Split(string(out), "\n"), wanted) {
		t.Errorf("sshd does not say %q, but\n%s", wanted, out)
	}
}

// TestTaskIsHeldToWhatTheServiceIs: the script asks of a program for SYSTEM what `gpu-agent service install` asks, before it
// registers anything. Only Windows can run it.
func TestTaskIsHeldToWhatTheServiceIs(t *testing.T) {
	t.Parallel()
	script, agent := read(t, "packaging/windows/register-reconcile.ps1"), read(t, "internal/agent/statedir/dir_windows.go")
	checks, registers, ok := strings.Cut(script, "Register-ScheduledTask -TaskName")
	if !ok || strings.Contains(checks, "New-ScheduledTaskAction") &&
		strings.Index(checks, "would run as SYSTEM") > strings.Index(checks, "New-ScheduledTaskAction") ||
		strings.Contains(registers, "would run as SYSTEM") {
		t.Error("the program is not checked before the task is made")
	}
	for _, sid := range regexp.MustCompile(`S-1-5-80-[0-9-]+`).FindAllString(agent, -1) {
		if !strings.Contains(checks, "'"+sid+"'") {
			t.Errorf("the agent trusts %s, and the script does not", sid)
		}
	}
	// Names of rights in Go, and their numbers of winnt.h in the script.
	for goName, number := range map[string]string{
		"fileDeleteChild": "0x40", "windows.DELETE": "0x10000", "windows.WRITE_DAC": "0x40000", "windows.WRITE_OWNER": "0x80000",
		"windows.GENERIC_ALL": "0x10000000", "windows.FILE_WRITE_DATA": "0x2", "windows.FILE_APPEND_DATA": "0x4",
		"windows.GENERIC_WRITE": "0x40000000",
	} {
		if !strings.Contains(agent, goName) || !regexp.MustCompile(number+`\b`).MatchString(checks) {
			t.Errorf("%s (%s) is not asked about in both", goName, number)
		}
	}
}
