package provider

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const (
	uploadNever = "never"
	uploadAuto  = "auto"
)

// hostAttributes are how one host is reached.
func hostAttributes() map[string]schema.Attribute {
	filled := []validator.String{stringvalidator.LengthAtLeast(1)}
	agentPath := tfschema.OptionalText("Where `gpu-agent` is on the host. Default `gpu-agent`, found through `PATH`. "+
		"A subsystem `gpu-agent` or a forced command of the host's sshd takes its place.", remotePath())
	localPath := agentPath
	localPath.MarkdownDescription = "Where `gpu-agent` is. Default: beside the provider, else in `PATH`."
	localPath.Validators = filled
	return map[string]schema.Attribute{
		"local": tfschema.OptionalObject("The machine that Terraform runs on. The agent is started as a child process.",
			tfschema.Attributes{"agent_path": localPath}),
		"simulated": tfschema.OptionalObject("A host of a simulated fleet.", tfschema.Attributes{
			"file": schema.StringAttribute{
				MarkdownDescription: "The fleet file. The host is the one of the same name in it.", Required: true, Validators: filled,
			},
		}),
		"ssh": schema.SingleNestedAttribute{
			MarkdownDescription: "A host whose sshd starts the agent: one connection and one session for each run. " +
				"What is not set comes from the environment and `~/.ssh/config`; see [Reaching hosts](guides/hosts.md).",
			Optional: true, Validators: []validator.Object{noSudoUpload{"not sudo = true together with upload = \"auto\""}},
			Attributes: map[string]schema.Attribute{
				"address": schema.StringAttribute{
					MarkdownDescription: "Name, IP address, or an alias of `~/.ssh/config`.", Required: true,
					Validators: filled,
				},
				"port": tfschema.OptionalNumber("Default: that of `~/.ssh/config`, else `22`.", int64validator.Between(1, 65535)),
				"user": tfschema.OptionalText("Default: `"+EnvSSHUser+"`, else that of `~/.ssh/config`, else the user that runs Terraform.",
					filled...),
				"private_key": schema.StringAttribute{
					MarkdownDescription: "PEM or OpenSSH private key. Keys with a passphrase are not supported. Also from `" + EnvSSHPrivateKey + "`.",
					Optional:            true, Sensitive: true,
					Validators: []validator.String{
						stringvalidator.LengthAtLeast(1),
						stringvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName("private_key_file")),
					},
				},
				"private_key_file": tfschema.OptionalText("File with the private key. Default: `IdentityFile` of `~/.ssh/config`, "+
					"else OpenSSH's own names.", filled...),
				"password": schema.StringAttribute{
					MarkdownDescription: "The user's password. Also from `" + EnvSSHPassword + "`. A key is better.", Optional: true, Sensitive: true,
					Validators: filled,
				},
				"use_agent": tfschema.OptionalFlag("Whether the SSH agent (`SSH_AUTH_SOCK`) is asked for keys. " +
					"Default: unless a key or a password is given."),
				"known_hosts_file": tfschema.OptionalText("Instead of OpenSSH's own files. The host's key is always checked.", filled...),
				"host_key": tfschema.OptionalText("The host's public key (`ssh-ed25519 AAAA...`) or its fingerprint "+
					"(`SHA256:...`), instead of a file.", hostKey()),
				"proxy_jump": tfschema.OptionalText("Jump hosts as `[user@]host[:port]`, separated by commas. Their keys are checked, too. "+
					"They are sent neither `password` nor `private_key` nor a key of `private_key_file`: each logs in with what `~/.ssh/config` and "+
					"the SSH agent have for it.",
					filled...),
				"proxy_jump_private_key": schema.StringAttribute{
					MarkdownDescription: "PEM or OpenSSH private key for the jump hosts, where there is neither a `~/.ssh/config` nor an SSH agent.",
					Optional:            true, Sensitive: true, Validators: filled,
				},
				"sudo": tfschema.OptionalFlag("Start the agent with `sudo -n`. Default `false`. Not with `upload = \"auto\"`: " +
					connect.WhyNoSudoUpload + "."),
				"agent_path": agentPath,
				"upload": tfschema.OptionalText("`never` (the default) or `auto`: upload the agent that ships with the provider to a host that has "+
					"none. The agent is uploaded during apply only. During plan, checks that need this host are skipped until an apply has uploaded it.",
					stringvalidator.OneOf(uploadNever, uploadAuto)),
			},
		},
		"tls": tfschema.OptionalObject("A host whose agent listens (`gpu-agent serve --listen`), with TLS 1.3 and a client certificate. "+
			"The certificate's organisation, `gpu-operator` or `gpu-reader`, is its role.", tfschema.Attributes{
			"address": schema.StringAttribute{MarkdownDescription: "`host:port`.", Required: true, Validators: filled},
			"ca_file": schema.StringAttribute{
				MarkdownDescription: "The authority that signed the host's certificate, in PEM.", Required: true,
				Validators: filled,
			},
			"cert_file": schema.StringAttribute{MarkdownDescription: "The client's certificate, in PEM.", Required: true, Validators: filled},
			"key_file": schema.StringAttribute{MarkdownDescription: "Its private key, in PEM. " +
				"On Unix one that others than its owner may read is refused.", Required: true, Validators: filled},
			"server_name": tfschema.OptionalText("The name in the host's certificate. Default: that of the address.", filled...),
		}),
		"cluster": tfschema.OptionalText("The failover cluster that the host is a node of. The host says so itself; this helps while it does "+
			"not answer. One that answers otherwise is an error: remove this where a node has left its cluster.",
			filled...),
	}
}

