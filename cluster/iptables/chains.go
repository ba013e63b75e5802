package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// The names are kubelet's (pkg/kubelet/kubelet_network_linux.go).
const (
	hint     = "KUBE-IPTABLES-HINT"
	canary   = "KUBE-KUBELET-CANARY"
	firewall = "KUBE-FIREWALL"
)

const (
	defaultInterval = time.Minute
	// callTimeout bounds the execution of a program, which waits up to 5 s for the lock of iptables.
	callTimeout = 30 * time.Second
)

// Options configure [New].
type Options struct {
	// Interval is the time between two looks for the canary. Default: a minute, as in kubelet.
	Interval time.Duration
	// Logger receives what cannot be made, once, and that the tables were flushed. Default: that of package slog.
	Logger logr.Logger

	// run executes a program. nil: exec.
	run func(ctx context.Context, program string, args ...string) error
}

// Chains keeps the chains of both families. Make one with [New].
type Chains struct {
	interval time.Duration
	log      logr.Logger
	families []*family
}

// New returns chains. It makes none.
func New(opts Options) *Chains {
	opts.Logger = logging.OrDefault(opts.Logger)
	if opts.Interval <= 0 {
		opts.Interval = defaultInterval
	}
	if opts.run == nil {
		opts.run = execute
	}
	return &Chains{opts.Interval, opts.Logger, []*family{
		{program: "iptables", firewall: true, run: opts.run}, {program: "ip6tables", run: opts.run},
	}}
}

// Run makes the chains, and makes them again after a flush, until ctx ends. It returns nil. A family
// whose program is missing is left out. Run must not be called twice at the same time.
func (c *Chains) Run(ctx context.Context) error {
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	families := c.families
	for {
		var left []*family
		for _, f := range families {
			if c.round(ctx, f) {
				left = append(left, f)
			}
		}
		if families = left; len(left) == 0 {
			<-ctx.Done()
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// round makes what is missing, and reports whether the family has a program.
func (c *Chains) round(ctx context.Context, f *family) bool {
	log := c.log.WithValues("program", f.program)
	flushed := f.made && !f.exists(ctx, "mangle", canary)
	if f.made && !flushed && !f.again {
		return true
	}
	err := f.make(ctx)
	if ctx.Err() != nil {
		return true
	}
	if errors.Is(err, exec.ErrNotFound) {
		log.Info("There is no iptables on this machine, so the chains for other programs are not made")
		return false
	}
	switch text := fmt.Sprint(err); {
	case err != nil && text != f.problem:
		f.problem = text
		log.Error(err, "The chains of iptables for other programs cannot be made; they are tried again")
	case err == nil && flushed:
		log.Info("The tables of iptables were flushed; the chains for other programs are made again")
	}
	if err == nil {
		f.problem = ""
	}
	// Who flushes the tables does it one after the other, so they are made a second time after the next interval.
	f.made, f.again = err == nil, flushed
	return true
}

// family is IPv4 or IPv6.
type family struct {
	program  string
	firewall bool
	run      func(ctx context.Context, program string, args ...string) error
	// made is true once all chains were made, until they cannot be made again.
	made bool
	// again is true if everything is made at the next round, whatever there is.
	again bool
	// problem is the error that was logged; "" for none.
	problem string
}

// make makes everything that is missing. The canary in mangle is the last one: it stands for the others.
func (f *family) make(ctx context.Context) error {
	if err := f.chain(ctx, "mangle", hint); err != nil {
		return err
	}
	if f.firewall {
		if err := f.makeFirewall(ctx); err != nil {
			return err
		}
	}
	for _, table := range []string{"filter", "nat", "mangle"} {
		if err := f.chain(ctx, table, canary); err != nil {
			return err
		}
	}
	return nil
}

// makeFirewall makes the rule against packets to loopback. kube-proxy makes the same one.
func (f *family) makeFirewall(ctx context.Context) error {
	if err := f.chain(ctx, "filter", firewall); err != nil {
		return err
	}
	for _, chain := range []string{"OUTPUT", "INPUT"} {
		if err := f.rule(ctx, "-I", chain, "-j", firewall); err != nil {
			return err
		}
	}
	return f.rule(ctx, "-A", firewall, "-m", "comment", "--comment", "block incoming localnet connections",
		"--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8", "-m", "conntrack", "!", "--ctstate",
		"RELATED,ESTABLISHED,DNAT", "-j", "DROP")
}

// rule makes a rule of the table filter, unless it exists. op is -I for the first place, or -A for the last.
func (f *family) rule(ctx context.Context, op, chain string, rule ...string) error {
	if f.call(ctx, "-C", "filter", chain, rule...) == nil {
		return nil
	}
	return f.call(ctx, op, "filter", chain, rule...)
}

// chain makes a chain, unless it exists.
func (f *family) chain(ctx context.Context, table, chain string) error {
	if f.exists(ctx, table, chain) {
		return nil
	}
	return f.call(ctx, "-N", table, chain)
}

func (f *family) exists(ctx context.Context, table, chain string) bool {
	return f.call(ctx, "-S", table, chain) == nil
}

func (f *family) call(ctx context.Context, op, table, chain string, rule ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := f.run(ctx, f.program, append([]string{"-w", "5", op, chain, "-t", table}, rule...)...)
	if err != nil {
		return fmt.Errorf("%s %s of chain %s in table %s: %w", f.program, op, chain, table, err)
	}
	return nil
}

// execute runs a program. The error has what it wrote.
func execute(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
}
