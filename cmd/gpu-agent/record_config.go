package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// providerHost is one of `hosts` of the provider's block; schema and texts are the
// provider's.
type providerHost struct {
	Local *struct {
		AgentPath string `json:"agent_path"`
	} `json:"local"`
	SSH *struct {
		connect.SSH
		Upload string `json:"upload"` // a recording installs nothing
	} `json:"ssh"`
	TLS       *connect.TLS   `json:"tls"`
	Simulated *simulatedHost `json:"simulated"`
	Cluster   string         `json:"cluster"` // the host says it itself
}

// simulatedHost is a host of a fleet file.
type simulatedHost struct {
	File string `json:"file"`
}

// reader is who asks, where that is not who the provider's block names.
type reader struct{ user, keyFile, certFile string }

// target is how the host is asked, by the code with which the provider asks it.
func (h providerHost) target(name string, as reader) (target, error) {
	o := connect.Options{Version: version}
	t := target{name: name}
	switch {
	case h.SSH != nil:
		s := h.SSH.SSH
		if as.user != "" {
			s.User = as.user
		}
		if as.keyFile != "" {
			alone := false
			s.PrivateKey, s.PrivateKeyFile, s.Password, s.UseAgent = "", as.keyFile, "", &alone
		}
		t.dial = func(ctx context.Context) (*connect.Conn, error) { return connect.DialSSH(ctx, name, s, o) }
	case h.TLS != nil:
		s := *h.TLS
		if as.certFile != "" {
			s.CertFile, s.KeyFile = as.certFile, as.keyFile
		}
		if err := connect.CheckKeyFile(connect.ExpandHome(s.KeyFile)); err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
		for file, into := range map[*string]*[]byte{&s.CAFile: &s.CA, &s.CertFile: &s.Cert, &s.KeyFile: &s.Key} {
			raw, err := os.ReadFile(connect.ExpandHome(*file))
			if err != nil {
				return t, fmt.Errorf("%s: %w", name, err)
			}
			*into = raw
		}
		t.dial = func(ctx context.Context) (*connect.Conn, error) { return connect.DialTLS(ctx, name, s, o) }
	case h.Simulated != nil:
		fleet, err := simulated.Open(h.Simulated.File)
		if err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
		host, err := fleet.Host(name)
		if err != nil {
			return t, fmt.Errorf("%s: %w", h.Simulated.File, err)
		}
		t.dial = func(context.Context) (*connect.Conn, error) {
			return connect.InProcess(agent.NewServer(host, host, agent.WithHostName(name), agent.WithVersion(version)))
		}
	case h.Local != nil:
		self, err := os.Executable()
		if h.Local.AgentPath != "" {
			self, err = connect.ExpandHome(h.Local.AgentPath), nil
		}
		if err != nil {
			return t, err
		}
		t.dial = func(ctx context.Context) (*connect.Conn, error) {
			return connect.Process(ctx, name, connect.Command{Path: self, Args: []string{"serve", "--stdio", "--role", "reader"}}, o)
		}
	default:
		return t, fmt.Errorf("%s: the provider's block has none of local, simulated, ssh and tls for it", name)
	}
	return t, nil
}

// configuration is what a folder's files say, as far as a provider's block may use it.
type configuration struct {
	dir       string
	providers map[string]hcl.Body // by alias
	known     map[string]cty.Value
	locals    map[string]hcl.Expression
	asked     []string // locals that are being worked out
}