// oneWay is a host that is reached in exactly one way.
type oneWay struct{ tfschema.Must }

func (v oneWay) ValidateObject(_ context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	if req.ConfigValue.IsUnknown() {
		return
	}
	var ways []string
	unknown := false
	for _, way := range []string{"local", "simulated", "ssh", "tls"} {
		switch value := req.ConfigValue.Attributes()[way]; {
		case value == nil || value.IsNull():
		case value.IsUnknown():
			unknown = true
		default:
			ways = append(ways, way)
		}
	}
	if len(ways) == 1 || len(ways) == 0 && unknown {
		return
	}
	found, dropped := "none", " "+droppedNames
	if len(ways) > 0 {
		found, dropped = strings.Join(ways, " and "), ""
	}
	resp.Diagnostics.AddAttributeError(req.Path, "A host needs exactly one connection type", fmt.Sprintf("Found: The host has %s.\n"+
		"Wanted: %s.%s", found, words.Capital(string(v.Must)), dropped))
}

// noSudoUpload refuses to start with sudo what its user can replace.
type noSudoUpload struct{ tfschema.Must }

func (noSudoUpload) ValidateObject(_ context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	sudo, _ := req.ConfigValue.Attributes()["sudo"].(types.Bool)
	upload, _ := req.ConfigValue.Attributes()["upload"].(types.String)
	if sudo.ValueBool() && upload.ValueString() == uploadAuto {
		refuseSudoUpload(&resp.Diagnostics, req.Path)
	}
}

func refuseSudoUpload(diags *diag.Diagnostics, at path.Path) {
	diags.AddAttributeError(at.AtName("sudo"), "Uploaded agent cannot be started with sudo", fmt.Sprintf(
		"Found: sudo = true together with upload = %q: %s.\nFix: Install the agent's package on the host and leave upload out, or log in as a "+
			"user who needs no sudo.",
		uploadAuto, connect.WhyNoSudoUpload))
}

// remotePath is a path that may stand in a command on a host.
func remotePath() validator.String {
	const must = "a path of letters, digits and _ . / \\ : + ~ @ ( ) - and spaces"
	return tfschema.StringValidator{Must: must, Check: func(s string, at path.Path, diags *diag.Diagnostics) {
		if !connect.ValidAgentPath(s) {
			diags.AddAttributeError(at, "Invalid path", fmt.Sprintf("Found: %q.\nWanted: %s.", s, words.Capital(must)))
		}
	}}
}

// hostKey is a public key or a fingerprint.
func hostKey() validator.String {
	const must = "a public key (ssh-ed25519 AAAA...) or a fingerprint (SHA256:...)"
	return tfschema.StringValidator{Must: must, Check: func(s string, at path.Path, diags *diag.Diagnostics) {
		if connect.CheckHostKey(s) != nil {
			diags.AddAttributeError(at, "Invalid host key", fmt.Sprintf("Found: %q.\nWanted: %s.", s, words.Capital(must)))
		}
	}}
}

type hostModel struct {
	Local     types.Object `tfsdk:"local"`
	Simulated types.Object `tfsdk:"simulated"`
	SSH       types.Object `tfsdk:"ssh"`
	TLS       types.Object `tfsdk:"tls"`
	Cluster   types.String `tfsdk:"cluster"`
}

type localModel struct {
	AgentPath types.String `tfsdk:"agent_path"`
}

type simulatedModel struct {
	File types.String `tfsdk:"file"`
}

