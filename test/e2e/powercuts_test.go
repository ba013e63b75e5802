package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// The variables of TestPowerCuts. The last one is set in the guest.
const (
	cutsVariable = "KUBELETKIT_E2E_CUTS"      // how many cuts
	seedVariable = "KUBELETKIT_E2E_CUTS_SEED" // of the moments of the cuts; default: 1
	bootVariable = "KUBELETKIT_E2E_CUTS_BOOT"
)

// cutNow is the line with which a guest says that everything is under way which a power cut is to interrupt.
const cutNow = "ready for the power cut"

// Power cuts while logs are rotated and images are pulled: after each of them, the node boots from its disk, and all of
// its pods run again but those that have finished. The node is a guest. A cut kills the guest, so that its disk has
// what was written to it, and in memory nothing is left.
func TestPowerCuts(t *testing.T) {
	if boot := os.Getenv(bootVariable); boot != "" {
		n, err := strconv.Atoi(boot)
		require.NoError(t, err)
		bootAfterCut(t, n)
		return
	}
	if os.Getenv(cutsVariable) == "" {
		t.Skipf("takes minutes: runs with %s=1, or more", cutsVariable)
	}
	Need(t, "qemu-system-x86_64", "modprobe", "mkfs.ext4")
	cuts, seed := variable(t, cutsVariable), variable(t, seedVariable)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	dir := t.TempDir()
	guest, self := filepath.Join(dir, "guest"), executable(t)
	out, err := exec.Command("go", "build", "-o", guest, "./guest").CombinedOutput()
	require.NoError(t, err, "%s", out)
	agent := MinikubeletBinary(t)
	for boot := range cuts + 1 {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
		cmd := exec.CommandContext(ctx, guest, "-timeout", "8m", "-disk", "1024", "-image", filepath.Join(dir, "disk"),
			"--",
			self, "-test.v", "-test.run", "^TestPowerCuts$", "-test.timeout", "8m")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", bootVariable, boot), "KUBELETKIT_E2E_AGENT="+agent)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		cmd.Stderr = t.Output()
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		ready := false
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			t.Logf("boot %d, %3.0f s: %s", boot, time.Since(begin).Seconds(), lines.Text())
			if lines.Text() == cutNow {
				ready = true
				after := time.Duration(random.Int64N(int64(15 * time.Second)))
				if boot < cuts {
					t.Logf("boot %d: power cut after %v", boot, after)
					time.AfterFunc(after, cancel)
				} else {
					cancel()
				}
			}
		}
		_ = cmd.Wait() // it was killed
		cancel()
		require.True(t, ready, "boot %d, seed %d: see above", boot, seed)
	}
}

// variable returns the number of a variable, by default 1.
func variable(t *testing.T, name string) int {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		return 1
	}
	n, err := strconv.Atoi(value)
	require.NoError(t, err, name)
	return n
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	require.False(t, strings.HasPrefix(path, "/run/"), "%s: a guest has a /run of its own", path)
	return path
}
