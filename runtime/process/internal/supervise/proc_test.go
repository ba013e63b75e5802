//go:build linux

package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	st, err := parseStat([]byte("42 (a) b (c) S 1 40 39 0 -1 4194560 11 0 12 0 21 22 23 24 20 0 1 0 777 1000 55 0 0\n"))
	require.NoError(t, err)
	assert.Equal(t, Stat{
		PID: 42, PPID: 1, PGID: 40, Session: 39, State: 'S', UTime: 21, STime: 22, ChildUTime: 23, ChildSTime: 24,
		MinorFaults: 11, MajorFaults: 12, Start: 777, RSS: 55,
	}, st)
	for _, bad := range []string{"", "x", "1 (a) S", "1 a S 1 2 3",
		"x (a) S 1 40 39 0 -1 4194560 11 0 12 0 21 22 23 24 20 0 1 0 777 1000 55"} {
		_, err := parseStat([]byte(bad))
		assert.Error(t, err, bad)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) S 1 40 39 0 -1 4194560 11 0 12 0 21 22 23 24 20 0 1 0 777 1000 55 0 0\n"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parseStat(data) })
}

func TestProcessIdentity(t *testing.T) {
	self, err := ProcessOf(os.Getpid())
	require.NoError(t, err)
	assert.True(t, self.Alive())
	for name, other := range map[string]Process{
		"start": {self.PID, self.Start + 1, self.Boot},
		"boot":  {self.PID, self.Start, "another"},
		"none":  {},
	} {
		assert.False(t, other.Alive(), name)
		assert.Error(t, other.Kill(unix.Signal(0)), name)
	}
}

// Between two looks at a process, another one may get its pid, and lead a group with its
// number.
func TestReusedPID(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	victim, err := ProcessOf(cmd.Process.Pid)
	require.NoError(t, err)
	before := victim // a process that had the pid
	before.Start--
	send(before, before.PID, unix.SIGKILL)
	assert.ErrorIs(t, before.signalGroup(before.PID, unix.SIGKILL), unix.ESRCH)
	assert.ErrorIs(t, victim.signalGroup(unix.Getpgrp(), unix.SIGKILL), unix.ESRCH, "it is not in this group")
	assert.True(t, victim.Alive())
	assert.Contains(t, descendants(os.Getpid()), victim)

	require.NoError(t, victim.signalGroup(victim.PID, unix.SIGKILL))
	require.Error(t, cmd.Wait())
	assert.ErrorIs(t, victim.signalGroup(victim.PID, unix.SIGKILL), unix.ESRCH)
}

func TestCgroupFiles(t *testing.T) {
	mounts := parseMounts([]byte(
		"35 25 0:30 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n" +
			"36 25 0:31 /here /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n" +
			"junk\n"))
	assert.Equal(t, CgroupMount{"/sys/fs/cgroup/unified", "/"}, mounts[""])
	assert.Equal(t, "/sys/fs/cgroup/cpu,cpuacct/below", mounts["cpuacct"].Path("/here/below"))
	assert.Equal(t, "/sys/fs/cgroup/cpu,cpuacct", mounts["cpu"].Path("/elsewhere"))
	assert.Empty(t, mounts["memory"].Path("/x"))
	own := []byte("9:name=systemd:/\n4:memory:/a/b:c\n3:cpu,cpuacct:/d\n0::/e\n")
	assert.Equal(t, "/a/b:c", cgroupPath(own, "memory"))
	assert.Equal(t, "/d", cgroupPath(own, "cpuacct"))
	assert.Equal(t, "/e", cgroupPath(own, ""))
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	want := Exit{Code: 3, Signal: 9}
	require.NoError(t, WriteFile(path, want))
	var got Exit
	require.NoError(t, ReadFile(path, &got))
	assert.Equal(t, want, got)
	for _, bad := range []string{"", "{", `{"code":1`, `{"who":1}`, `{"code":1} x`, "\x00\x00"} {
		require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
		var damaged *BadFileError
		assert.ErrorAs(t, ReadFile(path, &got), &damaged, bad)
	}
	// Without root, containers run as the user of the server, and can write its files.
	require.NoError(t, os.Truncate(path, 1<<40))
	var damaged *BadFileError
	require.ErrorAs(t, ReadFile(path, &got), &damaged)
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600))
	require.ErrorAs(t, ReadFile(path, &got), &damaged, "it does not wait")
}

