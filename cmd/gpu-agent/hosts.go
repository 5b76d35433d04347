package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// askedAtOnce is how many hosts are asked at the same time.
const askedAtOnce = 16

// target is a host that is asked.
type target struct {
	name string
	dial func(context.Context) (*connect.Conn, error)
}

// configHosts are the hosts of a folder with configuration, and who asks them.
type configHosts struct {
	dir, alias string
	varFiles   []string
	as         reader
}

func (c *configHosts) register(flags *pflag.FlagSet) {
	flags.StringVar(&c.dir, "config", "", "a folder with the provider's configuration, whose hosts are asked")
	flags.StringVar(&c.alias, "alias", "", "with --config: the alias of the provider's block")
	flags.StringArrayVar(&c.varFiles, "var-file", nil, "with --config: a file with values of variables; may be repeated")
	flags.StringVar(&c.as.user, "user", "", "with --config: the user to log in as over SSH, instead of the configuration's")
	flags.StringVar(&c.as.keyFile, "key", "", "with --config: the reader's private key, instead of what the configuration logs in with")
	flags.StringVar(&c.as.certFile, "cert", "", "with --config: the reader's certificate for agents that listen; --key is its key")
}

// targets are the hosts of the provider's block, by name. One that cannot be asked as the block
// says, such as one whose key file is missing, is a target that fails.
func (c *configHosts) targets() ([]target, error) {
	if c.as.certFile != "" && c.as.keyFile == "" {
		return nil, errors.New("--cert needs --key")
	}
	hosts, err := providerHosts(c.dir, c.alias, c.varFiles)
	if err != nil {
		return nil, err
	}
	var out []target
	for name, h := range hosts {
		t, err := h.target(name, c.as)
		if err != nil {
			t.dial = func(context.Context) (*connect.Conn, error) { return nil, &misconfiguredError{err} }
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b target) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// misconfiguredError is why a host cannot even be asked.
type misconfiguredError struct{ error }

func (e *misconfiguredError) Unwrap() error { return e.error }

// answer is what one host said.
type answer[T any] struct {
	host  string
	agent string // its version
	value T
	err   error
}

// ask asks one host once.
func ask[T any](ctx context.Context, t target, read func(context.Context, *agent.Client) (T, error)) answer[T] {
	out := answer[T]{host: t.name}
	conn, err := t.dial(ctx)
	if err != nil {
		out.err = err
		return out
	}
	defer func() { _ = conn.Close() }() // it was only read from
	client := agent.NewClient(conn, t.name, agent.WithClientVersion(version), agent.WithHello(conn.Hello))
	if out.value, err = read(ctx, client); err != nil {
		out.err = fmt.Errorf("%s: %w", t.name, err)
	}
	out.agent = cmp.Or(client.Agent().AgentVersion, version) // this process says no hello to itself
	return out
}

// askAll asks every host, and returns the answers in the hosts' order.
func askAll[T any](ctx context.Context, hosts []target, read func(context.Context, *agent.Client) (T, error)) []answer[T] {
	out := make([]answer[T], len(hosts))
	var g errgroup.Group
	g.SetLimit(askedAtOnce)
	for i, t := range hosts {
		g.Go(func() error {
			out[i] = ask(ctx, t, read)
			return nil
		})
	}
	_ = g.Wait() // each answer has its error
	return out
}

// why is the reason why a host did not answer, on one line.
func (a *answer[T]) why() string {
	text := oneLine(a.err.Error())
	for _, said := range []string{a.host + ": ", "host " + a.host + ": "} {
		text = strings.TrimPrefix(text, said)
	}
	return text
}

// reading is a command that reads this host, or with --config all hosts of a configuration.
type reading struct {
	listing
	host   *hostOptions
	config configHosts
}

func (r *reading) register(flags *pflag.FlagSet) {
	r.listing.register(flags)
	r.config.register(flags)
}

// fleet tells whether the hosts of a configuration are asked.
func (r *reading) fleet() bool { return r.config.dir != "" }

// check refuses wrong use before any host is asked.
func (r *reading) check(sheets ...columns) error {
	if err := r.listing.check(sheets...); err != nil {
		return &codedError{code: exitBadUsage, err: err}
	}
	if !r.fleet() && (r.config.alias != "" || len(r.config.varFiles) > 0 || r.config.as != reader{}) {
		return &codedError{code: exitBadUsage, err: errors.New("--alias, --var-file, --user, --key and --cert go with --config")}
	}
	return nil
}

// readHosts asks this host, or those of the configuration that the filters leave. The error of this host alone is the error.
func readHosts[T any](cmd *cobra.Command, r *reading, read func(context.Context, *agent.Client) (T, error)) ([]answer[T], error) {
	ctx := cmd.Context()
	if r.fleet() {
		hosts, err := r.config.targets()
		if err != nil {
			return nil, &codedError{code: exitBadUsage, err: err}
		}
		hosts = slices.DeleteFunc(hosts, func(t target) bool { return !r.wantsHost(t.name) })
		return askAll(ctx, hosts, read), nil
	}
	client, err := r.host.client(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }() // in process
	out := answer[T]{agent: version}
	if out.value, err = read(ctx, client); err != nil {
		return nil, err
	}
	return []answer[T]{out}, nil
}

func readInventory(ctx context.Context, client *agent.Client) (gpu.Host, error) {
	return client.Inventory(ctx)
}

// byName are the hosts that answered, by the names that the configuration gives them.
func byName(answers []answer[gpu.Host]) []*gpu.Host {
	var out []*gpu.Host
	for i := range answers {
		if a := &answers[i]; a.err == nil {
			a.value.Name = cmp.Or(a.host, a.value.Name)
			out = append(out, &a.value)
		}
	}
	return out
}

// unanswered is a host that did not answer, in documents.
type unanswered struct {
	Host  string `json:"host"`
	Error string `json:"error"`
}

// unansweredOf are the hosts that did not answer.
func unansweredOf[T any](answers []answer[T]) []unanswered {
	var out []unanswered
	for i := range answers {
		if answers[i].err != nil {
			out = append(out, unanswered{Host: answers[i].host, Error: answers[i].why()})
		}
	}
	return out
}

// outcome is the error of a command after it has printed what hosts answered.
func outcome(silent []unanswered, of int) error {
	if len(silent) == 0 {
		return nil
	}
	names := words.Each(silent, func(u unanswered) string { return words.Name(u.Host) })
	return fmt.Errorf("%d of %s did not answer: %s", len(silent), words.Plural(of, "host"), words.Join(names))
}
