package threads

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/internal/cgroupfs"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	return dir
}

func TestCgroupLimits(t *testing.T) {
	for _, tc := range []struct {
		name, own string
		cgroups   map[string]string
		want      string
	}{
		{
			"version 2: the unit and a slice", "0::/system.slice/agent.service",
			map[string]string{
				"cgroup.controllers":                              "pids",
				"system.slice/pids.max":                           "100",
				"system.slice/pids.current":                       "40",
				"system.slice/pids.events.local":                  "max 0",
				"system.slice/agent.service/pids.max":             "50",
				"system.slice/agent.service/pids.current":         "7",
				"system.slice/agent.service/pids.events":          "max 0",
				"system.slice/agent.service/pids.events.local":    "max 0",
				"system.slice/agent.service/below/pids.max":       "5",
				"system.slice/agent.service/below/pids.current":   "1",
				"system.slice/agent.service/below/memory.current": "1",
			},
			"system.slice/agent.service/pids.max 7/50 system.slice/agent.service/pids.events.local\n" +
				"system.slice/pids.max 40/100 system.slice/pids.events.local\n",
		},
		{
			"version 2 of an older kernel", "0::/a/b",
			map[string]string{"cgroup.controllers": "", "a/pids.max": "9", "a/pids.current": "3", "a/b/pids.max": "max",
				"a/b/pids.current": "3"},
			"a/pids.max 3/9 a/b/pids.events\n",
		},
		{
			"version 1", "8:pids:/agent\n0::/",
			map[string]string{"pids/agent/pids.max": "9", "pids/agent/pids.current": "3"},
			"pids/agent/pids.max 3/9 pids/agent/pids.events\n",
		},
		{
			"a container that sees its own cgroup only", "8:pids:/docker/1234\n",
			map[string]string{"pids/pids.max": "9", "pids/pids.current": "3"},
			"pids/pids.max 3/9 pids/pids.events\n",
		},
		{"no limit", "0::/a", map[string]string{"cgroup.controllers": "", "a/pids.max": "max", "a/pids.current": "3"}, ""},
		{"no controller", "0::/a", map[string]string{"cgroup.controllers": "", "a/memory.max": "1"}, ""},
		{"nonsense", "0::/a", map[string]string{"cgroup.controllers": "", "a/pids.max": "x", "a/pids.current": "3"}, ""},
		{"no cgroups", "", nil, ""},
	} {
		mount := tree(t, tc.cgroups)
		got := ""
		for _, l := range cgroupLimits(tree(t, map[string]string{"self/cgroup": tc.own}), mount) {
			got += strings.ReplaceAll(fmt.Sprintf("%s %d/%d %s\n", l.name, l.used, l.max, l.events), mount+"/", "")
		}
		assert.Equal(t, tc.want, got, tc.name)
	}
	assert.Empty(t, cgroupLimits(t.TempDir(), t.TempDir()), "no /proc")
}

func TestThreadsOf(t *testing.T) {
	proc := tree(t, map[string]string{
		"1/status":    "Name:\tinit\nUid:\t0\t0\t0\t0\nThreads:\t1",
		"70/status":   "Name:\ta\nUid:\t1000\t0\t0\t0\nThreads:\t7",
		"71/status":   "Name:\tb\nUid:\t1000\t1000\t1000\t1000\nThreads:\t3",
		"72/other":    "",
		"self/status": "Uid:\t1000\nThreads:\t7",
	})
	assert.EqualValues(t, 10, threadsOf(proc, 1000))
	assert.EqualValues(t, 1, threadsOf(proc, 0))
	assert.Zero(t, threadsOf(proc, 5))
}

// A small room is logged once, with what to do.
func TestFill(t *testing.T) {
	mount := tree(t, map[string]string{"cgroup.controllers": "pids", "a/pids.max": "20", "a/pids.current": "8"})
	log, all := lines()
	made := 0
	r, err := New(Options{Threads: 15, Logger: log, proc: tree(t, map[string]string{"self/cgroup": "0::/a"}),
		cgroup: mount, make: func(n int) { made += n }})
	require.NoError(t, err)
	assert.Equal(t, 9, r.Fill())
	assert.Equal(t, 9, r.Fill())
	assert.Equal(t, 9, made)
	require.Len(t, all(), 1)
	assert.Contains(t, all()[0], "TasksMax=infinity")
	assert.Contains(t, all()[0], `"max"=20 "used"=8 "threads"=9 "wanted"=15`)
}

