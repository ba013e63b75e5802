package kubeletkit

import (
	"errors"
	"net"
	"os"
	goruntime "runtime"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// DetectHost returns what it finds of the machine: its name, its address on the interface
// of the default route (loopback where there is none), its processors and memory, its
// resolver, the release of its kernel, and whether it has AppArmor.
func DetectHost() (*runtime.Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	h := &runtime.Host{Hostname: name, KernelRelease: kernelRelease(), AppArmor: hasAppArmor(), Allocatable: v1.ResourceList{
		v1.ResourceCPU: *resource.NewQuantity(int64(goruntime.NumCPU()), resource.DecimalSI),
	}}
	ip, err := utilnet.ChooseHostInterface()
	if err != nil || ip == nil {
		ip = net.IPv4(127, 0, 0, 1)
	}
	h.IPs = []string{ip.String()}
	if total, err := totalMemory(); err == nil {
		h.Allocatable[v1.ResourceMemory] = *resource.NewQuantity(total, resource.BinarySI)
	}
	const resolvConf = "/etc/resolv.conf"
	if _, err := os.Stat(resolvConf); err == nil {
		h.ResolvConf = resolvConf
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return h, nil
}
