package csi_test

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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
)

// The variables of TestPowerCuts. The last two are set in the guest.
const (
	cutsVariable = "KUBELETKIT_CSI_CUTS"      // how many cuts
	seedVariable = "KUBELETKIT_CSI_CUTS_SEED" // of the moments of the cuts
	bootVariable = "KUBELETKIT_CSI_CUTS_BOOT"
	rowsVariable = "KUBELETKIT_CSI_CUTS_ROWS" // how many rows are acknowledged
)

// Lines of a guest: what is to be interrupted is under way, and a row is acknowledged.
const (
	cutNow = "ready for the power cut"
	rowIs  = "row "
)

// Power cuts while a database on a volume is written, and while the volume is staged and unstaged: after each of them,
// the volume is published again, the database is sound and has each row that was acknowledged. The node is a guest,
// whose disk has the volumes of the driver, the records of the agent, and nothing else. A cut kills the guest.
func TestPowerCuts(t *testing.T) {
	if os.Getenv(bootVariable) != "" {
		bootAfterCut(t)
		return
	}
	cuts := variable(t, cutsVariable)
	if cuts == 0 {
		t.Skipf("takes minutes, and needs root, QEMU and sqlite3: runs with %s=1, or more", cutsVariable)
	}
	seed := variable(t, seedVariable)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	dir := t.TempDir()
	guest := filepath.Join(dir, "guest")
	out, err := exec.Command("go", "-C", "../../../test/e2e", "build", "-o", guest, "./guest").CombinedOutput()
	require.NoError(t, err, "%s", out)
	self, err := os.Executable()
	require.NoError(t, err)
	rows := 0
	for boot := range cuts + 1 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		cmd := exec.CommandContext(ctx, guest, "-timeout", "5m", "-disk", "256", "-image", filepath.Join(dir, "disk"), "--",
			self, "-test.v", "-test.run", "^TestPowerCuts$", "-test.timeout", "4m")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", bootVariable, boot), fmt.Sprintf("%s=%d", rowsVariable, rows),
			fmt.Sprintf("%s=%d", cutsVariable, cuts))
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		cmd.Stderr = t.Output()
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		ready, before := false, rows
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			line := lines.Text()
			if n, ok := strings.CutPrefix(line, rowIs); ok {
				rows, err = strconv.Atoi(n)
				require.NoError(t, err)
				continue
			}
			t.Logf("boot %d: %s", boot, line)
			require.NotContains(t, line, "--- FAIL", "boot %d, seed %d", boot, seed)
			if line == cutNow {
				ready = true
				time.AfterFunc(time.Duration(random.Int64N(int64(8*time.Second))), cancel)
			}
		}
		err = cmd.Wait()
		cancel()
		if boot == cuts {
			require.NoError(t, err, "boot %d, seed %d: see above", boot, seed)
			continue
		}
		require.True(t, ready, "boot %d, seed %d: see above", boot, seed)
		t.Logf("boot %d: power cut after %d more rows", boot, rows-before)
	}
	t.Logf("%d cuts, %d rows", cuts, rows)
}

// variable returns the number of a variable, by default 0.
func variable(t *testing.T, name string) int {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		return 0
	}
	n, err := strconv.Atoi(value)
	require.NoError(t, err, name)
	return n
}

// bootAfterCut runs in the guest. Boot 0 finds an empty disk; the others find what the boot before has left when its
// power was cut. In each it does something else until the power is cut: it goes on writing, or removes the pod and
// makes it again. The last one takes everything down.
func bootAfterCut(t *testing.T) {
	const disk = "/cut" // a short path, because there are sockets below it
	boot, rows := variable(t, bootVariable), variable(t, rowsVariable)
	device := os.Getenv("KUBELETKIT_GUEST_DISK")
	if boot == 0 {
		command(t, "mkfs.ext4", "-q", device)
	}
	require.NoError(t, os.MkdirAll(disk, 0o755))
	command(t, "mount", "-t", "ext4", device, disk)
	command(t, "modprobe", "loop")

	r := newRigAt(t, filepath.Join(disk, "root"), csidriver.Options{Dir: filepath.Join(disk, "driver"),
		FileSystem: "ext4"})
	r.add("db")
	require.NoError(t, r.driver.AddVolume("handle-db", 64<<20))
	pod := r.pod("writer", "db")
	interrupted := boot%3 == 1 // while the volume is staged and published
	if interrupted {
		fmt.Println(cutNow)
	}
	db := openDatabase(r, pod)
	if boot == 0 {
		db.run("CREATE TABLE rows (n INTEGER PRIMARY KEY)")
		command(t, "sync")
	}
	assert.Equal(t, "ok", db.run("PRAGMA integrity_check"))
	result := strings.Split(db.run("SELECT count(*), coalesce(max(n), 0) FROM rows"), "|")
	require.Len(t, result, 2)
	assert.Equal(t, result[1], result[0], "no row is missing")
	there, err := strconv.Atoi(result[0])
	require.NoError(t, err)
	assert.Contains(t, []int{rows, rows + 1}, there, "each row that was acknowledged is there, and the one under way")
	if t.Failed() {
		return
	}
	if boot == variable(t, cutsVariable) {
		r.mustRemove(pod)
		r.isClean()
		return
	}
	if !interrupted {
		fmt.Println(cutNow)
	}
	for n := there + 1; ; n++ {
		if boot%3 == 2 { // while the volume is unpublished, unstaged and so on
			r.mustRemove(pod)
			db = openDatabase(r, pod)
		}
		// Otherwise the removal of the journal, which commits the row, may be lost (sqlite.org/pragma.html).
		db.run(fmt.Sprintf("PRAGMA synchronous = EXTRA; INSERT INTO rows VALUES (%d)", n))
		fmt.Printf("%s%d\n", rowIs, n)
	}
}

// database is a file of sqlite on a volume.
type database struct {
	*rig
	path string
}

func openDatabase(r *rig, pod *v1.Pod) database {
	return database{r, filepath.Join(r.mustSetUp(pod)["db"].HostPath, "db")}
}

func (d database) run(statement string) string { return command(d.T, "sqlite3", d.path, statement) }

func command(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
	return strings.TrimSpace(string(out))
}