// providerHosts are the hosts of the block `provider "gpu"` with that alias in a folder.
// Variables have their defaults, or what the usual files of values, the environment and
// varFiles give them, in Terraform's order.
func providerHosts(dir, alias string, varFiles []string) (map[string]providerHost, error) {
	c := configuration{dir: dir, providers: map[string]hcl.Body{}, known: map[string]cty.Value{}, locals: map[string]hcl.Expression{}}
	if err := c.read(varFiles); err != nil {
		return nil, err
	}
	block, ok := c.providers[alias]
	if !ok {
		var has []string
		for a := range c.providers {
			has = append(has, fmt.Sprintf("%q", a))
		}
		slices.Sort(has)
		return nil, fmt.Errorf("%s has no block provider \"gpu\" with the alias %q; aliases found: [%s]", dir, alias, strings.Join(has, ", "))
	}
	content, _, diags := block.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "hosts"}, {Name: "simulated_fleet"}}})
	if diags.HasErrors() {
		return nil, diags
	}
	attribute, ok := content.Attributes["hosts"]
	if !ok {
		return c.simulatedHosts(content.Attributes["simulated_fleet"])
	}
	v, err := c.value(attribute.Expr)
	if err != nil {
		return nil, err
	}
	if t := v.Type(); !t.IsObjectType() && !t.IsMapType() {
		return nil, fmt.Errorf("%s: hosts is not a map of hosts", attribute.Range)
	}
	if v.IsNull() || v.LengthInt() == 0 {
		return nil, fmt.Errorf("%s: hosts names no host", attribute.Range)
	}
	raw, err := json.Marshal(ctyjson.SimpleJSONValue{Value: v})
	if err != nil {
		return nil, err
	}
	var out map[string]providerHost
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		return nil, fmt.Errorf("%s: hosts: %w", attribute.Range, err)
	}
	for _, h := range out {
		h.filesIn(dir)
	}
	return out, nil
}

// filesIn makes the files that a host names those of the configuration's folder, in which Terraform runs.
func (h providerHost) filesIn(dir string) {
	var files []*string
	if h.SSH != nil {
		files = append(files, &h.SSH.PrivateKeyFile, &h.SSH.KnownHostsFile)
	}
	if h.TLS != nil {
		files = append(files, &h.TLS.CAFile, &h.TLS.CertFile, &h.TLS.KeyFile)
	}
	if h.Simulated != nil {
		files = append(files, &h.Simulated.File)
	}
	for _, file := range files {
		*file = fileIn(dir, *file)
	}
}

// fileIn is a file as a configuration in a folder names it. path.module is that folder already.
func fileIn(dir, file string) string {
	if file == "" || filepath.IsAbs(file) || strings.HasPrefix(file, "~") || strings.HasPrefix(file, dir+"/") {
		return file
	}
	return filepath.Join(dir, file)
}

// simulatedHosts are the hosts of a fleet file that the block, or the environment, names.
func (c *configuration) simulatedHosts(named *hcl.Attribute) (map[string]providerHost, error) {
	file := os.Getenv("GPU_SIMULATED_FLEET")
	if named != nil {
		v, err := c.value(named.Expr)
		if err == nil && (v.IsNull() || v.Type() != cty.String) {
			err = fmt.Errorf("%s: simulated_fleet is no name of a file", named.Range)
		}
		if err != nil {
			return nil, err
		}
		file = fileIn(c.dir, v.AsString())
	}
	if file == "" {
		return nil, fmt.Errorf("the block provider \"gpu\" of %s has neither hosts nor simulated_fleet", c.dir)
	}
	fleet, err := simulated.Open(file)
	if err != nil {
		return nil, err
	}
	out := map[string]providerHost{}
	for _, name := range fleet.Hosts() {
		out[name] = providerHost{Simulated: &simulatedHost{File: file}}
	}
	return out, nil
}

