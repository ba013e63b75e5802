package supervise

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noOOM is the OOM score with which the kernel kills no process (proc_pid_oom_score_adj(5)).
const noOOM = -1000

// forkIn executes a program in the cgroups of the container, with its OOM score.
//
// The kernel may kill any process in a memory cgroup that is at its limit, and every process that shares
// memory with it. So the supervisor enters no memory cgroup, and neither does a child that shares its
// memory, as one does between fork and exec (vfork(2)):
//
//   - Version 1: the child enters after exec, before its first instruction, since it is traced until
//     then. The thread enters the other hierarchies before it forks, so that the limit of processes counts.
//   - Version 2: the child starts there. It gets the score [noOOM] until exec, since with memory.oom.group
//     the kernel kills all others. It is traced, so that its score is the container's before its first
//     instruction. Without this score, which needs root, the kernel spares a child before exec unless
//     memory.oom.group is set.
//
// A program that runs as another user is not traced, and enters the memory cgroup with the thread that forks: a
// set-user-ID program that is traced gets no privileges, and neither does one with file capabilities (execve(2)).
//
// It must be called in the goroutine of loop: only the thread that has forked can trace the child.
func (s *supervisor) forkIn(path string, args []string, attr *syscall.ProcAttr) (int, error) {
	cg, err := s.spec.Cgroup.open()
	if err != nil {
		return 0, fmt.Errorf("opening its cgroup: %w", err)
	}
	if cg != nil {
		defer cg.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(cg.Fd())
	}
	attr.Sys.Ptrace = os.Geteuid() == 0 && (attr.Sys.Credential == nil || attr.Sys.Credential.Uid == 0)
	pid, err := s.forkTraced(path, args, attr)
	if attr.Sys.Ptrace && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS)) {
		// Nothing may be traced here: seccomp(2), ptrace_scope of Yama, SELinux, an emulator. Limits matter more.
		attr.Sys.Ptrace = false
		pid, err = s.forkTraced(path, args, attr)
	}
	return pid, err
}

// forkTraced forks. If the child is to be traced, it prepares the child and lets it go.
func (s *supervisor) forkTraced(path string, args []string, attr *syscall.ProcAttr) (int, error) {
	leave, err := s.spec.Cgroup.enter(s.spec.CgroupMounts, !attr.Sys.Ptrace)
	if err != nil {
		return 0, fmt.Errorf("entering its cgroup: %w", err)
	}
	defer leave()
	own, ownErr := OOMScoreAdj("self")
	if attr.Sys.Ptrace && attr.Sys.UseCgroupFD && ownErr == nil && setOOMScoreAdj("self", noOOM) == nil {
		defer func() { _ = setOOMScoreAdj("self", own) }()
	}
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	pid, err := syscall.ForkExec(path, args, attr)
	if err != nil {
		return 0, fmt.Errorf("executing %s: %w", path, err)
	}
	if attr.Sys.Ptrace {
		err = untilExec(pid)
	}
	score := s.spec.OOMScoreAdj
	if score == nil && ownErr == nil && attr.Sys.Ptrace {
		score = &own
	}
	if score != nil {
		// If it must not be set, the server has given a warning. A child must not keep noOOM.
		scoreErr := setOOMScoreAdj(strconv.Itoa(pid), *score)
		if attr.Sys.Ptrace && err == nil && scoreErr != nil && !errors.Is(scoreErr, unix.ENOENT) {
			err = scoreErr
		}
	}
	if attr.Sys.Ptrace {
		if err == nil {
			err = s.spec.Cgroup.enterMemory(pid)
		}
		if err == nil {
			err = unix.PtraceDetach(pid)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // if it was killed, loop reaps it
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
			return 0, fmt.Errorf("preparing %s: %w", path, err)
		}
	}
	return pid, nil
}

// untilExec returns when a traced child has executed its program. It does not reap the child. The error is
// ESRCH if the child has ended.
func untilExec(pid int) error {
	for {
		// unix.Siginfo has no field for the rest.
		var info struct {
			signo, errno, code int32
			_                  [0]uintptr // what follows is a union with pointers
			pid, uid, status   int32
			_                  [128]byte
		}
		err := unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&info)),
			unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case info.code != cldTrapped:
			return unix.ESRCH
		case info.status == int32(unix.SIGTRAP):
			return nil
		}
		// A signal that came before. It is delivered, and the child stops again at exec.
		if err := unix.PtraceCont(pid, int(info.status)); err != nil {
			return err
		}
	}
}

// cldTrapped is CLD_TRAPPED: a traced child has stopped (sigaction(2)).
const cldTrapped = 4

// OOMScoreAdj returns the OOM score of a process, which is "self" or a PID.
func OOMScoreAdj(process string) (int, error) {
	data, err := os.ReadFile("/proc/" + process + "/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(data[:max(0, len(data)-1)]))
}

func setOOMScoreAdj(process string, score int) error {
	return os.WriteFile("/proc/"+process+"/oom_score_adj", strconv.AppendInt(nil, int64(score), 10), 0)
}
