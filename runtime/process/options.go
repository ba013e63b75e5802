package process

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// Name is the name of the runtime and the type of its container IDs: "process://<id>".
const Name = "process"

var (
	// ErrNotSupported is returned on operating systems other than Linux.
	ErrNotSupported = errors.New("the process runtime is not supported on this operating system: it needs Linux; " +
		"give the endpoint of a container runtime instead")
	// ErrNoInit is returned by [Open] in a program that has not called [Init] and names no Supervisor.
	ErrNoInit = errors.New("process: Init was not called: call process.Init() first in main, and in TestMain of " +
		"tests that start containers")
	// ErrInUse is wrapped by the error of [Open] if another server uses the directory.
	ErrInUse = errors.New("process: another server uses the directory")
)

// Options are the settings of a [Server].
type Options struct {
	// Dir is the directory of the state and the socket. It is made with mode 0700 if it
	// does not exist. It must be an absolute path of at most 90 bytes, because the kernel
	// limits the path of a socket. The directory and its parents must belong to this user or
	// to root, and nobody else may write to them. Required.
	Dir string
	// AgentDir is the root directory of the agent, which other users must not enter. If it is
	// set and the server runs as root, the user of a container gets the permission to pass
	// through the directories that lead to its mounts below AgentDir/pods, by an ACL (acl(5)).
	// Otherwise a container with runAsUser cannot use its emptyDir. Default: none.
	AgentDir string
	// Supervisor is the path of the program that supervises containers: one that calls [Init] first in main, such
	// as runtime/process/supervisor, which has nothing else and so starts fast. The path must be absolute. Default:
	// this program, whose packages are initialised again for each container.
	Supervisor string
	// Logger receives errors that no caller gets. Default: that of package slog.
	Logger logr.Logger
	// CgroupRoot is the cgroup in which each pod gets its own. An absolute path
	// starts at the root of the hierarchies, a relative one at the server's own cgroup. If
	// a sandbox has a cgroup_parent, its containers get theirs in that instead. Default: "kubeletkit"; with
	// version 2 it is "/kubeletkit" with root, and otherwise "../kubeletkit" if the server may enable controllers
	// there.
	CgroupRoot string
	// NoCgroups means that no cgroups are made.
	NoCgroups bool
	// PIDLimit is the maximum number of processes and threads of a pod, where cgroups
	// can be made. 0 means no limit. It is kubelet's podPidsLimit.
	PIDLimit int64
	// LogMaxSize is the size in bytes at which the log of a container is rotated, and LogMaxFiles the number of files
	// that a container has at most: the log and rotated ones. The supervisor, which writes the log, rotates it, so no
	// file is larger, except for a line that is. It also does so while no server runs. Package logs compresses rotated
	// files; its Options.RuntimeRotates must be true then. Default: the log is not rotated, and LogMaxFiles 5.
	LogMaxSize  int64
	LogMaxFiles int
	// HostIPs are the addresses of every sandbox. Default: the source address of the
	// host's default route.
	HostIPs []string
	// CRI are the settings of the client that [Start] makes, such as back-offs. Its Logger is by default that of the
	// server. [Open] makes no client.
	CRI cri.Options
}

func (o *Options) validate() error {
	var errs []error
	switch {
	case o.Dir == "":
		errs = append(errs, errors.New("field Dir is required"))
	case !filepath.IsAbs(o.Dir):
		errs = append(errs, fmt.Errorf("field Dir %q is not an absolute path", o.Dir))
	case len(filepath.Clean(o.Dir)) > maxDir:
		errs = append(errs, fmt.Errorf("field Dir %q is longer than %d bytes, too long for a socket in it", o.Dir,
			maxDir))
	}
	for _, path := range []struct{ field, value string }{{"AgentDir", o.AgentDir}, {"Supervisor", o.Supervisor}} {
		if path.value != "" && !filepath.IsAbs(path.value) {
			errs = append(errs, fmt.Errorf("field %s %q is not an absolute path", path.field, path.value))
		}
	}
	if o.PIDLimit < 0 {
		errs = append(errs, fmt.Errorf("PIDLimit %d is negative", o.PIDLimit))
	}
	if o.LogMaxSize < 0 {
		errs = append(errs, fmt.Errorf("LogMaxSize %d is negative", o.LogMaxSize))
	}
	if o.LogMaxFiles != 0 && o.LogMaxFiles < 2 {
		errs = append(errs, fmt.Errorf("LogMaxFiles %d is less than 2", o.LogMaxFiles))
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

// maxDir leaves room for the name of the socket in the 107 bytes of sockaddr_un.
const maxDir = 90

func (o *Options) setDefaults() {
	o.Logger = logging.OrDefault(o.Logger)
	o.Dir = filepath.Clean(o.Dir)
	o.LogMaxFiles = cmp.Or(o.LogMaxFiles, 5)
	if o.AgentDir != "" {
		o.AgentDir = filepath.Clean(o.AgentDir)
	}
}
