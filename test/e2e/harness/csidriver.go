package harness

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
)

var csiDriver build

// CSIDriverBinary returns the CSI driver of the tests as a program that needs no library, so that a pod can run it.
func CSIDriverBinary(t testing.TB) string {
	dir := csiDriver.get(t, "csidriver", func() (string, *exec.Cmd) {
		dir, err := os.MkdirTemp("", "kubeletkit-csidriver")
		if err != nil {
			return "", exec.Command("false")
		}
		if err := os.Chmod(dir, 0o755); err != nil { // also for agents that do not run as root
			return "", exec.Command("false")
		}
		cmd := exec.Command("go", "build", "-o", dir, "./csidriver")
		cmd.Dir = filepath.Join(repoRoot(), "test/e2e")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		return dir, cmd
	})
	return filepath.Join(dir, "csidriver")
}

// CSIDriver is the CSI driver of the tests in a process of its own.
type CSIDriver struct {
	*csidriver.Remote
	// Dir has its volumes, and Socket serves it.
	Dir, Socket string

	args    []string
	log     string
	ns      *NetNS
	process *process
}

// StartCSIDriver starts the driver with flags; see the program. Its volumes, its calls and its sockets are below dir,
// whose path must be short. When the test ends, it is stopped, and what is mounted below dir is unmounted. The test
// fails if the agent has violated a rule of CSI.
func StartCSIDriver(t testing.TB, ns *NetNS, dir string, flags ...string) *CSIDriver {
	t.Helper()
	control := filepath.Join(dir, "control.sock")
	d := &CSIDriver{Remote: csidriver.NewRemote(control), Dir: filepath.Join(dir, "volumes"),
		Socket: filepath.Join(dir, "csi.sock"), log: filepath.Join(dir, "csidriver.log"), ns: ns}
	d.args = append([]string{CSIDriverBinary(t), "-dir", d.Dir, "-socket", d.Socket, "-control", control,
		"-keep-calls"}, flags...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.process == nil {
			return // it has not started
		}
		if err := d.process.stop(syscall.SIGTERM, time.Minute); err != nil {
			t.Errorf("the CSI driver: %v", err)
		}
		if violations, err := csidriver.ViolationsIn(d.Dir); err != nil || len(violations) > 0 {
			t.Errorf("the CSI driver: violations %q, error %v", violations, err)
		}
		unmountAll(dir)
		if t.Failed() {
			t.Logf("the CSI driver:\n%s", tail(d.log, 20))
		}
	})
	d.Start(t)
	return d
}

// Start starts the driver, again after Kill or a fault, and waits until it is controlled.
func (d *CSIDriver) Start(t testing.TB, flags ...string) {
	t.Helper()
	p, err := start(d.ns, d.log, nil, d.args[0], append(d.args[1:len(d.args):len(d.args)], flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	d.process = p
	Eventually(t, time.Minute, "the CSI driver", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := d.Settings(ctx)
		return err
	})
}

// Stop ends the driver with SIGTERM, so that it removes its sockets, and waits for its end.
func (d *CSIDriver) Stop(t testing.TB) {
	t.Helper()
	if err := d.process.stop(syscall.SIGTERM, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// Kill kills the driver and waits for its end.
func (d *CSIDriver) Kill(t testing.TB) {
	t.Helper()
	if err := d.process.stop(syscall.SIGKILL, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// Ended is closed when the driver has ended, such as by a fault.
func (d *CSIDriver) Ended() <-chan struct{} { return d.process.done }
