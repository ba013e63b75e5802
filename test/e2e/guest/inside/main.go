//go:build linux

// Inside is what runs in the guest of program guest: first as the init of its initial RAM disk, which
// mounts the root; then as its init on the root, or as a service of systemd, which runs the job.
//
// It has to be linked statically.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/test/e2e/guest/job"
)

// self is the path of this program on the root.
const self = "/guest/inside"

func main() {
	role := func() error { return fmt.Errorf("unknown role %q", os.Args) }
	switch {
	case len(os.Args) == 2 && os.Args[1] == "init":
		role = initialize
	case len(os.Args) == 2 && os.Args[1] == "run":
		role = run
	case os.Getpid() == 1:
		role = boot
	}
	err := role()
	fmt.Fprintln(os.Stderr, "guest:", err)
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// initialize is process 1 without systemd: it runs this program's role run, and reaps whatever the
// commands leave behind.
func initialize() error {
	cmd := exec.Command(self, "run")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && err != unix.EINTR {
			return err
		}
		if pid == cmd.Process.Pid {
			return fmt.Errorf("the job has ended without a word")
		}
	}
}

func readJob() (job.Job, error) {
	var j job.Job
	data, err := os.ReadFile(job.File)
	if err == nil {
		err = json.Unmarshal(data, &j)
	}
	return j, err
}
