//go:build unix

package mounting

import (
	"os/exec"
	"syscall"
)

// ownGroup has the program started in a process group of its own, with its children.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