type sshModel struct {
	Address        types.String `tfsdk:"address"`
	Port           types.Int64  `tfsdk:"port"`
	User           types.String `tfsdk:"user"`
	PrivateKey     types.String `tfsdk:"private_key"`
	PrivateKeyFile types.String `tfsdk:"private_key_file"`
	Password       types.String `tfsdk:"password"`
	UseAgent       types.Bool   `tfsdk:"use_agent"`
	KnownHostsFile types.String `tfsdk:"known_hosts_file"`
	HostKey        types.String `tfsdk:"host_key"`
	ProxyJump      types.String `tfsdk:"proxy_jump"`
	ProxyJumpKey   types.String `tfsdk:"proxy_jump_private_key"`
	Sudo           types.Bool   `tfsdk:"sudo"`
	AgentPath      types.String `tfsdk:"agent_path"`
	Upload         types.String `tfsdk:"upload"`
}

type tlsModel struct {
	Address    types.String `tfsdk:"address"`
	CAFile     types.String `tfsdk:"ca_file"`
	CertFile   types.String `tfsdk:"cert_file"`
	KeyFile    types.String `tfsdk:"key_file"`
	ServerName types.String `tfsdk:"server_name"`
}

// configuredHosts are the hosts of the provider's block. It contacts nobody.
func (p *gpuProvider) configuredHosts(ctx context.Context, hosts types.Map, diags *diag.Diagnostics) map[string]fleet.Endpoint {
	models := map[string]types.Object{}
	diags.Append(hosts.ElementsAs(ctx, &models, false)...)
	out := map[string]fleet.Endpoint{}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m := object.Decode[hostModel](models[name], diags)
		if m == nil || !object.Known(m.Local, m.Simulated, m.SSH, m.TLS) {
			out[name] = notYetKnown(name)
			continue
		}
		if dial := p.way(name, m, diags); dial != nil {
			out[name] = fleet.Endpoint{Dial: dial, Cluster: m.Cluster.ValueString()}
		}
	}
	return out
}

// way is how one host is reached, nil when its settings are wrong.
func (p *gpuProvider) way(name string, m *hostModel, diags *diag.Diagnostics) fleet.Dial {
	at := path.Root("hosts").AtMapKey(name)
	switch {
	case !m.SSH.IsNull():
		if s := object.Decode[sshModel](m.SSH, diags); s != nil {
			return p.overSSH(name, s, at.AtName("ssh"), diags)
		}
	case !m.TLS.IsNull():
		if t := object.Decode[tlsModel](m.TLS, diags); t != nil {
			return p.overTLS(name, t, at.AtName("tls"), diags)
		}
	case !m.Local.IsNull():
		if l := object.Decode[localModel](m.Local, diags); l != nil {
			return p.asChild(name, l.AgentPath.ValueString())
		}
	default:
		if s := object.Decode[simulatedModel](m.Simulated, diags); s != nil {
			return p.simulatedHost(name, s.File.ValueString(), at.AtName("simulated").AtName("file"), diags)
		}
	}
	return nil
}

func (p *gpuProvider) simulatedHost(name, file string, at path.Path, diags *diag.Diagnostics) fleet.Dial {
	all := p.simulatedHosts(file, at, diags)
	for known, ep := range all {
		if strings.EqualFold(known, name) {
			return ep.Dial
		}
	}
	if all != nil {
		diags.AddAttributeError(at, "Unknown host", fmt.Sprintf("Found: The fleet file %s has the hosts %s, but no host %q.\nFix: %s",
			file, words.Some(name, slices.Sorted(maps.Keys(all))), name,
			words.Meant(name, slices.Sorted(maps.Keys(all)), "Write the name of a host of the file.")))
	}
	return nil
}

func (p *gpuProvider) options() connect.Options { return connect.Options{Version: p.version} }