func (c *configuration) read(varFiles []string) error {
	parser := hclparse.NewParser()
	parse := func(file string) (hcl.Body, error) {
		f, diags := (*hcl.File)(nil), hcl.Diagnostics(nil)
		if strings.HasSuffix(file, ".json") {
			f, diags = parser.ParseJSONFile(file)
		} else {
			f, diags = parser.ParseHCLFile(file)
		}
		if diags.HasErrors() {
			return nil, diags
		}
		return f.Body, nil
	}
	files := func(patterns ...string) (found []string) {
		for _, p := range patterns {
			more, _ := filepath.Glob(filepath.Join(c.dir, p)) // the pattern is ours
			found = append(found, more...)
		}
		return found
	}
	sources := files("*.tf", "*.tofu", "*.tf.json")
	if len(sources) == 0 {
		return fmt.Errorf("%s has no configuration of Terraform", c.dir)
	}
	variables := map[string]variable{}
	for _, file := range sources {
		body, err := parse(file)
		if err != nil {
			return err
		}
		if err := c.add(body, variables); err != nil {
			return err
		}
	}
	for name, v := range variables {
		if text, ok := os.LookupEnv("TF_VAR_" + name); ok {
			if err := c.give(name, v, variableText(text)); err != nil {
				return err
			}
		}
	}
	auto := files("*.auto.tfvars", "*.auto.tfvars.json")
	slices.Sort(auto)
	for _, file := range append(append(files("terraform.tfvars", "terraform.tfvars.json"), auto...), varFiles...) {
		body, err := parse(file)
		if err != nil {
			return err
		}
		given, diags := body.JustAttributes()
		if diags.HasErrors() {
			return diags
		}
		for name, a := range given {
			v, diags := a.Expr.Value(nil)
			if diags.HasErrors() {
				return diags
			}
			if declared, ok := variables[name]; ok {
				if err := c.give(name, declared, v); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
			}
		}
	}
	return nil
}

// variable is the type that a variable's values are converted to.
type variable struct {
	want     cty.Type
	defaults *typeexpr.Defaults
}

func (c *configuration) give(name string, as variable, v cty.Value) error {
	if as.defaults != nil && !v.IsNull() {
		v = as.defaults.Apply(v)
	}
	v, err := convert.Convert(v, as.want)
	if err != nil {
		return fmt.Errorf("variable %s: %w", name, err)
	}
	c.known["var."+name] = v
	return nil
}

// add takes what one file declares.
func (c *configuration) add(body hcl.Body, variables map[string]variable) error {
	content, _, diags := body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "provider", LabelNames: []string{"name"}}, {Type: "variable", LabelNames: []string{"name"}}, {Type: "locals"},
	}})
	if diags.HasErrors() {
		return diags
	}
	for _, block := range content.Blocks {
		switch block.Type {
		case "provider":
			if block.Labels[0] != "gpu" {
				continue
			}
			alias, err := constant(block.Body, "alias")
			if err != nil {
				return err
			}
			if alias == cty.NilVal {
				alias = cty.StringVal("")
			}
			c.providers[alias.AsString()] = block.Body
		case "variable":
			declared := variable{want: cty.DynamicPseudoType}
			typed, _, diags := block.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "type"}}})
			if a := typed.Attributes["type"]; a != nil && !diags.HasErrors() {
				declared.want, declared.defaults, diags = typeexpr.TypeConstraintWithDefaults(a.Expr)
			}
			if diags.HasErrors() {
				return diags
			}
			variables[block.Labels[0]] = declared
			v, err := constant(block.Body, "default")
			if err == nil && v != cty.NilVal {
				err = c.give(block.Labels[0], declared, v)
			}
			if err != nil {
				return err
			}
		case "locals":
			attributes, diags := block.Body.JustAttributes()
			if diags.HasErrors() {
				return diags
			}
			for name, a := range attributes {
				c.locals[name] = a.Expr
			}
		}
	}
	return nil
}

// constant is an attribute that uses nothing else, NilVal if it is not there.
func constant(body hcl.Body, name string) (cty.Value, error) {
	content, _, diags := body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: name}}})
	if diags.HasErrors() {
		return cty.NilVal, diags
	}
	a, ok := content.Attributes[name]
	if !ok {
		return cty.NilVal, nil
	}
	v, diags := a.Expr.Value(nil)
	if diags.HasErrors() {
		return cty.NilVal, diags
	}
	return v, nil
}

// variableText is a variable's value in the environment: an expression if it is one of a
// list, map or object, else the text.
func variableText(text string) cty.Value {
	if expr, diags := hclsyntax.ParseExpression([]byte(text), "environment", hcl.InitialPos); !diags.HasErrors() {
		if v, diags := expr.Value(nil); !diags.HasErrors() && v.CanIterateElements() {
			return v
		}
	}
	return cty.StringVal(text)
}

