package harness

import (
	"bufio"
	"context"
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
type NetNS struct{ file *os.File }

// NewNetNS makes a namespace with its loopback up. The loopback also has the
// addresses of the host's name servers, where nobody answers: name look-ups in
// the namespace then fail at once instead of after their timeout.
func NewNetNS() (*NetNS, error) {
	type result struct {
		file *os.File
		err  error
	}
	done := make(chan result)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and no other
		// goroutine finds itself in the namespace.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- result{err: fmt.Errorf("new network namespace: %w", err)}
			return
		}
		commands := [][]string{{"link", "set", "lo", "up"}}
		for _, ip := range nameServers() {
			commands = append(commands, []string{"addr", "add", ip, "dev", "lo"})
		}
		for _, args := range commands {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				done <- result{err: fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)}
				return
			}
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		done <- result{file, err}
	}()
	r := <-done
	if r.err != nil {
		return nil, r.err
	}
	return &NetNS{r.file}, nil
}

// Close lets go of the namespace.
func (n *NetNS) Close() error { return n.file.Close() }

// Do runs fn in the namespace: sockets that it opens and processes that it
// starts are in there and stay there.
func (n *NetNS) Do(fn func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering the network namespace: %w", err)
	}
	defer func() {
		// A thread that cannot go home stays locked, and ends with its goroutine.
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
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
