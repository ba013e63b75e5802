package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// NetNS is a network namespace that lives as long as this value is open or a
// process is in it. It has no name, so nothing is left of it in the file system.
type NetNS struct {
	file *os.File
	// mounts is the mount namespace of what is started in it, nil if that is the test's.
	mounts *os.File
	// keeper is a process in the user, mount and network namespaces of what is started in it, nil if the user namespace
	// is the test's.
	keeper *exec.Cmd
	// cgroups are the delegated cgroups of a keeper, and leaves those in which its processes are.
	cgroups, leaves []string
}

// NewNetNS makes a namespace with its loopback up. The loopback also has the
// addresses of the host's name servers, where nobody answers: name look-ups in
// the namespace then fail at once instead of after their timeout.
func NewNetNS() (*NetNS, error) {
	var file *os.File
	err := away(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() (err error) {
		if err := upLoopback(); err != nil {
			return err
		}
		file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("new network namespace: %w", err)
	}
	return &NetNS{file: file}, nil
}

// upLoopback sets up the loopback of the namespace of this thread.
func upLoopback() error {
	commands := [][]string{{"link", "set", "lo", "up"}}
	for _, ip := range nameServers() {
		commands = append(commands, []string{"addr", "add", ip, "dev", "lo"})
	}
	for _, args := range commands {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// addInterface adds an interface that has the address and the default route, and leads
// nowhere.
func (n *NetNS) addInterface(ip string) error {
	return n.Do(func() error {
		for _, args := range [][]string{
			{"link", "add", "eth0", "type", "veth", "peer", "name", "eth1"}, {"addr", "add", ip + "/24", "dev", "eth0"},
			{"link", "set", "eth0", "up"}, {"link", "set", "eth1", "up"}, {"route", "add", "default", "dev", "eth0"},
		} {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
			}
		}
		return nil
	})
}

// Close lets go of the namespace. In a user namespace of its own, no process stays.
func (n *NetNS) Close() error {
	if n.keeper != nil {
		n.endKeeper()
	}
	if n.mounts != nil {
		n.mounts.Close()
	}
	return n.file.Close()
}

// ownDirs gives what is started in the namespace from now on a mount namespace, in which the
// paths are directories below dir. All mounts are of the propagation, as in rshared.
func (n *NetNS) ownDirs(dir, propagation string, paths []string) error {
	for _, path := range paths {
		for _, dir := range []string{path, dir + path} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	const script = `dir=$1 propagation=$2; shift 2; for path; do mount --bind "$dir$path" "$path"; done; mount "--make-$propagation" /; echo; read -r _ || :`
	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-ec", script,
		"sh", dir, propagation}, paths...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, mounted := stdout.Read(make([]byte, 1))
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", cmd.Process.Pid))
	stdin.Close()
	if ended := cmd.Wait(); mounted != nil || ended != nil {
		return fmt.Errorf("mounting directories: %w: %s", errors.Join(mounted, ended), &stderr)
	}
	n.mounts = file
	return err
}

// command is what starts a program from inside the network namespace.
func (n *NetNS) command(bin string, args ...string) *exec.Cmd {
	switch {
	case n.keeper != nil:
		return n.inKeeper(bin, args...)
	case n.mounts == nil:
		return exec.Command(bin, args...)
	}
	mounts := fmt.Sprintf("--mount=/proc/%d/fd/%d", os.Getpid(), n.mounts.Fd())
	return exec.Command("nsenter", append([]string{mounts, "--", bin}, args...)...)
}

// Do runs fn in the namespace: sockets that it opens and processes that it
// starts are in there and stay there.
func (n *NetNS) Do(fn func() error) error {
	return away(func() error { return unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET) }, fn)
}

// away locks the goroutine to its thread, brings the thread into another network
// namespace, runs fn there and brings the thread home. The thread must live on:
// the processes that it has started are killed with it (see start), so it is not
// left to end with a goroutine that stays locked.
func away(leave, fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	if err := leave(); err != nil {
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("a thread cannot return to its network namespace: %v", err))
		}
	}()
	return fn()
}

// Listen listens on a TCP address of the namespace.
func (n *NetNS) Listen(addr string) (l net.Listener, err error) {
	err = n.Do(func() error {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}

// DialContext connects from inside the namespace to a numeric TCP address.
func (n *NetNS) DialContext(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = n.Do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// nameServers returns the IPv4 name servers of the host that are not on its
// loopback.
func nameServers() []string {
	f, err := os.Open("/etc/resolv.conf")
	if err != nil {
		return nil
	}
	defer f.Close()
	var ips []string
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if ip := net.ParseIP(fields[1]).To4(); ip != nil && !ip.IsLoopback() {
			ips = append(ips, ip.String()+"/32")
		}
	}
	return ips
}
