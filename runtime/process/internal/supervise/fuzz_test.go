//go:build linux

package supervise

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Without root, containers run as the user of the server and can connect to sockets of
// supervisors.
func FuzzReceive(f *testing.F) {
	message := func(size uint32, body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), body...)
	}
	f.Add(message(14, `{"op":"signal"}`))
	f.Add(message(15, `{"op":"signal"}`))
	f.Add(message(1<<32-1, "{}"))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, data []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		conn := func(fd int) *net.UnixConn {
			file := os.NewFile(uintptr(fd), "")
			defer file.Close()
			c, err := net.FileConn(file)
			if err != nil {
				t.Fatal(err)
			}
			return c.(*net.UnixConn)
		}
		a, b := conn(fds[0]), &Conn{conn(fds[1])}
		defer b.Close()
		go func() {
			_, _ = a.Write(data)
			_ = a.Close()
		}()
		var req Request
		files, _ := b.Receive(&req)
		CloseFiles(files)
	})
}

func FuzzStateFile(f *testing.F) {
	f.Add([]byte(`{"supervisor":{"pid":1},"command":{"pid":-1},"startedAt":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"code":-1,"cpu":9223372036854775807} {}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, v := range []any{new(State), new(Exit), new(Spec)} {
			var bad *BadFileError
			if err := ReadFile(path, v); err != nil && !errors.As(err, &bad) {
				t.Error(err)
			}
		}
		// Signal 0 only looks. No pid may mean a group, or all processes.
		var st State
		if ReadFile(path, &st) == nil {
			_ = st.Supervisor.Kill(0)
			_ = st.Command.signalGroup(st.Command.PID, 0)
		}
	})
}

func FuzzCgroupFiles(f *testing.F) {
	f.Add([]byte("35 25 0:30 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n36 25 0:31 /here /c rw - "+
		"cgroup cgroup rw,cpu,cpuacct\n"), "memory")
	f.Add([]byte("9:name=systemd:/\n4:memory:/a/b:c\n0::/e\n"), "memory")
	f.Add([]byte("oom_kill 3\noom_kill x\n"), "oom_kill")
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		own := cgroupPath(data, key)
		for _, m := range parseMounts(data) {
			// What is not below the root of a mount is not made a path outside of it.
			if p := m.Path(own); strings.HasPrefix(m.Point, "/") && strings.HasPrefix(m.Root, "/") &&
				p != "" && p != m.Point &&
				!strings.HasPrefix(p, strings.TrimSuffix(filepath.Clean(m.Point), "/")+"/") &&
				strings.HasPrefix(own, "/") {
				t.Errorf("%q is outside of %q", p, m.Point)
			}
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = ReadKeyed(path, key)
	})
}