// value works an expression out.
func (c *configuration) value(expr hcl.Expression) (cty.Value, error) {
	uses := map[string]map[string]cty.Value{"path": {"module": cty.StringVal(c.dir), "root": cty.StringVal(c.dir)}, "var": {}, "local": {}}
	for _, t := range expr.Variables() {
		root, name := t.RootName(), ""
		if len(t) > 1 {
			if attr, ok := t[1].(hcl.TraverseAttr); ok {
				name = attr.Name
			}
		}
		switch v, known := c.known[root+"."+name]; {
		case root == "path" && uses["path"][name] != cty.NilVal:
		case known:
			uses[root][name] = v
		case root == "local" && c.locals[name] != nil:
			if slices.Contains(c.asked, name) {
				return cty.NilVal, fmt.Errorf("%s: local.%s uses itself", t.SourceRange(), name)
			}
			c.asked = append(c.asked, name)
			v, err := c.value(c.locals[name])
			if err != nil {
				return cty.NilVal, err
			}
			c.asked = c.asked[:len(c.asked)-1]
			c.known["local."+name], uses["local"][name] = v, v
		case root == "var":
			return cty.NilVal, fmt.Errorf("%s: var.%s has no value; --var-file names a file that has it", t.SourceRange(), name)
		default:
			return cty.NilVal,
				fmt.Errorf("%s: hosts depends on %s.%s, which only Terraform knows; name the hosts as NAME=DESTINATION or in a file for --hosts",
					t.SourceRange(), root, name)
		}
	}
	scope := &hcl.EvalContext{Variables: map[string]cty.Value{}, Functions: evaluated()}
	for root, values := range uses {
		scope.Variables[root] = cty.ObjectVal(values)
	}
	v, diags := expr.Value(scope)
	if diags.HasErrors() {
		return cty.NilVal,
			errors.Join(diags, errors.New("where only Terraform can work it out, name the hosts as NAME=DESTINATION or in a file for --hosts"))
	}
	return v, nil
}

// evaluated are the functions of Terraform's language that lists of hosts are made with.
func evaluated() map[string]function.Function {
	ofText := func(read func(string) (string, error)) function.Function {
		return function.New(&function.Spec{
			Params: []function.Parameter{{Name: "value", Type: cty.String}}, Type: function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				text, err := read(args[0].AsString())
				return cty.StringVal(text), err
			},
		})
	}
	to := stdlib.MakeToFunc
	return map[string]function.Function{
		"concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc, "csvdecode": stdlib.CSVDecodeFunc,
		"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc,
		"flatten": stdlib.FlattenFunc, "format": stdlib.FormatFunc, "formatlist": stdlib.FormatListFunc, "join": stdlib.JoinFunc,
		"jsondecode": stdlib.JSONDecodeFunc, "keys": stdlib.KeysFunc, "length": stdlib.LengthFunc, "lookup": stdlib.LookupFunc,
		"lower": stdlib.LowerFunc, "merge": stdlib.MergeFunc, "range": stdlib.RangeFunc, "regex": stdlib.RegexFunc,
		"replace": stdlib.ReplaceFunc, "setproduct": stdlib.SetProductFunc, "setunion": stdlib.SetUnionFunc, "split": stdlib.SplitFunc,
		"tolist": to(cty.List(cty.DynamicPseudoType)), "tomap": to(cty.Map(cty.DynamicPseudoType)), "tonumber": to(cty.Number),
		"toset": to(cty.Set(cty.DynamicPseudoType)), "tostring": to(cty.String), "trimspace": stdlib.TrimSpaceFunc,
		"upper": stdlib.UpperFunc, "values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,
		"pathexpand": ofText(func(s string) (string, error) { return connect.ExpandHome(s), nil }),
		"file": ofText(func(s string) (string, error) {
			raw, err := os.ReadFile(connect.ExpandHome(s))
			return string(raw), err
		}),
	}
}
