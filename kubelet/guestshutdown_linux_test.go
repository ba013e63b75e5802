package kubelet

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// poweroffTarget stands for the shutdown of the machine: logind starts it when no lock is left.
const poweroffTarget = `[Unit]
Description=a shutdown that a test can watch
DefaultDependencies=no
Wants=reached.service
`

const reachedService = `[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh -c "echo machine >> ENDS"
`

// guest is a machine of its own with systemd, which the test may shut down.
type guest struct{ t *testing.T }

func requireGuest(t *testing.T) guest {
	t.Helper()
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest only: see docs/contribute/change.md")
	}
	g := guest{t}
	g.run("systemctl", "start", "systemd-logind.service")
	return g
}

// run runs a program of the machine.
func (g guest) run(name string, args ...string) string {
	g.t.Helper()
	// also in a Cleanup
	out, err := exec.CommandContext(context.WithoutCancel(g.t.Context()), name, args...).CombinedOutput()
	require.NoError(g.t, err, "%s %v: %s", name, args, out)
	return string(out)
}

func (g guest) logind(args ...string) string {
	g.t.Helper()
	return g.run("busctl", append([]string{args[0], "org.freedesktop.login1", "/org/freedesktop/login1",
		"org.freedesktop.login1.Manager"}, args[1:]...)...)
}

// locks returns how many locks of the agent logind has.
func (g guest) locks() int {
	return strings.Count(g.logind("call", "ListInhibitors"),
		`"shutdown" "minikubelet" "Kubelet needs time to handle node shutdown" "delay"`)
}

func (g guest) eventually(what string, ok func() bool) {
	g.t.Helper()
	require.Eventually(g.t, ok, time.Minute, 100*time.Millisecond, what)
}

// units is where units come before those of the machine.
const units = "/run/systemd/system/"

// watchPowerOff replaces what a shutdown starts: "machine" is added to the file.
func (g guest) watchPowerOff(file string) {
	write(g.t, units+"poweroff.target", poweroffTarget)
	write(g.t, units+"reached.service", strings.ReplaceAll(reachedService, "ENDS", file))
	g.reload("poweroff.target", "reached.service")
}

// reload has systemd read its units, and forget those of these names at the end of the test.
func (g guest) reload(names ...string) {
	g.run("systemctl", "daemon-reload")
	g.t.Cleanup(func() {
		for _, name := range names {
			_ = os.Remove(units + name)
		}
		g.run("systemctl", "daemon-reload")
	})
}

// powerOff asks for a shutdown. A test has replaced the target before.
func (g guest) powerOff() { g.logind("call", "PowerOff", "b", "false") }

// The whole way with the logind of a real systemd: the pods end in order, then the machine goes on.
func TestGuestSystemdShutdown(t *testing.T) {
	g := requireGuest(t)
	n := newEmbeddedNode(t, "shutdownGracePeriod: 40s\nshutdownGracePeriodCriticalPods: 10s\n")
	g.watchPowerOff(n.end)
	ctx, cancel := context.WithCancel(t.Context())
	n.start(ctx)
	n.waitReady("web", "dns")
	g.eventually("a lock", func() bool { return g.locks() == 1 })
	g.eventually("the delay is raised",
		func() bool { return g.logind("get-property", "InhibitDelayMaxUSec") == "t 40000000\n" })
	data, err := os.ReadFile("/etc/systemd/logind.conf.d/99-kubelet.conf")
	require.NoError(t, err)
	assert.Equal(t, "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=40\n", string(data))

	// A signal of somebody else is no shutdown.
	g.run("busctl", "emit", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "PrepareForShutdown", "b",
		"true")
	// Nor is a restart of logind, after which the lock is there again.
	g.run("systemctl", "restart", "systemd-logind.service")
	g.eventually("the lock after a restart of logind", func() bool { return g.locks() == 1 })
	assert.Empty(t, n.ends())
	n.waitFor("1/1", "pods")

	g.powerOff()
	g.eventually("the machine goes on when the pods have ended", func() bool { return n.ends() == "web dns machine" })
	out, err := n.command("describe", "web")
	require.NoError(t, err)
	assert.Contains(t, out, "Terminated")
	assert.Contains(t, out, "imminent node shutdown")

	// The target is reached without an end of the machine: for logind the shutdown is over.
	g.eventually("the lock after the shutdown", func() bool { return g.locks() == 1 })
	n.put("next", 0, "0")
	n.waitReady("next")
	state, err := os.ReadFile(n.root + "/graceful_node_shutdown_state")
	require.NoError(t, err)
	assert.Regexp(t, `^\{"startTime":"20.*","endTime":"20.*"\}$`, string(state))

	cancel()
	require.NoError(t, <-n.done)
	assert.Zero(t, g.locks(), "no lock is left, not even in the processes of pods")
	_, err = n.command("stop")
	require.NoError(t, err)
}

// logind is restarted while pods end: the shutdown is forgotten, and the other pods go on. So does one that ends since
// the target of the shutdown cannot be started.
func TestGuestSystemdShutdownThatIsCancelled(t *testing.T) {
	g := requireGuest(t)
	n := newEmbeddedNode(t, "shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 10s\n")
	n.put("web", 0, "20")
	write(t, units+"poweroff.target", "[Unit]\nRefuseManualStart=yes\n") // it cannot be started
	g.reload("poweroff.target")
	ctx, cancel := context.WithCancel(t.Context())
	n.start(ctx)
	n.waitReady("web", "dns")
	g.eventually("the delay is raised",
		func() bool { return g.logind("get-property", "InhibitDelayMaxUSec") == "t 60000000\n" })

	g.powerOff()
	n.waitFor("Killing", "describe", "web")
	n.put("refused", 0, "0")
	n.waitFor("NodeShutdown", "pods")
	g.run("systemctl", "restart", "systemd-logind.service")
	g.eventually("the lock after the cancellation", func() bool { return g.locks() == 1 })
	n.put("admitted", 0, "0")
	n.waitReady("admitted")
	g.eventually("web ends all the same", func() bool { return n.ends() == "web" })
	out, err := n.command("pods")
	require.NoError(t, err)
	assert.Regexp(t, `dns-node +1/1`, out)

	g.powerOff() // all end, and the machine does not go on
	g.eventually("the pods have ended", func() bool { return strings.Count(n.ends(), " ") == 2 })
	assert.True(t, strings.HasSuffix(n.ends(), " dns"), n.ends())
	g.eventually("the lock after the failure", func() bool { return g.locks() == 1 })
	cancel()
	require.NoError(t, <-n.done)
}

// D-Bus is restarted: the lock stays, and the next shutdown is received.
func TestGuestSystemdRestartOfDBus(t *testing.T) {
	g := requireGuest(t)
	n := newEmbeddedNode(t, "shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 10s\n")
	g.watchPowerOff(n.end)
	ctx, cancel := context.WithCancel(t.Context())
	n.start(ctx)
	n.waitReady("web", "dns")
	g.eventually("a lock", func() bool { return g.locks() == 1 })
	g.run("systemctl", "restart", "dbus.service")
	g.run("systemctl", "restart", "systemd-logind.service")
	g.eventually("the lock after a restart of D-Bus", func() bool { return g.locks() == 1 })
	g.powerOff()
	g.eventually("the machine goes on when the pods have ended", func() bool { return n.ends() == "web dns machine" })
	cancel()
	require.NoError(t, <-n.done)
}
