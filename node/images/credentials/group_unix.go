//go:build unix

package credentials

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup gives the command a process group, which is killed when its context ends: a plugin may be a shell script.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
