package host

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/machine"
	"github.com/kubeletkit/kubeletkit/node/oom"
)

// Read reads the machine. It changes nothing.
func Read() Facts {
	f := Facts{Root: os.Geteuid() == 0, Kernel: map[string]string{}, CgroupV1: true}
	if swaps, err := os.ReadFile("/proc/swaps"); err == nil { // the first line is a heading
		f.Swap = bytes.Count(bytes.TrimSpace(swaps), []byte("\n")) > 0
	}
	var name unix.Utsname
	f.UserNamespace = machine.InUserNamespace()
	if unix.Uname(&name) == nil {
		f.Noswap = !f.UserNamespace && hasNoswap(unix.ByteSliceToString(name.Release[:]))
	}
	var st unix.Statfs_t
	if unix.Statfs("/sys/fs/cgroup", &st) != nil || st.Type == unix.CGROUP2_SUPER_MAGIC {
		f.CgroupV1 = false
	}
	for path := range kernel() {
		if value, err := os.ReadFile(sysctls + path); err == nil {
			f.Kernel[path] = strings.TrimSpace(string(value))
		}
	}
	if score, err := os.ReadFile(oomScoreFile); err == nil {
		f.OOMScoreAdj = strings.TrimSpace(string(score))
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		f.OpenFiles = limit.Max
	}
	if f.UserNamespace {
		f.KernelLog = canReadKernelLog()
	}
	return f
}

// canReadKernelLog returns why the log of the kernel cannot be read.
func canReadKernelLog() error {
	log, err := oom.OpenKmsg()
	if err != nil {
		return err
	}
	return log.Close()
}

// hasNoswap reports whether a kernel of this release has the option noswap of tmpfs, which came
// with Linux 6.4. Kernels that have it from elsewhere count as without.
func hasNoswap(release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 6 || major == 6 && minor >= 4
}

// Set applies the plan to the machine and to this process.
func (p Plan) Set() error {
	return p.Apply(
		func(path, value string) error { return os.WriteFile(path, []byte(value), 0) },
		func(limit uint64) error {
			return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit})
		},
	)
}

// Peer names the process at the other end of a connection to a Unix socket: that which listens there.
func Peer(conn net.Conn) string {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return "process"
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return "process"
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}) != nil || err != nil {
		return "process"
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", peer.Pid))
	return strings.TrimSpace(fmt.Sprintf("process %d %s", peer.Pid, name))
}