// The threads of a reserve exist at once, and stay.
func TestMakeThreads(t *testing.T) {
	threads := func() int {
		entries, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		return len(entries)
	}
	makeThreads(40)
	n := threads()
	assert.GreaterOrEqual(t, n, 40)
	makeThreads(40)
	assert.LessOrEqual(t, threads(), n+2, "they are used again")
}

const (
	allowed = 60 // the limit of the cgroup in which the helper runs
	blocked = 20 // its system calls that block at once
)

func init() { help = atLimit }

// atLimit runs in a cgroup with a limit, whose room it fills with other processes. Then it makes system calls that
// block.
func atLimit(what string) {
	log := func(text string) { fmt.Println(text) }
	if what == "reserve" {
		r, err := New(Options{Threads: blocked + 8})
		if err != nil {
			log(err.Error())
			os.Exit(3)
		}
		log(fmt.Sprint("threads ", r.Fill()))
	}
	for {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			log(err.Error())
			break
		}
	}
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		os.Exit(3)
	}
	done := make(chan struct{})
	for range blocked {
		go func() {
			_, _ = syscall.Read(pipe[0], make([]byte, 1))
			done <- struct{}{}
		}()
	}
	time.Sleep(500 * time.Millisecond) // all of them block
	_, _ = syscall.Write(pipe[1], make([]byte, blocked))
	for range blocked {
		<-done
	}
	log("alive")
	os.Exit(0)
}

// A real limit, of cgroup v1 where the tests run, and of v2 in a guest.
func TestAtTheLimit(t *testing.T)      { atTheLimit(t) }
func TestGuestAtTheLimit(t *testing.T) { atTheLimit(t) }

func atTheLimit(t *testing.T) {
	if strings.HasPrefix(t.Name(), "TestGuest") && os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("set KUBELETKIT_GUEST=1 on a machine with cgroup v2")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	mount, legacy, err := cgroupfs.Dir(cgroupfs.Mount, "pids", "/")
	if err != nil {
		t.Skip(err)
	}
	if !legacy {
		require.NoError(t, os.WriteFile(filepath.Join(mount, "cgroup.subtree_control"), []byte("+pids"), 0))
	}
	// run runs the helper in a cgroup of its own, and returns its first lines and what is logged meanwhile.
	run := func(what string) (output string, logged []string) {
		dir, err := os.MkdirTemp(mount, "kubeletkit-threads-")
		if err != nil {
			t.Skip(err)
		}
		defer func() {
			assert.Eventually(t, func() bool { return os.Remove(dir) == nil }, 10*time.Second, 10*time.Millisecond)
		}()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pids.max"), fmt.Append(nil, allowed), 0))
		log, lines := lines()
		r, err := New(Options{Logger: log, period: 50 * time.Millisecond})
		require.NoError(t, err)
		r.fill.Do(func() {})
		r.limits = []limit{{name: filepath.Join(dir, "pids.max"), max: allowed,
			events: filepath.Join(dir, "pids.events"), silent: legacy}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		cmd := exec.CommandContext(ctx, "sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$1"`, dir, os.Args[0])
		cmd.Env = append(os.Environ(), helper+"="+what)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.WaitDelay = time.Second
		_ = cmd.Run()
		assert.Eventually(t, func() bool { return len(lines()) > 0 }, 10*time.Second, 10*time.Millisecond)
		cancel()
		require.NoError(t, <-ended)
		return out.String()[:min(out.Len(), 300)], lines()
	}
	output, logged := run("none")
	assert.Regexp(t, "failed to create new OS thread|pthread_create failed", output)
	require.Len(t, logged, 1, "it is logged once")
	assert.Contains(t, logged[0], "TasksMax=infinity")
	assert.Contains(t, logged[0], "pids.max: 60 processes and threads")

	output, logged = run("reserve")
	assert.Contains(t, output, fmt.Sprint("threads ", blocked+8))
	assert.Contains(t, output, "resource temporarily unavailable")
	assert.Contains(t, output, "alive")
	assert.Len(t, logged, 1)
}
