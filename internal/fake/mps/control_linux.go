package fakemps

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
)

const (
	pipeVariable = "CUDA_MPS_PIPE_DIRECTORY"
	logVariable  = "CUDA_MPS_LOG_DIRECTORY"
	// asDaemon marks the child that the program leaves behind.
	asDaemon = "MPSTEST_DAEMON"
)

func variable(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func pipeDir() string { return variable(pipeVariable, "/tmp/nvidia-mps") }

// control is nvidia-cuda-mps-control.
func control(me self, b Behaviour) int {
	if len(me.args) == 0 {
		return console()
	}
	known := []string{"-d"}
	if b.MultiUser {
		known = append(known, "-multiuser-server")
	}
	if b.Driver >= firstStatic {
		known = append(known, "-S")
	}
	for _, a := range me.args {
		if !slices.Contains(known, a) {
			return 1 // without a word
		}
	}
	if os.Getenv(asDaemon) != "" {
		return daemonize(me, b)
	}
	return launch(me)
}

// launch starts the daemon and ends once it listens.
func launch(me self) int {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return 1
	}
	cmd := command(me.path, me.args...)
	cmd.Env = append(os.Environ(), asDaemon+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 1
	}
	theirs.Close()
	said, err := io.ReadAll(ready)
	switch {
	case err != nil || len(said) == 0:
		return 1
	case string(said) != "ready":
		fmt.Println(string(said))
		return 1
	}
	return 0
}

// console gives the daemon the commands on standard input, and ends with 0 whatever came
// of them.
func console() int {
	status := 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if command := strings.TrimSpace(in.Text()); command != "" {
			status = max(status, ask(command))
		}
	}
	return status
}

// ask gives the daemon a command. Root has a socket of its own for
// them, and uses the other one where it is gone.
func ask(command string) int {
	c, err := dial("control_privileged")
	if err != nil {
		c, err = dial("control")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Cannot find MPS control daemon process")
		return 1
	}
	defer c.Close()
	fmt.Fprintf(c, "%d\n%s\n", os.Getuid(), command)
	answer, err := io.ReadAll(c)
	if err != nil {
		return 1
	}
	text, status, _ := strings.Cut(string(answer), "\x00")
	fmt.Print(text)
	if status == "1" {
		return 1
	}
	return 0
}
