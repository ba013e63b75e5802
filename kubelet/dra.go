package kubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/dra"
	draplugin "github.com/kubeletkit/kubeletkit/node/dra/plugin"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/podresources"
)

// hasDrivers reports whether pods can have resource claims and volumes of CSI drivers: these are objects of a cluster,
// and the embedded runtime has no devices and no mounts.
func hasDrivers(s *config.Settings) bool { return s.Kubeconfig != "" && !s.Embedded }

// dynamicResources prepares the resource claims of pods by drivers that are plugins. Both fields are nil if no claims
// are prepared.
type dynamicResources struct {
	manager *dra.Manager
	drivers *draplugin.Drivers
}

// newDynamicResources adds the component that prepares claims, and makes its drivers.
func newDynamicResources(opts *kubeletkit.Options, s *config.Settings, joins *member) (d dynamicResources,
	err error) {
	claims := joins.ResourceClaims()
	d.manager, err = dra.New(s.RootDir, claims, dra.Options{Slices: claims,
		SkipOperations: s.SkipsDriverCalls()})
	if err != nil {
		return d, err
	}
	if d.drivers, err = draplugin.New(d.manager); err != nil {
		return d, err
	}
	opts.Join = append(opts.Join, d.manager, d.drivers)
	return d, nil
}

// handle adds the handler of drivers that are plugins.
func (d *dynamicResources) handle(handlers map[string]plugins.Handler) {
	if d.drivers != nil {
		handlers[plugins.TypeDRA] = d.drivers
	}
}

// held returns what the API of pod resources reports.
func (d *dynamicResources) held() podresources.Source {
	return podresources.Source{
		Of: func(pod *v1.Pod, container *v1.Container) (r podresources.Resources) {
			if d.manager == nil {
				return r
			}
			list, _ := d.manager.ContainerClaims(pod, container) // claims that are not prepared are not held
			for _, c := range list {
				claim := podresources.Claim{Namespace: c.Namespace, Name: c.Name}
				for _, device := range c.Devices {
					claim.Devices = append(claim.Devices, podresources.ClaimDevice{
						Driver: device.Driver, Pool: device.Pool, Device: device.Name,
						ShareID: string(ptr.Deref(device.ShareID, "")), CDIDevices: device.CDIDevices,
					})
				}
				r.Claims = append(r.Claims, claim)
			}
			return r
		},
		Allocatable: func() podresources.Resources { return podresources.Resources{} },
	}
}
