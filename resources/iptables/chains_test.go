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
			"KUBE-FIREWALL -m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
			"KUBE-KUBELET-CANARY",
		},
	}
}

// start runs chains on the kernel in virtual time, and returns the lines of the log so far.
func start(t *testing.T, k *kernel) (lines func() []string, stop func()) {
	var all []string
	log := funcr.New(func(_, line string) { all = append(all, line) }, funcr.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(Options{Logger: log, run: k.run}).Run(ctx) }()
	synctest.Wait()
	return func() []string { synctest.Wait(); return all }, func() { cancel(); assert.NoError(t, <-done) }
}

func TestChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{tables: map[string][]string{}}
		lines, stop := start(t, k)
		assert.Equal(t, want(), k.tables)
		before := k.calls
		time.Sleep(10*time.Minute + time.Second)
		assert.Empty(t, lines())
		assert.LessOrEqual(t, k.calls-before, 2*10, "an idle minute costs a question for each family")
		stop()
		assert.Equal(t, want(), k.tables, "they stay")
		_, stop = start(t, k) // an agent that starts again
		assert.Equal(t, want(), k.tables)
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
		synctest.Wait()
		assert.Equal(t, want(), k.tables)
		k.change(func() { delete(k.tables, "iptables filter") })
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, want(), k.tables)
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
		synctest.Wait()
		assert.Equal(t, want(), k.tables)
	})
}

func TestMissingPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{tables: map[string][]string{}, missing: []string{"ip6tables"}}
		lines, stop := start(t, k)
		assert.Len(t, k.tables, 3)
		assert.Len(t, lines(), 1)
		stop()

		k = &kernel{missing: []string{"iptables", "ip6tables"}}
		lines, stop = start(t, k)
		defer stop()
		time.Sleep(time.Hour)
		assert.Len(t, lines(), 2, fmt.Sprint(lines()))
		assert.LessOrEqual(t, k.calls, 4, "nothing to ask")
	})
}

// The zero value of the options is usable.
func TestDefaults(t *testing.T) {
	c := New(Options{Logger: logr.Discard()})
	assert.Equal(t, time.Minute, c.interval)
	assert.Len(t, c.families, 2)
}
