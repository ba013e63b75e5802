package iptables

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inNetNS runs f on a thread with a network namespace of its own, which ends with it. Programs that
// f executes run in it.
func inNetNS(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skip("a network namespace: ", err)
	}
}

// The programs of this machine make kubelet's chains in the kernel, and make them again after a flush.
func TestChainsInTheKernel(t *testing.T) {
	inNetNS(t, func() {
		saved := func(program string) string {
			out, err := exec.Command(program + "-save").CombinedOutput()
			assert.NoError(t, err, string(out))
			return string(out)
		}
		families := New(Options{Logger: logr.Discard()}).families
		for range 2 { // the second time, everything is there
			for _, f := range families {
				if !assert.NoError(t, f.make(t.Context())) {
					return
				}
			}
		}
		v4, v6 := saved("iptables"), saved("ip6tables")
		for _, all := range []string{v4, v6} {
			assert.Equal(t, 1, strings.Count(all, ":KUBE-IPTABLES-HINT "))
			assert.Equal(t, 3, strings.Count(all, ":KUBE-KUBELET-CANARY "))
		}
		for _, rule := range []string{
			"-A INPUT -j KUBE-FIREWALL\n", "-A OUTPUT -j KUBE-FIREWALL\n",
			`-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP` + "\n",
		} {
			assert.Equal(t, 1, strings.Count(v4, rule), rule)
		}
		assert.NotContains(t, v6, "KUBE-FIREWALL")

		c := New(Options{Logger: logr.Discard()})
		f := c.families[0]
		assert.True(t, c.round(t.Context(), f))
		assert.NoError(t, execute(t.Context(), "iptables", "-w", "5", "-t", "mangle", "-X"))
		assert.False(t, f.exists(t.Context(), "mangle", hint))
		assert.True(t, c.round(t.Context(), f))
		assert.True(t, f.exists(t.Context(), "mangle", hint))
		begin := time.Now()
		for range 10 {
			f.again = false
			c.round(t.Context(), f)
		}
		t.Logf("a round without a change takes %v", time.Since(begin)/10)
	})
}

// The agent that stops does not wait for a program that hangs.
func TestAProgramThatHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	require.Error(t, execute(ctx, "sh", "-c", "sleep 60 & sleep 60"))
	assert.Less(t, time.Since(begin), 30*time.Second)
}
