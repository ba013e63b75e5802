package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kernel has tables in memory. Each has its chains and rules as a list of arguments.
type kernel struct {
	mu      sync.Mutex
	missing []string // programs
	broken  error
	tables  map[string][]string // of a program and a table
	calls   int
}

func (k *kernel) run(_ context.Context, program string, args ...string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if slices.Contains(k.missing, program) {
		return &exec.Error{Name: program, Err: exec.ErrNotFound}
	}
	op, chain, table := args[2], args[3], program+" "+args[5]
	rule := strings.TrimSpace(chain + " " + strings.Join(args[6:], " "))
	switch there := slices.Contains(k.tables[table], rule); op {
	case "-S", "-C":
		if !there {
			return errors.New("none")
		}
	case "-N", "-A", "-I":
		if there {
			return errors.New("exists")
		}
		if k.broken != nil {
			return k.broken
		}
		k.tables[table] = append(k.tables[table], rule)
	}
	return nil
}

// now returns the tables and the number of calls so far.
func (k *kernel) now() (tables map[string][]string, calls int) {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	tables = map[string][]string{}
	for name, rules := range k.tables {
		if len(rules) > 0 {
			tables[name] = slices.Clone(rules)
		}
	}
	return tables, k.calls
}

func (k *kernel) hasAll(t *testing.T) {
	t.Helper()
	tables, _ := k.now()
	assert.Equal(t, want(), tables)
}

// change changes the kernel behind the back of the chains.
func (k *kernel) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

func want() map[string][]string {
	return map[string][]string{
		"iptables mangle":  {"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"},
		"iptables nat":     {"KUBE-KUBELET-CANARY"},
		"ip6tables mangle": {"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"},
		"ip6tables nat":    {"KUBE-KUBELET-CANARY"},
		"ip6tables filter": {"KUBE-KUBELET-CANARY"},
		"iptables filter": {
			"KUBE-FIREWALL", "OUTPUT -j KUBE-FIREWALL", "INPUT -j KUBE-FIREWALL",
			"KUBE-FIREWALL -m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src " +
				"127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
			"KUBE-KUBELET-CANARY",
		},
	}
}

// start runs chains on the kernel in virtual time, and returns the lines of the log so far.
func start(t *testing.T, k *kernel) (lines func() []string, stop func()) {
	var mu sync.Mutex
	var all []string
	log := funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, line)
	}, funcr.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(Options{Logger: log, run: k.run}).Run(ctx) }()
	synctest.Wait()
	lines = func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
	return lines, func() { cancel(); assert.NoError(t, <-done) }
}

func TestChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{tables: map[string][]string{}}
		lines, stop := start(t, k)
		k.hasAll(t)
		_, before := k.now()
		time.Sleep(10*time.Minute + time.Second)
		assert.Empty(t, lines())
		_, calls := k.now()
		assert.LessOrEqual(t, calls-before, 2*10, "an idle minute costs a question for each family")
		stop()
		k.hasAll(t)           // they stay
		_, stop = start(t, k) // an agent that starts again
		k.hasAll(t)
		stop()
	})
}

// A flush that takes its time leaves nothing missing: mangle was flushed first, and filter a second after the
// chains were made again.
func TestChainsAfterAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{tables: map[string][]string{}}
		lines, stop := start(t, k)
		defer stop()
		k.change(func() { delete(k.tables, "iptables mangle") })
		time.Sleep(time.Minute + time.Second)
		k.hasAll(t)
		k.change(func() { delete(k.tables, "iptables filter") })
		time.Sleep(time.Minute)
		k.hasAll(t)
		assert.Len(t, lines(), 1)
	})
}

func TestChainsThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{tables: map[string][]string{}, broken: errors.New("operation not permitted")}
		lines, stop := start(t, k)
		defer stop()
		time.Sleep(time.Hour + time.Second)
		got := lines()
		assert.Len(t, got, 2, "once for each family")
		assert.Contains(t, got[0], "iptables -N of chain KUBE-IPTABLES-HINT in table mangle: operation not permitted")
		k.change(func() { k.broken = nil })
		time.Sleep(time.Minute)
		k.hasAll(t)
	})
}

func TestMissingPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{tables: map[string][]string{}, missing: []string{"ip6tables"}}
		lines, stop := start(t, k)
		tables, _ := k.now()
		assert.Len(t, tables, 3)
		assert.Len(t, lines(), 1)
		stop()

		k = &kernel{missing: []string{"iptables", "ip6tables"}}
		lines, stop = start(t, k)
		defer stop()
		time.Sleep(time.Hour)
		assert.Len(t, lines(), 2, fmt.Sprint(lines()))
		_, calls := k.now()
		assert.LessOrEqual(t, calls, 4, "nothing to ask")
	})
}

// The zero value of the options is usable.
func TestDefaults(t *testing.T) {
	c := New(Options{Logger: logr.Discard()})
	assert.Equal(t, time.Minute, c.interval)
	assert.Len(t, c.families, 2)
}