// Any local user can have a process with an environment of any size.
func TestReadStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("A=1\x00"), 0o600))
	require.NoError(t, os.Truncate(path, 1<<40))
	got, err := readStart(path, maxEnviron)
	require.NoError(t, err)
	assert.Len(t, got, maxEnviron)
	assert.Equal(t, "A=1\x00", string(got[:4]))
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run"), nil, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o644))
	got, err := lookPath("run", []string{"PATH=/none", "PATH=/no/such:" + dir}, "/")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "run"), got)
	_, err = lookPath("data", []string{"PATH=" + dir}, "/")
	assert.ErrorIs(t, err, os.ErrPermission)
	_, err = lookPath("none", nil, "/")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// Hunts of many containers meet the same process at the same time. One that gives it up does not
// keep the environment from another, and all of them hold one thread.
func TestEnvironmentIsReadOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, p := NewEnvirons(), Process{PID: 7}
		reads, takes := 0, environPatience+100*time.Millisecond
		e.readFile = func(string) ([]byte, error) {
			reads++
			time.Sleep(takes)
			return []byte(Mark("x")), nil
		}
		var tasks sync.WaitGroup
		tasks.Go(func() {
			_, err := e.read(p)
			assert.ErrorIs(t, err, errStuck)
		})
		time.Sleep(environPatience - time.Millisecond)
		for range 100 {
			tasks.Go(func() {
				env, err := e.read(p)
				assert.NoError(t, err)
				assert.Equal(t, Mark("x"), string(env))
			})
		}
		time.Sleep(2 * time.Millisecond)
		_, err := e.read(p)
		require.ErrorIs(t, err, errStuck, "at once")
		tasks.Wait()
		assert.Equal(t, 1, reads)
		assert.Zero(t, e.stuck)

		takes = 0
		env, err := e.read(p)
		require.NoError(t, err)
		assert.Equal(t, Mark("x"), string(env))
	})
}

// A user can have the memory of a process come from a file system that does not answer. The
// processes of others are found all the same.
func TestEnvironmentThatCannotBeRead(t *testing.T) {
	e := NewEnvirons()
	e.patience = 2 * time.Second // of the others, each is read sooner
	read, answer := e.readFile, make(chan struct{})
	answered := make(chan struct{}, 3)
	silent := exec.Command("sleep", "1000")
	require.NoError(t, silent.Start())
	found := exec.Command("sleep", "1000")
	found.Env = []string{Mark("x")}
	require.NoError(t, found.Start())
	defer func() {
		for _, cmd := range []*exec.Cmd{silent, found} {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	var asked atomic.Int64
	e.readFile = func(path string) ([]byte, error) {
		if path == fmt.Sprintf("/proc/%d/environ", silent.Process.Pid) {
			asked.Add(1)
			defer func() { answered <- struct{}{} }()
			<-answer
		}
		return read(path)
	}
	pids := func() (pids []int) {
		for _, p := range Orphans(e, Mark("x"), Process{}) {
			pids = append(pids, p.PID)
		}
		return pids
	}
	for range 3 {
		require.Equal(t, []int{found.Process.Pid}, pids())
	}
	require.EqualValues(t, 1, asked.Load(), "it holds a thread")
	close(answer)
	<-answered
	p, err := ProcessOf(silent.Process.Pid)
	require.NoError(t, err)
	e.mu.Lock()
	e.stuck = maxStuck
	e.mu.Unlock()
	_, err = e.read(p)
	require.ErrorIs(t, err, errStuck, "threads are bounded")
}
