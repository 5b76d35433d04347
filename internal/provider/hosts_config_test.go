package provider_test

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// fields are the attributes of a nested object; those that are not named are null.
type fields = map[string]any

// valueOf makes a value of a type from fields, texts, numbers and tftypes.UnknownValue.
func valueOf(ty tftypes.Type, v any) tftypes.Value {
	m, nested := v.(fields)
	switch ty := ty.(type) {
	case tftypes.Object:
		if !nested {
			break
		}
		out := map[string]tftypes.Value{}
		for name, at := range ty.AttributeTypes {
			out[name] = valueOf(at, m[name])
		}
		return tftypes.NewValue(ty, out)
	case tftypes.Map:
		if !nested {
			break
		}
		out := map[string]tftypes.Value{}
		for key, e := range m {
			out[key] = valueOf(ty.ElementType, e)
		}
		return tftypes.NewValue(ty, out)
	}
	return tftypes.NewValue(ty, v)
}

// newProtocol starts a provider that is not configured yet.
func newProtocol(t *testing.T) (p *protocol, schema *tfprotov6.Schema) {
	t.Helper()
	start, err := provider.Server("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	p = &protocol{t: t, server: start()}
	s, err := p.server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p.schemas = s.ResourceSchemas
	return p, s.Provider
}

// configure validates and configures a provider with hosts, and returns the errors as
// "path: summary: detail".
func configure(t *testing.T, hosts fields) (*protocol, []string) {
	t.Helper()
	p, schema := newProtocol(t)
	config, err := tfprotov6.NewDynamicValue(schema.ValueType(), valueOf(schema.ValueType(), fields{"hosts": hosts, "owner": "test"}))
	if err != nil {
		t.Fatal(err)
	}
	valid, err := p.server.ValidateProviderConfig(t.Context(), &tfprotov6.ValidateProviderConfigRequest{Config: &config})
	if err != nil {
		t.Fatal(err)
	}
	if wrong := errorsIn(valid.Diagnostics); len(wrong) > 0 {
		return p, wrong
	}
	reply, err := p.server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: &config})
	if err != nil {
		t.Fatal(err)
	}
	return p, errorsIn(reply.Diagnostics)
}

func errorsIn(diags []*tfprotov6.Diagnostic) []string {
	var out []string
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			out = append(out, fmt.Sprintf("%s: %s: %s", pathOf(d.Attribute), d.Summary, d.Detail))
		}
	}
	return out
}

