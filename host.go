package kubeletkit

import (
	"errors"
	"math"
	"net"
	"os"
	goruntime "runtime"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// DetectHost returns what it finds of the machine: its name, its address on the interface
// of the default route (none while there is no route), its processors and memory, the size of the
// file system of rootDir, which need not exist, its resolver, the release of its kernel, and whether it has AppArmor.
func DetectHost(rootDir string) (*runtime.Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	h := &runtime.Host{Hostname: name, KernelRelease: kernelRelease(), AppArmor: hasAppArmor(), Allocatable: v1.ResourceList{
		v1.ResourceCPU: *resource.NewQuantity(int64(goruntime.NumCPU()), resource.DecimalSI),
	}}
	h.IPs = nodenet.DetectIPs(nil)() // unknown while there is no route
	if total, err := totalMemory(); err == nil {
		h.Allocatable[v1.ResourceMemory] = *resource.NewQuantity(total, resource.BinarySI)
	}
	if disk, err := safefile.DiskSizeAt(rootDir); err == nil {
		h.Allocatable[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(min(disk.Capacity, math.MaxInt64)), resource.BinarySI)
	}
	const resolvConf = "/etc/resolv.conf"
	if _, err := os.Stat(resolvConf); err == nil {
		h.ResolvConf = resolvConf
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return h, nil
}

// DetectHostIPs returns a function for [Options].HostIPs: it returns the address of the machine
// on the interface of the default route, and none until there is a route. While there is no
// route any more, it returns the last address. It looks again after 10 s, and while the address
// is unknown after 1, 2, 4 and 8 s first. The routes are read if the kernel chooses another source
// address, and every 5 minutes. preferred is an address of the preferred family; nil means IPv4.
func DetectHostIPs(preferred net.IP) func() []string {
	return nodenet.DetectIPs(preferred)
}

// hostIPs returns the function that has the addresses of the node.
func hostIPs(opts Options) func() []string {
	var given []string
	if opts.Host != nil {
		given = opts.Host.IPs
	}
	return nodenet.HostIPs(opts.HostIPs, given)
}

// hostFacts returns the host with what the options add to it.
func hostFacts(opts Options) (*runtime.Host, error) {
	h := opts.Host
	if h == nil {
		var err error
		if h, err = DetectHost(opts.RootDir); err != nil {
			return nil, err
		}
	}
	facts := *h
	if facts.NodeName == "" {
		facts.NodeName = opts.NodeName
	}
	if facts.PodLogsDir == "" {
		facts.PodLogsDir = defaultPodLogsDir(opts.RootDir)
	}
	return &facts, nil
}