// overSSH reaches a host by its sshd.
func (p *gpuProvider) overSSH(name string, m *sshModel, at path.Path, diags *diag.Diagnostics) fleet.Dial {
	s := connect.SSH{
		Address: m.Address.ValueString(), Port: int(m.Port.ValueInt64()), User: orEnvironment(m.User, EnvSSHUser),
		PrivateKey: m.PrivateKey.ValueString(), PrivateKeyFile: m.PrivateKeyFile.ValueString(),
		Password: orEnvironment(m.Password, EnvSSHPassword),
		UseAgent: m.UseAgent.ValueBoolPointer(), KnownHostsFile: m.KnownHostsFile.ValueString(), HostKey: m.HostKey.ValueString(),
		ProxyJump: m.ProxyJump.ValueString(), ProxyJumpPrivateKey: m.ProxyJumpKey.ValueString(), Sudo: m.Sudo.ValueBool(),
		AgentPath: m.AgentPath.ValueString(),
	}
	if m.PrivateKey.IsNull() && m.PrivateKeyFile.IsNull() {
		s.PrivateKey = os.Getenv(EnvSSHPrivateKey)
	}
	for attribute, file := range map[string]string{"private_key_file": s.PrivateKeyFile, "known_hosts_file": s.KnownHostsFile} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(connect.ExpandHome(file)); err != nil {
			unreadableFile(diags, at.AtName(attribute), name, err)
			return nil
		}
	}
	if m.Upload.ValueString() == uploadAuto {
		if s.Sudo {
			refuseSudoUpload(diags, at)
			return nil
		}
		s.Upload = &connect.Upload{Dir: besideProvider(""), Version: p.version}
	}
	return func(ctx context.Context, mayInstall bool) (fleet.Conn, error) {
		way := s
		if s.Upload != nil {
			upload := *s.Upload
			upload.LookOnly, way.Upload = !mayInstall, &upload
		}
		conn, err := connect.DialSSH(ctx, name, way, p.options())
		switch {
		case err != nil:
		case conn.Older:
			return olderAgent{p.client(name, conn)}, nil
		default:
			return p.client(name, conn), nil
		}
		var missing *connect.Error
		if s.Upload != nil && !mayInstall && errors.As(err, &missing) && missing.Code == connect.NoAgent {
			return nil, &fleet.NotYetKnownError{
				Host: name, Reason: fmt.Sprintf("host %s has no gpu-agent yet; the apply uploads it", name),
				Err: err,
			}
		}
		return nil, err
	}
}

// unreadableFile names the attribute as well: of a nested one Terraform shows the first line
// of the block only.
func unreadableFile(diags *diag.Diagnostics, at path.Path, host string, err error) {
	diags.AddAttributeError(at, "File cannot be read", fmt.Sprintf("Host: %s\nFound: %v.\nAttribute: %s", host, words.Capital(err.Error()),
		at))
}

// overTLS reaches an agent that listens.
func (p *gpuProvider) overTLS(name string, m *tlsModel, at path.Path, diags *diag.Diagnostics) fleet.Dial {
	read := func(attribute string, file types.String) []byte {
		data, err := os.ReadFile(connect.ExpandHome(file.ValueString()))
		if err != nil {
			unreadableFile(diags, at.AtName(attribute), name, err)
		}
		return data
	}
	if err := connect.CheckKeyFile(connect.ExpandHome(m.KeyFile.ValueString())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		diags.AddAttributeError(at.AtName("key_file"), "Private key file is readable by others", fmt.Sprintf("Host: %s\n"+
			"Found: %v.", name, words.Capital(err.Error())))
	}
	t := connect.TLS{
		Address: m.Address.ValueString(), ServerName: m.ServerName.ValueString(),
		CAFile: m.CAFile.ValueString(), CertFile: m.CertFile.ValueString(), KeyFile: m.KeyFile.ValueString(),
		CA: read("ca_file", m.CAFile), Cert: read("cert_file", m.CertFile), Key: read("key_file", m.KeyFile),
	}
	return func(ctx context.Context, _ bool) (fleet.Conn, error) {
		conn, err := connect.DialTLS(ctx, name, t, p.options())
		if err != nil {
			return nil, err
		}
		return p.client(name, conn), nil
	}
}

// asChild starts the agent on this machine.
func (p *gpuProvider) asChild(name, agentPath string) fleet.Dial {
	return func(ctx context.Context, _ bool) (fleet.Conn, error) {
		conn, err := connect.Process(ctx, name, connect.Command{Path: localAgent(agentPath), Args: []string{"serve", "--stdio"}}, p.options())
		if err != nil {
			return nil, err
		}
		return p.client(name, conn), nil
	}
}

// localAgent is the agent of this machine: the one that is named, one that lies beside
// the provider, or the one in PATH.
func localAgent(named string) string {
	if named != "" {
		return connect.ExpandHome(named)
	}
	file := "gpu-agent"
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	for _, beside := range []string{besideProvider(file), besideProvider(connect.AgentFile(runtime.GOOS, runtime.GOARCH))} {
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside
		}
	}
	if found, err := exec.LookPath(file); err == nil {
		return found
	}
	return file
}

// besideProvider is a path in the directory of the provider's own file.
func besideProvider(file string) string {
	self, err := os.Executable()
	if err != nil {
		return file
	}
	return filepath.Join(filepath.Dir(self), file)
}

// orEnvironment is an argument, or else an environment variable.
func orEnvironment(s types.String, env string) string {
	if s.IsNull() {
		return os.Getenv(env)
	}
	return s.ValueString()
}

func notYetKnown(name string) fleet.Endpoint {
	return fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) { return nil, &fleet.NotYetKnownError{Host: name} }}
}
