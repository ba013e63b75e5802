package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NewProcessAgent makes an agent, not started yet, that is given no container
// runtime, so its containers are processes of this host. It has a network namespace,
// unless it is given one, and a directory of its own; what is left of its containers ends with the test.
func NewProcessAgent(t testing.TB, options AgentOptions) *Agent {
	t.Helper()
	Need(t, "ip")
	if options.Dir == "" {
		dir, err := os.MkdirTemp("", "kk") // short, for the sockets in it
		if err != nil {
			t.Fatal(err)
		}
		options.Dir = dir
	}
	net, err := options.Net, error(nil)
	if net == nil {
		if net, err = NewNetNS(); err != nil {
			os.RemoveAll(options.Dir)
			Skip(t, "needs network namespaces: %v", err)
		}
		t.Cleanup(func() { net.Close() })
	}
	state := filepath.Join(options.Dir, "root", "process")
	client, err := Dial("unix://" + filepath.Join(state, "cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		killProcessContainers(t, filepath.Join(state, "containers"))
		if err := os.RemoveAll(options.Dir); err != nil {
			t.Log(err)
		}
	})
	return newAgent(t, client, net, "", options)
}

// StartProcessAgent starts an agent without a container runtime.
func StartProcessAgent(t testing.TB, options AgentOptions) *Agent {
	t.Helper()
	a := NewProcessAgent(t, options)
	a.Start(t)
	a.WaitHealthy(t)
	return a
}

// ProcessesOf are the processes of containers of the IDs, by the mark that is in
// their environment.
func ProcessesOf(ids ...string) []int {
	return processes(func(proc string) bool {
		env, _ := os.ReadFile(proc + "/environ")
		for _, id := range ids {
			if bytes.Contains(env, []byte("KUBELETKIT_CONTAINER_ID="+id)) {
				return true
			}
		}
		return false
	})
}

// ProcessesOfUser are the processes of a user.
func ProcessesOfUser(uid uint32) []int {
	return processes(func(proc string) bool {
		status, _ := os.ReadFile(proc + "/status")
		return bytes.Contains(status, fmt.Appendf(nil, "\nUid:\t%d\t", uid))
	})
}

// killProcessContainers kills what is left of the containers that have their state in
// the directory, with their supervisors; the agent is dead.
func killProcessContainers(t testing.TB, dir string) {
	var ids []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		ids = append(ids, strings.TrimSuffix(e.Name(), ".bad"))
	}
	if len(ids) == 0 {
		return
	}
	err := poll(time.Minute, func() error {
		left := append(ProcessesOf(ids...), processes(func(proc string) bool {
			cmdline, _ := os.ReadFile(proc + "/cmdline")
			return bytes.HasPrefix(cmdline, []byte("kubeletkit-supervisor\x00"+dir))
		})...)
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) > 0 {
			return syscall.EBUSY
		}
		return nil
	})
	if err != nil {
		t.Errorf("processes of containers in %s cannot be killed", dir)
	}
}
