package connect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/kevinburke/ssh_config"
)

const defaultSSHPort = 22

// sshConfig is what ~/.ssh/config says.
type sshConfig struct{ parsed *ssh_config.Config }

func readSSHConfig() (sshConfig, error) {
	path := inHome(".ssh", "config")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // one that is not there says nothing
		return sshConfig{}, err
	}
	c, err := parseSSHConfig(text)
	if err != nil {
		return sshConfig{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func parseSSHConfig(text []byte) (sshConfig, error) {
	parsed, err := ssh_config.DecodeBytes(withoutMatch(text))
	return sshConfig{parsed: parsed}, err
}

// withoutMatch leaves Match blocks out: to evaluate one may mean to run a command. The
// lines stay, empty, so that errors name the right one.
func withoutMatch(text []byte) []byte {
	lines := bytes.Split(text, []byte("\n"))
	inMatch := false
	for i, line := range lines {
		line = bytes.TrimLeft(line, " \t\r=")
		// OpenSSH takes a keyword between quotes, too, and the library does not.
		if quoted, ok := bytes.CutPrefix(line, []byte(`"`)); ok {
			keyword, rest, _ := bytes.Cut(quoted, []byte(`"`))
			line = slices.Concat(keyword, []byte(" "), rest)
			lines[i] = line
		}
		keyword := line
		if end := bytes.IndexAny(line, " \t\r=\""); end >= 0 {
			keyword = line[:end]
		}
		switch {
		case bytes.EqualFold(keyword, []byte("Match")):
			inMatch = true
		case bytes.EqualFold(keyword, []byte("Host")):
			inMatch = false
		}
		if inMatch {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

func (c sshConfig) get(alias, key string) string {
	value, _ := c.parsed.Get(alias, key) // "" beside an error
	return value
}

func (c sshConfig) all(alias, key string) []string {
	values, _ := c.parsed.GetAll(alias, key) // none beside an error
	return values
}

// resolve gives every setting its value: from the provider, else from ssh_config, else
// OpenSSH's default.
func (s SSH) resolve(host string, config sshConfig) (endpoint, error) {
	e, err := s.endpoint(host, config, s.Address, s.User, s.Port)
	if err != nil {
		return e, err
	}
	e.hostKey = s.HostKey
	jumps := cmp.Or(s.ProxyJump, config.get(s.Address, "ProxyJump"))
	if jumps == "" || strings.EqualFold(jumps, "none") {
		return e, nil
	}
	for _, text := range strings.Split(jumps, ",") {
		name, alias, port, err := splitJump(text)
		if err != nil {
			return e, &Error{
				Host: host, Code: Settings, Found: fmt.Sprintf("proxy_jump is %q", jumps), Err: err,
				Fix: "write it as [user@]host[:port], several separated by commas",
			}
		}
		hop, err := s.forJump().endpoint(host, config, alias, name, port)
		if err != nil {
			return e, err
		}
		hop.isJump = true
		e.jumps = append(e.jumps, hop)
	}
	return e, nil
}

// forJump is what is said of a jump host. Who runs one is not who runs the hosts behind
// it, and must not come by what lets one in there.
func (s SSH) forJump() SSH {
	return SSH{PrivateKey: s.ProxyJumpPrivateKey, UseAgent: s.UseAgent, KnownHostsFile: s.KnownHostsFile}
}

// endpoint resolves one server, the host itself or a jump host.
func (s SSH) endpoint(host string, config sshConfig, alias, name string, port int) (endpoint, error) {
	e := endpoint{host: alias, port: port, user: cmp.Or(name, config.get(alias, "User")), password: s.Password, keyText: s.PrivateKey}
	if name := config.get(alias, "HostName"); name != "" {
		e.host = strings.NewReplacer("%h", alias, "%%", "%").Replace(name)
	}
	if e.port == 0 {
		e.port = defaultSSHPort
		if text := config.get(alias, "Port"); text != "" {
			var err error
			if e.port, err = strconv.Atoi(text); err != nil || e.port < 1 || e.port > 65535 {
				return e, &Error{
					Host: host, Code: Settings, Found: fmt.Sprintf("ssh_config has the port %q for %s", text, alias),
					Fix: "write a number from 1 to 65535",
				}
			}
		}
	}
	if e.user == "" {
		u, err := user.Current()
		if err != nil {
			return e, &Error{Host: host, Code: Settings, Found: "there is no user to log in as", Err: err, Fix: "set user"}
		}
		e.user = u.Username[strings.LastIndex(u.Username, `\`)+1:] // without a Windows domain
	}
	expand := e.tokens(alias)
	switch {
	case s.PrivateKeyFile != "":
		e.keyFiles = []string{ExpandHome(s.PrivateKeyFile)}
	case s.PrivateKey == "":
		for _, file := range config.all(alias, "IdentityFile") {
			e.configKeys = append(e.configKeys, ExpandHome(expand(file)))
		}
	}
	given := e.keyText != "" || len(e.keyFiles)+len(e.configKeys) > 0 || e.password != ""
	if !given {
		for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
			e.defaultKeys = append(e.defaultKeys, inHome(".ssh", name))
		}
	}
	useAgent := s.PrivateKey == "" && s.PrivateKeyFile == "" && s.Password == ""
	if s.UseAgent != nil {
		useAgent, e.agentAsked = *s.UseAgent, *s.UseAgent
	}
	if useAgent {
		e.agentSocket = agentSocket(config.get(alias, "IdentityAgent"))
		e.identitiesOnly = strings.EqualFold(config.get(alias, "IdentitiesOnly"), "yes")
	}
	switch files := config.get(alias, "UserKnownHostsFile"); {
	case s.KnownHostsFile != "":
		e.knownHosts, e.knownHostsSaid = []string{ExpandHome(s.KnownHostsFile)}, true
	case files != "":
		for _, file := range strings.Fields(files) {
			e.knownHosts = append(e.knownHosts, ExpandHome(expand(file)))
		}
	default:
		e.knownHosts = []string{inHome(".ssh", "known_hosts"), inHome(".ssh", "known_hosts2")}
	}
	if s.KnownHostsFile == "" && runtime.GOOS != "windows" {
		e.knownHosts = append(e.knownHosts, "/etc/ssh/ssh_known_hosts")
	}
	return e, nil
}

// tokens writes out what ssh_config(5) allows in the names of files.
func (e endpoint) tokens(alias string) func(string) string {
	return strings.NewReplacer("%%", "%", "%d", home(), "%h", e.host, "%n", alias, "%p", strconv.Itoa(e.port), "%r", e.user).Replace
}

// agentSocket is where the SSH agent listens, "" for none.
func agentSocket(configured string) string {
	switch {
	case strings.EqualFold(configured, "none"):
		return ""
	case configured == "" || configured == "SSH_AUTH_SOCK":
		return os.Getenv("SSH_AUTH_SOCK")
	case strings.HasPrefix(configured, "$"):
		return os.Getenv(strings.Trim(configured[1:], "{}"))
	}
	return ExpandHome(configured)
}

func home() string {
	dir, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return dir
}

func inHome(parts ...string) string { return filepath.Join(append([]string{home()}, parts...)...) }

// ExpandHome writes ~ as the home directory.
func ExpandHome(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") || strings.HasPrefix(path, `~\`) {
		return filepath.Join(home(), path[1:])
	}
	return path
}

// endpoint is one SSH server with everything that its settings say.
type endpoint struct {
	host           string // address without port
	port           int
	user           string
	keyText        string
	keyFiles       []string // given; each must be of use
	configKeys     []string // of ssh_config; those that are of use
	defaultKeys    []string // OpenSSH's; those that are there and of use
	password       string
	agentSocket    string // "" when no agent is asked
	agentAsked     bool   // by the configuration, so the agent must answer
	identitiesOnly bool   // of an agent's keys only those that are in one of the files
	knownHosts     []string
	knownHostsSaid bool // by the configuration, so the file must be there
	hostKey        string
	jumps          []endpoint
	isJump         bool
}

func (e endpoint) address() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// splitJump reads [user@]host[:port].
func splitJump(text string) (name, host string, port int, err error) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "ssh://")
	if at := strings.LastIndex(text, "@"); at >= 0 {
		name, text = text[:at], text[at+1:]
	}
	host = text
	if h, p, splitErr := net.SplitHostPort(text); splitErr == nil {
		host = h
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return "", "", 0, fmt.Errorf("%q is not a port", p)
		}
	}
	host = strings.Trim(host, "[]")
	if host == "" {
		return "", "", 0, errors.New("a jump host has no name")
	}
	return name, host, port, nil
}
