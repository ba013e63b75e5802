package process

import (
	"bytes"
	"net"
	"os"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// maxResolvConf is the limit for the host's resolv.conf, in bytes. Containers of root can write it.
const maxResolvConf = 1 << 20

// findHost finds out the properties of the host.
func (s *Server) findHost() {
	s.boot = supervise.BootID()
	s.cgroups = findCgroups(&s.opts)
	groups, err := os.Getgroups()
	if err != nil {
		s.opts.Logger.Error(err, "Cannot find out the groups of this process")
	}
	resolv, _ := safefile.ReadFile("/etc/resolv.conf", maxResolvConf)
	s.host = hostFacts{
		UID: os.Geteuid(), GID: os.Getegid(), Groups: groups,
		Nameservers: nameservers(resolv),
		SameFile: func(a, b string) bool {
			ia, errA := os.Stat(a)
			ib, errB := os.Stat(b)
			return errA == nil && errB == nil && os.SameFile(ia, ib)
		},
	}
	s.ips = s.opts.HostIPs
	if len(s.ips) == 0 {
		s.ips = []string{hostIP()}
	}
}

// nameservers parses resolv.conf(5).
func nameservers(data []byte) []string {
	var all []string
	for line := range bytes.Lines(data) {
		if f := bytes.Fields(line); len(f) >= 2 && string(f[0]) == "nameserver" {
			all = append(all, string(f[1]))
		}
	}
	return all
}

// hostIP returns the source address of the default route. Without a route it returns any
// address, and that of the loopback only if there is no other.
func hostIP() string {
	// Nothing is sent: the kernel only looks up a route. The addresses are reserved for
	// documentation (RFC 5737, RFC 3849).
	for _, to := range []string{"203.0.113.1:9", "[2001:db8::1]:9"} {
		if c, err := net.Dial("udp", to); err == nil {
			a, ok := c.LocalAddr().(*net.UDPAddr)
			_ = c.Close()
			if ok && a.IP.IsGlobalUnicast() {
				return a.IP.String()
			}
		}
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}
