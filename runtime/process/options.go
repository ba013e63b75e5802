package process

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/go-logr/logr"
)

// Name is what the runtime calls itself, and so the type of its container IDs:
// "process://<id>".
const Name = "process"

var (
	// ErrNotSupported is returned where this runtime does not work: it needs Linux.
	ErrNotSupported = errors.New("the process runtime is not supported on this operating system: it needs Linux; give the endpoint of a container runtime instead")
	// ErrNoInit is returned by [New] in a program that has not called [Init].
	ErrNoInit = errors.New("process: Init was not called: call process.Init() first in main, and in TestMain of tests that start containers")
	// ErrInUse is returned by [Server.Run] where another server has the directory.
	ErrInUse = errors.New("process: another server uses the directory")
)

// Options are the settings of a [Server].
type Options struct {
	// Dir has the state and the socket. Required; an absolute path of at most 90 bytes, since
	// the kernel takes no longer ones for sockets. It is made with mode 0700.
	Dir string
	// Logger for what no caller gets to see as an error. Default: none.
	Logger logr.Logger
	// CgroupRoot is the cgroup under which each container gets one: a path from the root
	// of the hierarchies, or, if it is relative, from the server's own cgroup. A sandbox's
	// cgroup_parent comes first. Default: "kubeletkit".
	CgroupRoot string
	// NoCgroups leaves cgroups alone, also where they could be made.
	NoCgroups bool
	// PIDLimit is how many processes and threads a container may have at a time, where
	// cgroups can be made; 0 for no limit. Kubelet's podPidsLimit.
	PIDLimit int64
	// HostIPs are the addresses of every sandbox. Default: the address from which this host
	// reaches others.
	HostIPs []string
}

func (o *Options) validate() error {
	var errs []error
	switch {
	case o.Dir == "":
		errs = append(errs, errors.New("field Dir is required"))
	case !filepath.IsAbs(o.Dir):
		errs = append(errs, fmt.Errorf("field Dir %q is not an absolute path", o.Dir))
	case len(filepath.Clean(o.Dir)) > maxDir:
		errs = append(errs, fmt.Errorf("field Dir %q is longer than %d bytes, too long for a socket in it", o.Dir, maxDir))
	}
	if o.PIDLimit < 0 {
		errs = append(errs, fmt.Errorf("PIDLimit %d is negative", o.PIDLimit))
	}
	for _, ip := range o.HostIPs {
		if _, err := netip.ParseAddr(ip); err != nil {
			errs = append(errs, fmt.Errorf("HostIPs: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("process: %w", err)
	}
	return nil
}

// maxDir leaves room for the socket's name in the 107 bytes of sockaddr_un.
const maxDir = 90

func (o *Options) setDefaults() {
	o.Dir = filepath.Clean(o.Dir)
	if o.Logger.IsZero() {
		o.Logger = logr.Discard()
	}
	if o.CgroupRoot == "" {
		o.CgroupRoot = "kubeletkit"
	}
}