// pathOf writes a path as a configuration does.
func pathOf(at *tftypes.AttributePath) string {
	var b strings.Builder
	for _, step := range at.Steps() {
		switch s := step.(type) {
		case tftypes.AttributeName:
			b.WriteString("." + string(s))
		case tftypes.ElementKeyString:
			fmt.Fprintf(&b, "[%s]", string(s))
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}

func waysOf(t *testing.T) fields {
	t.Helper()
	r := rig.New(t, rig.Standalone(rig.Node("hv01")))
	c := newCertificates(t)
	return fields{
		"local":     fields{},
		"simulated": fields{"file": r.Fleet.Path()},
		"ssh":       fields{"address": "hv01.corp.example"},
		"tls":       fields{"address": "hv01.corp.example:8443", "ca_file": c.cert, "cert_file": c.cert, "key_file": c.key},
	}
}

func TestHostIsReachedInExactlyOneWay(t *testing.T) {
	t.Parallel()
	ways := waysOf(t)
	names := rig.Keys(ways)
	for chosen := range 1 << len(names) {
		host, said := fields{}, []string{}
		for i, n := range names {
			if chosen&(1<<i) != 0 {
				host[n], said = ways[n], append(said, n)
			}
		}
		_, wrong := configure(t, fields{"hv01": host})
		switch {
		case len(said) == 1 && len(wrong) > 0:
			t.Errorf("%v is refused: %q", said, wrong)
		case len(said) != 1 && (len(wrong) != 1 || !strings.HasPrefix(wrong[0], "hosts[hv01]: ") ||
			!strings.Contains(wrong[0], "Exactly one of")):
			t.Errorf("%v: %q", said, wrong)
		case len(said) > 1 && !strings.Contains(wrong[0], "Found: The host has "+strings.Join(said, " and ")):
			t.Errorf("%v: %q does not name them", said, wrong)
		}
	}
}

func TestBadHostIsRefusedAtItsAttribute(t *testing.T) {
	t.Parallel()
	ways := waysOf(t)
	missing := filepath.Join(t.TempDir(), "missing")
	// with is a way with some of its attributes set anew.
	with := func(way string, set fields) fields {
		usual, _ := ways[way].(fields)
		host := maps.Clone(usual)
		maps.Copy(host, set)
		return fields{way: host}
	}
	for name, x := range map[string]struct {
		host any
		at   string
		says string
	}{
		"no host at all":      {nil, "hosts[hv01]", "Exactly one of local, simulated, ssh and tls"},
		"empty agent path":    {with("local", fields{"agent_path": ""}), "local.agent_path", "at least 1"},
		"no fleet file":       {with("simulated", fields{"file": missing}), "simulated.file", missing},
		"no address":          {fields{"ssh": fields{"user": "a"}}, "ssh.address", "ssh.address"},
		"empty address":       {with("ssh", fields{"address": ""}), "ssh.address", "at least 1"},
		"port 0":              {with("ssh", fields{"port": 0}), "ssh.port", "between 1 and 65535"},
		"port 65536":          {with("ssh", fields{"port": 65536}), "ssh.port", "between 1 and 65535"},
		"empty user":          {with("ssh", fields{"user": ""}), "ssh.user", "at least 1"},
		"empty key":           {with("ssh", fields{"private_key": ""}), "ssh.private_key", "at least 1"},
		"two keys":            {with("ssh", fields{"private_key": "k", "private_key_file": "f"}), "ssh.private_key", "private_key_file"},
		"no key file":         {with("ssh", fields{"private_key_file": missing}), "ssh.private_key_file", missing},
		"no known hosts":      {with("ssh", fields{"known_hosts_file": missing}), "ssh.known_hosts_file", missing},
		"no host key":         {with("ssh", fields{"host_key": "MD5:00"}), "ssh.host_key", "SHA256:"},
		"command for a path":  {with("ssh", fields{"agent_path": "gpu-agent; reboot"}), "ssh.agent_path", "gpu-agent; reboot"},
		"option for a path":   {with("ssh", fields{"agent_path": "-x"}), "ssh.agent_path", "-x"},
		"unknown word":        {with("ssh", fields{"upload": "always"}), "ssh.upload", "always"},
		"sudo and upload":     {with("ssh", fields{"sudo": true, "upload": "auto"}), "ssh.sudo", "let that user run anything as root"},
		"empty jump":          {with("ssh", fields{"proxy_jump": ""}), "ssh.proxy_jump", "at least 1"},
		"no authority":        {with("tls", fields{"ca_file": nil}), "tls.ca_file", "ca_file"},
		"no authority's file": {with("tls", fields{"ca_file": missing}), "tls.ca_file", missing},
		"no certificate":      {with("tls", fields{"cert_file": missing}), "tls.cert_file", missing},
		"no key":              {with("tls", fields{"key_file": missing}), "tls.key_file", missing},
		"empty cluster":       {fields{"local": fields{}, "cluster": ""}, "cluster", "at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, wrong := configure(t, fields{"hv01": x.host})
			at := strings.TrimSuffix("hosts[hv01]."+strings.TrimPrefix(x.at, "hosts[hv01]"), ".")
			if len(wrong) != 1 || !strings.HasPrefix(wrong[0], at+": ") || !strings.Contains(wrong[0], x.says) {
				t.Errorf("want one error at %s that says %q, got:\n%s", at, x.says, strings.Join(wrong, "\n"))
			}
		})
	}
}

// What is not known yet is no mistake: the host is asked at apply.
func TestHostThatIsNotKnownYetIsNotRefused(t *testing.T) {
	t.Parallel()
	unknown := any(tftypes.UnknownValue)
	for name, host := range map[string]any{
		"the host":    unknown,
		"the way":     fields{"ssh": unknown},
		"which way":   fields{"ssh": unknown, "tls": unknown},
		"the address": fields{"ssh": fields{"address": unknown}},
		"the key":     fields{"ssh": fields{"address": "hv01", "private_key": unknown, "private_key_file": nil}},
		"either key":  fields{"ssh": fields{"address": "hv01", "private_key": unknown, "private_key_file": unknown}},
		"the words":   fields{"ssh": fields{"address": "hv01", "agent_path": unknown, "host_key": unknown, "upload": unknown, "port": unknown}},
		"the files":   fields{"tls": fields{"address": "hv01:1", "ca_file": unknown, "cert_file": unknown, "key_file": unknown}},
		"the fleet":   fields{"simulated": fields{"file": unknown}},
		"the cluster": fields{"ssh": fields{"address": unknown}, "cluster": unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, wrong := configure(t, fields{"hv01": host})
			if len(wrong) > 0 {
				t.Fatal(wrong)
			}
			p.planCreate("gpu_vm_assignment", fields{"vm": tftypes.NewValue(tftypes.String, "avd-01"), "partition": fields{}})
		})
	}
}

// Ctrl-C ends a plan that waits for a host that takes the connection and says nothing.
func TestInterruptDoesNotWaitForASilentHost(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed with the test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	asked := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		close(asked)
		defer func() { _ = c.Close() }()
		<-t.Context().Done()
	}()
	addr, _ := l.Addr().(*net.TCPAddr)
	p, wrong := configure(t, fields{
		"hv01": fields{"ssh": fields{"address": "127.0.0.1", "port": addr.Port, "password": "p", "host_key": fingerprint}},
	})
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	go func() {
		<-asked
		if _, err := p.server.StopProvider(t.Context(), &tfprotov6.StopProviderRequest{}); err != nil {
			t.Error(err)
		}
	}()
	s := p.schemas["gpu_partition_config"]
	set := fields{
		"hosts": tftypes.NewValue(tftypes.Set{ElementType: tftypes.String}, []tftypes.Value{tftypes.NewValue(tftypes.String, "hv01")}),
		"gpu_p": fields{"partition_count": tftypes.NewValue(tftypes.Number, 4)},
	}
	none, err := tfprotov6.NewDynamicValue(s.ValueType(), tftypes.NewValue(s.ValueType(), nil))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := p.server.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: "gpu_partition_config", PriorState: &none, Config: p.object(s, set, nil),
		ProposedNewState: p.object(s, set, tftypes.UnknownValue),
	})
	if err != nil {
		t.Fatal(err)
	}
	if wrong := errorsIn(reply.Diagnostics); len(wrong) != 1 || !strings.Contains(wrong[0], "cancelled before the host had answered") {
		t.Errorf("got %q", wrong)
	}
}
