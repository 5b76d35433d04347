package connect_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// TestEndings checks what is made of a process that ends before it has answered: the
// words of shells, sudo and operating systems, with the exit status that they give.
func TestEndings(t *testing.T) {
	for _, test := range []struct {
		name string
		said string
		exit int
		code connect.Code
	}{
		{"bash, not there", "bash: line 1: gpu-agent: command not found\n", 127, connect.NoAgent},
		{"dash, not there", "sh: 1: gpu-agent: not found\n", 127, connect.NoAgent},
		{"a path that is not there", "bash: line 1: /opt/gpu-agent: No such file or directory\n", 127, connect.NoAgent},
		{"nothing said", "", 127, connect.NoAgent},
		{"sudo, not there", "sudo: gpu-agent: command not found\n", 1, connect.NoAgent},
		{
			"cmd.exe, not there", "'gpu-agent' is not recognized as an internal or external command,\r\noperable program or batch file.\r\n",
			1, connect.NoAgent,
		},
		{
			"PowerShell, not there",
			"gpu-agent : The term 'gpu-agent' is not recognized as the name of a cmdlet, function, script file, or operable program.",
			1, connect.NoAgent,
		},

		{"no execute permission", "bash: line 1: /opt/gpu-agent: Permission denied\n", 126, connect.Blocked},
		{"nothing said, not executable", "", 126, connect.Blocked},
		{"sudo, noexec", "sudo: unable to execute /tmp/gpu-agent: Permission denied\n", 1, connect.Blocked},
		{"fapolicyd", "bash: line 1: /opt/gpu-agent: Operation not permitted\n", 126, connect.Blocked},
		{
			"AppLocker", "This program is blocked by group policy. For more information, contact your system administrator.\r\n", 1, connect.Blocked,
		},
		{"App Control", "An Application Control policy has blocked this file.\r\n", 1, connect.Blocked},
		{
			"Defender", "Operation did not complete successfully because the file contains a virus or potentially unwanted software.\r\n",
			1, connect.Blocked,
		},

		{"another architecture", "bash: line 1: /opt/gpu-agent: cannot execute binary file: Exec format error\n", 126, connect.WrongPlatform},
		{"sudo, another architecture", "sudo: unable to execute /opt/gpu-agent: Exec format error\n", 1, connect.WrongPlatform},
		{"macOS", "zsh: bad CPU type in executable: ./gpu-agent\n", 126, connect.WrongPlatform},
		{
			"Windows", "This version of C:\\gpu-agent.exe is not compatible with the version of Windows you're running.\r\n",
			1, connect.WrongPlatform,
		},
		{"glibc is too old", "gpu-agent: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by gpu-agent)\n", 1, connect.WrongPlatform},
		{
			"a library is missing", "gpu-agent: error while loading shared libraries: libnvidia-ml.so.1: cannot open shared object file\n",
			127, connect.WrongPlatform,
		},

		{"sudo wants a password", "sudo: a password is required\n", 1, connect.Authentication},
		{"sudo wants a terminal", "sudo: a terminal is required to read the password\n", 1, connect.Authentication},
		{"sudo knows nobody", "bob is not in the sudoers file.\nsudo: exit\n", 1, connect.Authentication},

		{"an agent that finds a file", "Error: open /var/lib/gpu-agent/state.json: permission denied\n", 1, connect.Ended},
		{"an agent that misses a file", "Error: the fleet fleet.json was not found: no such file or directory\n", 1, connect.Ended},
		{"nothing said at all", "", 0, connect.Ended},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := connect.Process(t.Context(), host, job{Complains: test.said, Exits: &test.exit}.command(t), options)
			e, ok := errors.AsType[*connect.Error](err)
			if !ok || e.Code != test.code {
				t.Fatalf("%v\nwant a connect.Error with code %s", err, test.code)
			}
			said, _, _ := strings.Cut(strings.TrimSpace(test.said), "\r\n")
			said, _, _ = strings.Cut(said, "\n")
			if !strings.Contains(strings.ReplaceAll(err.Error(), `\\`, `\`), said) {
				t.Errorf("%v\ndoes not say %q", err, said)
			}
		})
	}
}

// TestTheEndOfWhatWasSaid checks that of a long standard error the end is told.
func TestTheEndOfWhatWasSaid(t *testing.T) {
	said := "the beginning\n" + strings.Repeat("x", 8<<10) + "\nthe end"
	_, err := connect.Process(t.Context(), host, job{Complains: said, Exits: new(3)}.command(t), options)
	if err == nil || !strings.Contains(err.Error(), "the end") || strings.Contains(err.Error(), "the beginning") {
		t.Errorf("%.100v..., want the end and not the beginning", err)
	}
	if len(err.Error()) > 5<<10 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
}
